"""Finds the graphs of tasks: data sets, and those of papers that are none: batches of point clouds, parts of Reddit."""

from __future__ import annotations

from dacergnn import datasets
from dacergnn.datasets import Dataset
from dacergnn.datasets.clouds import CLOUDS, point_clouds
from dacergnn.datasets.synthetic import Specification, drawn

BATCHES = {f"{clouds} clouds, k={k}": (clouds, k) for clouds in (2, 32, 64) for k in (20, 40)}
"""Names of batches of point clouds -> clouds, and neighbours of a point."""
REDDIT = Specification(232_965, 114_615_892, 1, 1, 0.002, features=602, classes=41)
"""Of graphs called "reddit~SCALE", which have as many edges for a node as Reddit at any scale; nearly all its nodes
have neighbours."""


def graph_of(name: str, seed: int = 0) -> Dataset:
    """Returns the graph of a name.

    Args:
        seed: Of graphs that are no data sets.
    """
    if name in BATCHES:
        clouds, neighbours = BATCHES[name]
        return point_clouds(clouds, CLOUDS.points, neighbours, seed)
    if name.startswith("reddit~"):
        return drawn(REDDIT, name, float(name.partition("~")[2]), seed)
    return datasets.resolve(name)

"""Point clouds on the surfaces of random ellipsoids, joined with their nearest neighbours."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from scipy.spatial import cKDTree  # pyright: ignore[reportAttributeAccessIssue]

from dacergnn.datasets.dataset import Dataset
from dacergnn.graph import HeteroGraph


class _Counts(NamedTuple):
    name: str
    clouds: int
    points: int
    neighbours: int


CLOUDS = _Counts("clouds", 32, 1024, 20)
"""The batch with which networks on point clouds are benchmarked."""


def point_clouds(
    clouds: int = CLOUDS.clouds,
    points: int = CLOUDS.points,
    neighbours: int = CLOUDS.neighbours,
    seed: int = 0,
    name: str = "clouds~",
) -> Dataset:
    """Makes a batch of clouds, the same for the same seed; edges lead to each point from its nearest points.

    Features are the coordinates, float32 [clouds * points, 3]; `graph_id` tells the cloud of each point. There
    must be more points than neighbours, since no point is its own neighbour.
    """
    rng = np.random.default_rng(seed)
    direction = rng.standard_normal((clouds, points, 3))
    direction /= np.linalg.norm(direction, axis=-1, keepdims=True)
    position = direction * rng.uniform(0.3, 1.0, (clouds, 1, 3))
    # The nearest point is the point itself.
    near = np.stack([cKDTree(cloud).query(cloud, neighbours + 1)[1][:, 1:] for cloud in position])
    src = (near + points * np.arange(clouds)[:, None, None]).reshape(clouds * points, neighbours)
    graph = HeteroGraph.from_arrays(
        (np.sort(src, axis=1).reshape(-1), np.repeat(np.arange(clouds * points), neighbours)),
        None,
        num_nodes=clouds * points,
        node_type_names=["point"],
    )
    return Dataset(
        name,
        graph,
        {"point": torch.from_numpy(position.reshape(-1, 3).astype(np.float32))},
        graph_id=torch.arange(clouds).repeat_interleave(points),
    )

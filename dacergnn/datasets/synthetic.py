"""Synthetic graphs with the node, edge and type counts of well-known ones; point clouds (`clouds.py`).

A relation has one source and one destination type. Sizes of node types and relations and degrees follow power
laws; counts are exact, and no (source, edge type, destination) occurs twice unless there are too few nodes.
The numbers of unique (source, edge type) and (destination, edge type) pairs are set, not random, so that
compaction saves as much as it does on the real graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
import torch

from dacergnn.datasets.clouds import CLOUDS, point_clouds
from dacergnn.datasets.dataset import Dataset
from dacergnn.datasets.draw import (
    SKEW,
    Ints,
    Relations,
    draw_edges,
    occurrence_limits,
    occurrences,
    power_law_parts,
)
from dacergnn.errors import DatasetError
from dacergnn.graph import HeteroGraph
from dacergnn.graph.formats import largest_array

NODE_TYPE_EXPONENT = 1.5
EDGE_TYPE_EXPONENT = 1.0


@dataclass(frozen=True)
class Specification:
    """Holds the counts of a graph, and its compaction ratio: unique (source, edge type) pairs over edges.

    With `inverses`, edge type r + R/2 is the inverse of edge type r, so both compaction ratios are the same.
    """

    nodes: int
    edges: int
    node_types: int
    edge_types: int
    compaction: float
    inverses: bool = False
    dst_compaction: float | None = None
    """Unique (destination, edge type) pairs over edges; as `compaction` if None."""
    features: int = 0
    """Number of random features of a node, for graphs of one node type; no features if 0."""
    classes: int = 0
    """Number of random classes of nodes; no labels if 0."""
    skew: float = SKEW
    """With 1 all nodes of a type have similar degrees; more makes hubs."""


SPECIFICATIONS = {
    "aifb": Specification(7_262, 48_810, 7, 104, 0.50, inverses=True),
    "am": Specification(1_885_136, 5_668_682, 7, 108, 0.57, inverses=True),
    # Assumed: nearly all nodes cite and are cited.
    "arxiv": Specification(169_343, 1_166_243, 1, 1, 0.13, features=128, classes=40),
    # Assumed ratio: none is published for bgs.
    "bgs": Specification(94_806, 672_884, 27, 122, 0.50, inverses=True),
    "biokg": Specification(93_773, 4_762_678, 5, 51, 0.13),
    # All nodes of these three graphs of papers have neighbours, but for a few of citeseer.
    "citeseer": Specification(3_327, 9_104, 1, 1, 0.36, features=3_703, classes=6),
    "cora": Specification(2_708, 10_556, 1, 1, 0.257, features=1_433, classes=7),
    "fb15k": Specification(14_541, 620_232, 1, 474, 0.26, inverses=True),
    # All nodes have neighbours.
    "flickr": Specification(89_250, 899_756, 1, 1, 0.099, features=500, classes=7),
    # Assumed on the destination side: most edges end at few fields of study, institutions and cited papers.
    "mag": Specification(1_939_743, 21_111_007, 4, 4, 0.17, dst_compaction=0.07),
    "mutag": Specification(27_163, 148_100, 5, 50, 0.52, inverses=True),
    "pubmed": Specification(19_717, 88_648, 1, 1, 0.222, features=500, classes=3),
    # Assumed ratio: none is published for wikikg2.
    "wikikg2": Specification(2_500_604, 16_109_182, 1, 535, 0.40),
    "wn18rr": Specification(40_943, 186_006, 1, 22, 0.586, inverses=True),
}

SYNTHETIC_NAMES = (*SPECIFICATIONS, CLOUDS.name)
"""Names that `synthetic` knows."""


def synthetic(name: str, scale: float = 1.0, seed: int = 0) -> Dataset:
    """Makes the synthetic graph `name`, the same for the same seed.

    Args:
        name: One of `SYNTHETIC_NAMES`.
        scale: Multiplies the numbers of nodes and edges, or of clouds; numbers of types stay.
        seed: Seed of everything random.

    Raises:
        DatasetError: The name is unknown, or the scale is not a positive number.
    """
    if name not in SYNTHETIC_NAMES:
        raise DatasetError(f"There is no synthetic dataset {name!r}; known are {', '.join(SYNTHETIC_NAMES)}.")
    if isinstance(scale, bool) or not isinstance(scale, Real) or not 0 < float(scale) < float("inf"):
        raise DatasetError(f"scale is {scale!r}; it must be a positive number.")
    if isinstance(seed, bool) or not isinstance(seed, Integral) or seed < 0:
        raise DatasetError(f"seed is {seed!r}; it must be an integer from 0 on.")
    cells = CLOUDS.clouds * CLOUDS.points * CLOUDS.neighbours if name == CLOUDS.name else SPECIFICATIONS[name].edges
    if 8 * cells * scale > largest_array():
        raise DatasetError(
            f"scale is {scale!r}, at which {name} has {cells * scale:.3g} edges, more than half of the memory of this "
            "machine holds; pass a smaller one."
        )
    full_name = f"{name}~{scale:g}" if scale != 1 else f"{name}~"
    if name == CLOUDS.name:
        return point_clouds(max(round(scale * CLOUDS.clouds), 1), seed=seed, name=full_name)
    return drawn(SPECIFICATIONS[name], full_name, scale, seed)


def drawn(spec: Specification, name: str, scale: float = 1.0, seed: int = 0) -> Dataset:
    """Draws a graph with the counts of a specification, the same for the same seed."""
    rng = np.random.default_rng(seed)
    half = 2 if spec.inverses else 1
    num_edges = max(round(spec.edges * scale / half), 1)
    num_nodes = max(round(spec.nodes * scale), spec.node_types)
    type_counts = power_law_parts(num_nodes, spec.node_types, NODE_TYPE_EXPONENT)
    edge_counts = power_law_parts(num_edges, spec.edge_types // half, EDGE_TYPE_EXPONENT)
    relations = _relations(spec, type_counts, edge_counts, rng)
    src, dst = draw_edges(relations, type_counts, rng)
    starts = np.cumsum(type_counts) - type_counts
    etype = np.repeat(np.arange(len(edge_counts)), edge_counts)
    src += starts[relations.src_type][etype]
    dst += starts[relations.dst_type][etype]
    ends = list(zip(relations.src_type.tolist(), relations.dst_type.tolist(), strict=True))
    if spec.inverses:
        src, dst = np.concatenate((src, dst)), np.concatenate((dst, src))
        etype = np.concatenate((etype, etype + len(edge_counts)))
        ends += [(d, s) for s, d in ends]

    key = torch.from_numpy((etype * num_nodes + dst) * num_nodes + src).sort().values
    key, src = key // num_nodes, key % num_nodes
    graph = HeteroGraph.from_arrays(
        (src, key % num_nodes),
        key // num_nodes,
        num_nodes=num_nodes,
        num_edge_types=spec.edge_types,
        node_type=np.repeat(np.arange(spec.node_types), type_counts),
        num_node_types=spec.node_types,
        edge_type_names=[f"type{s}:relation{r}:type{d}" for r, (s, d) in enumerate(ends)],
        node_type_names=[f"type{t}" for t in range(spec.node_types)],
    )
    return Dataset(name, graph, _features(spec, num_nodes, rng), _label(spec, num_nodes, rng))


def _features(spec: Specification, num_nodes: int, rng: np.random.Generator) -> dict[str, torch.Tensor]:
    if not spec.features:
        return {}
    return {"type0": torch.from_numpy(rng.standard_normal((num_nodes, spec.features), dtype=np.float32))}


def _label(spec: Specification, num_nodes: int, rng: np.random.Generator) -> torch.Tensor | None:
    return torch.from_numpy(rng.integers(spec.classes, size=num_nodes)) if spec.classes else None


def _relations(spec: Specification, type_counts: Ints, edge_counts: Ints, rng: np.random.Generator) -> Relations:
    """Returns end types and numbers of different end points of all relations, so that the ratios can be met."""
    num_edges = int(edge_counts.sum())
    wanted_src = round(spec.compaction * num_edges)
    wanted_dst = round((spec.compaction if spec.dst_compaction is None else spec.dst_compaction) * num_edges)
    likely = np.sqrt(type_counts) / np.sqrt(type_counts).sum()
    src_type = rng.choice(len(type_counts), len(edge_counts), p=likely)
    dst_type = rng.choice(len(type_counts), len(edge_counts), p=likely)
    largest = int(np.argmax(type_counts))
    # Relations that fill their types get the largest type at both ends.
    crowded = edge_counts > 0.5 * type_counts[src_type] * type_counts[dst_type]
    src_type[crowded] = dst_type[crowded] = largest
    # Then the largest relations do, until there is room for the wanted numbers of end points.
    for relation in np.argsort(-edge_counts, kind="stable"):
        num_src, num_dst = type_counts[src_type], type_counts[dst_type]
        least_src, most_src = (int(n.sum()) for n in occurrence_limits(edge_counts, num_src, num_dst))
        least_dst, most_dst = (int(n.sum()) for n in occurrence_limits(edge_counts, num_dst, num_src))
        more_sources = most_src < wanted_src or least_dst > wanted_dst
        more_destinations = most_dst < wanted_dst or least_src > wanted_src
        if more_sources:
            src_type[relation] = largest
        if more_destinations:
            dst_type[relation] = largest
        if not (more_sources or more_destinations):
            break
    num_src, num_dst = type_counts[src_type], type_counts[dst_type]
    sources = occurrences(edge_counts, num_src, num_dst, wanted_src)
    # Destinations must make enough pairs with the sources that occur.
    destinations = occurrences(edge_counts, num_dst, sources, wanted_dst)
    return Relations(edge_counts, src_type, dst_type, sources, destinations, spec.skew)

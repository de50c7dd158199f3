"""Random heterogeneous graphs over wide ranges of sizes, types, degrees and compaction, for performance models."""

from __future__ import annotations

import math
import random

from dacergnn.datasets.synthetic import Specification, drawn
from dacergnn.graph import HeteroGraph

EDGES = (2_000, 600_000)
"""Least and largest number of edges: the least fit into the caches of a core, the largest do not."""
SMALL, LARGE = (300, 2_000), (600_000, 20_000_000)
"""Edges of sampled batches, and of the largest graphs."""
DEGREE = (1.5, 60.0)
RELATIONS, NODE_TYPES = (2, 300), (1, 12)
COMPACTION = (0.05, 0.95)
SKEW = (1.0, 3.0)


def random_specification(seed: int, single: bool = False, edges: tuple[int, int] | None = None) -> Specification:
    """Returns the counts of the graph of a seed; sizes, degrees and types are uniform on a logarithmic scale.

    Args:
        single: Whether there is one relation and one node type, as for homogeneous layers.
        edges: Least and largest number of edges; `EDGES` if None.
    """
    rng = random.Random(seed)
    count = round(_log_uniform(rng, *(edges or EDGES)))
    nodes = max(round(count / _log_uniform(rng, *DEGREE)), 16)
    relations = 1 if single else round(_log_uniform(rng, *RELATIONS))
    types = 1 if single else min(round(_log_uniform(rng, *NODE_TYPES)), relations)
    return Specification(
        nodes=nodes,
        edges=count,
        node_types=types,
        edge_types=relations,
        compaction=rng.uniform(*COMPACTION),
        dst_compaction=rng.uniform(*COMPACTION),
        skew=rng.uniform(*SKEW),
    )


def random_graph(seed: int, single: bool = False, edges: tuple[int, int] | None = None) -> HeteroGraph:
    """Returns the graph of a seed, which `random_specification` describes."""
    return drawn(random_specification(seed, single, edges), f"random{seed}", seed=seed).graph


def _log_uniform(rng: random.Random, low: float, high: float) -> float:
    return math.exp(rng.uniform(math.log(low), math.log(high)))

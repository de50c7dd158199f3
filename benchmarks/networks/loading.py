"""Samples a new batch of a graph for every step, with PyG's loader and our sampler or with DGL's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from benchmarks.relational.problem import Problem
from dacergnn.errors import DacergnnError

PLAIN = ("SAGEConv", "GATConv", "GATv2Conv", "ResGatedGraphConv")
"""Layers of PyG that ignore types."""
RELATIONAL = ("RGCNConv", "RGATConv")
"""Layers of PyG that take a vector of edge types."""
TYPED = ("HGTConv", "HeteroConv(SAGEConv)", "HeteroConv(GATv2Conv)", "to_hetero(SAGEConv)")
"""Layers of PyG that take dictionaries by type."""
BLOCKS = ("RelGraphConv", "DGL GATConv")
"""Layers of DGL, which are called with blocks."""


@dataclass(frozen=True)
class Batch:
    """Holds the arguments of a network, and the labels of the seeds, whose rows come first in its result."""

    inputs: tuple[Any, ...]
    labels: Tensor
    edges: int


def most_reached(problem: Problem) -> int:
    """Returns the number of the node type with the most incoming edges; the seeds are of this type."""
    counts = [0] * problem.num_ntypes
    for (_, destination), edges in zip(problem.relations, problem.etype_sizes, strict=True):
        counts[destination] += edges
    return counts.index(max(counts))


def batches(layer: str, problem: Problem, seed_type: int, seeds: int, fanouts: list[int]) -> Iterator[Batch]:
    """Yields batches in the form that a layer takes, without an end.

    Raises:
        DacergnnError: The graph has fewer nodes of the seeds' type than a batch has seeds.
    """
    first, last = [*pairwise((*problem.ntype_starts, problem.num_nodes))][seed_type]
    if last - first < seeds:
        raise DacergnnError(f"seeds are {seeds}, but the graph has {last - first} nodes to take them from; give fewer")
    if layer in BLOCKS:
        return _of_dgl(problem, range(first, last), seeds, fanouts)
    if layer in TYPED:
        return _of_hetero_data(problem, f"t{seed_type}", seeds, fanouts)
    return _of_data(problem, range(first, last), seeds, fanouts, typed=layer in RELATIONAL)


def _of_data(problem: Problem, nodes: range, seeds: int, fanouts: list[int], *, typed: bool) -> Iterator[Batch]:
    from torch_geometric.data import Data

    from dacergnn.sampler import neighbor_loader

    edges = torch.stack([problem.src, problem.dst])
    data = Data(x=problem.x, y=problem.labels, edge_index=edges, edge_type=problem.etype)
    chosen = torch.tensor(nodes)
    loader = neighbor_loader(data, fanouts, chosen, batch_size=seeds, shuffle=True, drop_last=True)
    while True:
        for batch in loader:
            inputs = (batch.x, batch.edge_index, batch.edge_type) if typed else (batch.x, batch.edge_index)
            yield Batch(inputs, batch.y[:seeds], batch.num_edges)


def _of_hetero_data(problem: Problem, seed_type: str, seeds: int, fanouts: list[int]) -> Iterator[Batch]:
    from torch_geometric.data import HeteroData

    from benchmarks.relational.peers_pyg import edge_key
    from dacergnn.sampler import neighbor_loader

    data = HeteroData()
    sizes = list(problem.ntype_sizes)
    for i, (x, y) in enumerate(zip(problem.x.split(sizes), problem.labels.split(sizes), strict=True)):
        data[f"t{i}"].x, data[f"t{i}"].y = x, y
    for r in range(problem.num_etypes):
        data[edge_key(problem, r)].edge_index = problem.edges_of(r)
    loader = neighbor_loader(data, fanouts, seed_type, batch_size=seeds, shuffle=True, drop_last=True)
    while True:
        for batch in loader:
            yield Batch((batch.x_dict, batch.edge_index_dict), batch[seed_type].y[:seeds], batch.num_edges)


def _of_dgl(problem: Problem, nodes: range, seeds: int, fanouts: list[int]) -> Iterator[Batch]:
    import dgl

    library: Any = dgl
    graph = library.graph((problem.src, problem.dst), num_nodes=problem.num_nodes)
    sampler = library.dataloading.NeighborSampler(fanouts)
    loader = library.dataloading.DataLoader(
        graph, torch.tensor(nodes), sampler, batch_size=seeds, shuffle=True, drop_last=True
    )
    while True:
        for sources, chosen, blocks in loader:
            types = [problem.etype[block.edata[library.EID]] for block in blocks]
            edges = sum(block.num_edges() for block in blocks)
            yield Batch((problem.x[sources], blocks, types), problem.labels[chosen], edges)

"""Divides the nodes of a graph among processes."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from dacergnn.errors import ArrayError, DacergnnError
from dacergnn.graph import HeteroGraph, locality_order

METHODS = ("ranges", "locality", "random", "metis")
"""Ways to divide nodes. "ranges" gives each process successive nodes of each type, with about as many in-edges;
"locality" does so in the order of `locality_order`; "random" gives it as many nodes, drawn at random; "metis" cuts few
edges, by the package pymetis."""


def partition(graph: HeteroGraph, parts: int, *, method: str = "ranges", seed: int = 0) -> Tensor:
    """Returns [N] int64, the process that each node belongs to.

    Args:
        graph: The whole graph, whose destinations are its sources.
        parts: The number of processes.
        method: One of `METHODS`.
        seed: Seed of "random".

    Raises:
        ArrayError: A number of processes that is none, or a graph with other destinations than sources.
        DacergnnError: The method is unknown, or its package is missing.
    """
    if isinstance(parts, bool) or not isinstance(parts, int) or parts < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArrayError("parts", f"is {parts!r}; give the number of processes, 1 or more")
    if method not in METHODS:
        raise DacergnnError(f"method={method!r} is not one of {', '.join(METHODS)}.")
    if graph.bipartite or graph.size("NS") != graph.size("ND"):
        raise ArrayError("graph", "has other destinations than sources; give the graph of all nodes")
    nodes = graph.size("NS")
    if method == "random":
        order = torch.randperm(nodes, generator=torch.Generator().manual_seed(seed))
        return torch.empty(nodes, dtype=torch.int64).index_copy_(0, order, torch.arange(nodes) * parts // max(nodes, 1))
    if method == "metis":
        return _by_metis(graph, parts)
    work = torch.bincount(graph.index("E", "dst").cpu(), minlength=nodes) + 1
    if method == "ranges":
        return _ranges(work, graph.node_ranges or ((0, nodes),), parts)
    order = locality_order(graph)
    stops = torch.bincount(graph.index("NS", "ntype").cpu(), minlength=graph.size("T")).cumsum(0).tolist()
    return torch.empty_like(order).index_copy_(0, order, _ranges(work[order], [*pairwise([0, *stops])], parts))


def _ranges(work: Tensor, types: Sequence[tuple[int, int]], parts: int) -> Tensor:
    """Returns the part of each node: of each type, successive ones with about as much work.

    Args:
        work: [N] int64 the work of each node.
        types: The first node of each type, and the node after the last one.
    """
    owners = torch.empty(len(work), dtype=torch.int64)
    for start, stop in types:
        before = work[start:stop].cumsum(0) - work[start:stop]
        total = int(work[start:stop].sum())
        owners[start:stop] = before * parts // max(total, 1)
    return owners


def _by_metis(graph: HeteroGraph, parts: int) -> Tensor:
    try:
        metis: Any = importlib.import_module("pymetis")
    except ImportError:
        raise DacergnnError('method="metis" needs the package pymetis; install it, or use "ranges".') from None
    nodes = graph.size("NS")
    ends = torch.stack([graph.index("E", "src").cpu().long(), graph.index("E", "dst").cpu().long()])
    both = torch.cat([ends, ends.flip(0)], 1)
    both = both[:, both[0] != both[1]].unique(dim=1)  # METIS takes each neighbour once, and no loops
    pointers = torch.cat([both.new_zeros(1), torch.bincount(both[0], minlength=nodes).cumsum(0)])
    _, owners = metis.part_graph(parts, metis.CSRAdjacency(pointers.numpy(), both[1].numpy()))
    return torch.tensor(owners, dtype=torch.int64)

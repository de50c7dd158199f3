"""Self loops in place of existing ones, with their weights, and the symmetric norm of GCN."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor

from dacergnn.frontends.derived_values import kept
from dacergnn.frontends.pyg.given_edges import Sizes, identity, sources_and_destinations
from dacergnn.frontends.pyg.message_passing import check_ids
from dacergnn.graph import HeteroGraph, native_sorting, sorting
from dacergnn.graph.sorting import INT64_LIMIT

_ANY: Sizes = (INT64_LIMIT - 1, INT64_LIMIT - 1)


def with_loops(edge_index: Tensor, count: int, sizes: Sizes | None = None) -> Tensor:
    """Returns the edges between different nodes, then a self loop at each of ``count`` nodes.

    Args:
        sizes: Numbers of sources and destinations; None if the ends of the edges have been checked.

    Raises:
        GraphError: An end of an edge is out of the range of ``sizes``. Positions in the text count in the user's list.
    """
    if torch.compiler.is_exporting():
        return torch.ops.dacergnn.with_loops(edge_index, count, *(sizes or _ANY))
    if sorting.at_hand(edge_index):
        edges = native_sorting.with_loops(edge_index, sizes or _ANY, count)
        if edges is not None:
            return edges
    if sizes is not None:
        check_ids(edge_index, sizes)
    return torch.cat([edge_index[:, edge_index[0] != edge_index[1]], loops(edge_index, count)], dim=1)


def loops(edge_index: Tensor, count: int) -> Tensor:
    """Returns a self loop at each node, [2, count], with the dtype and device of ``edge_index``."""
    return torch.arange(count, dtype=edge_index.dtype, device=edge_index.device).expand(2, -1)


def with_loop_weights(
    graph: HeteroGraph, key: Hashable, edge_index: Tensor, weight: Tensor, fill: float, count: int
) -> Tensor:
    """Returns ``weight`` [E] in the order of `with_loops`: existing loops keep their weight, others have ``fill``.

    Args:
        key: Tells ``edge_index`` from other edges that the graph is made of.
    """
    others, at, nodes = split_loops(graph, key, edge_index)
    added = torch.full((count,), fill, dtype=weight.dtype, device=weight.device)
    return torch.cat([weight.index_select(0, others), added.index_put((nodes,), weight.index_select(0, at))])


def split_loops(graph: HeteroGraph, key: Hashable, edge_index: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the positions of edges that are no self loops, the positions of self loops, and the nodes of these.

    As their number is read from the device, the graph keeps them while the edges are the same tensor.
    """

    def find() -> tuple[Tensor, Tensor, Tensor]:
        edges = sources_and_destinations(edge_index)
        loop = edges[0] == edges[1]
        at = loop.nonzero().view(-1)
        return (~loop).nonzero().view(-1), at, edges[0].index_select(0, at).long()

    source: Any = identity(edge_index)[0]
    return kept(graph, ("loops", key), source, find)


def symmetric_norm(src: Tensor, dst: Tensor, count: int, weights: Tensor) -> Tensor:
    """Returns weights [E] over the square roots of both ends' weighted in-degrees; 0 where no edge arrives."""
    degrees = weights.new_zeros(count).index_add(0, dst, weights)
    roots = degrees.pow(-0.5)
    roots = roots.masked_fill(roots == float("inf"), 0)
    return roots[src] * weights * roots[dst]

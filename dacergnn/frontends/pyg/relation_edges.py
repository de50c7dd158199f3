"""The edges of a relation of a `HeteroConv`: an index as it is, an adjacency with its weights and self loops."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.derived_values import kept
from dacergnn.frontends.pyg.given_edges import (
    check_edges,
    check_extremes,
    edge_features,
    edge_values,
    identity,
    is_matrix,
    matrix_sizes,
    sources_and_destinations,
    with_self_loops,
)
from dacergnn.frontends.pyg.relations import Relation
from dacergnn.frontends.pyg.self_loops import loops
from dacergnn.graph import HeteroGraph


class RelationEdges(NamedTuple):
    """Describes the edges that a relation sums over.

    Args:
        relation: The relation; for an adjacency, one without self loops that are still to be added.
        ends: [2, E] sources and destinations.
        weight: [E] factors of messages; None if all are 1.
    """

    relation: Relation
    ends: Tensor
    weight: Tensor | None


def check_adjacency(relation: Relation, conv: Any, edge_index: Any, x: tuple[Tensor, Tensor]) -> None:
    """Raises UnsupportedCallError unless a program can run over an adjacency between nodes with features ``x``."""
    fused = relation.attention is None
    check_edges(edge_index, fused=fused)
    if matrix_sizes(edge_index) != (x[0].size(0), x[1].size(0)):
        raise UnsupportedCallError(
            f"the adjacency of {relation.key!r} has {matrix_sizes(edge_index)} sources and destinations, other than x."
        )
    if not fused:
        if edge_features(edge_index) is not None:
            raise UnsupportedCallError(f"the adjacency of {relation.key!r} has features of edges for values.")
        return
    if not conv.fuse:
        raise UnsupportedCallError(f"fuse is False in the layer of {relation.key!r}; leave it True for adjacencies.")
    check_extremes(relation.rule)
    if relation.rule == "gcn" and isinstance(edge_index, Tensor) and edge_index.layout is torch.sparse_csc:
        raise UnsupportedCallError(f"the adjacency of {relation.key!r} is in CSC; convert it with .to_sparse_csr().")
    values = _weights(relation, edge_index)
    if values is not None and values.dtype != x[0].dtype:
        raise UnsupportedCallError(
            f"the adjacency of {relation.key!r} is of {values.dtype}; compiled layers take values of {x[0].dtype}."
        )


def relation_edges(relation: Relation, conv: Any, edge_index: Any, weight: Tensor | None) -> RelationEdges:
    """Returns the edges of a relation as PyG's layer reads them; ``weight`` belongs to an edge index."""
    if not is_matrix(edge_index):
        return RelationEdges(relation, sources_and_destinations(edge_index), weight)
    without = replace(relation, loops=0.0)
    if relation.attention is not None:
        if relation.loops:
            edge_index, _ = with_self_loops(edge_index, None, conv.fill_value, min(matrix_sizes(edge_index)))
        return RelationEdges(without, sources_and_destinations(edge_index), None)
    index, values = sources_and_destinations(edge_index), _weights(relation, edge_index)
    if not relation.loops:
        return RelationEdges(without, index, values)
    count = matrix_sizes(edge_index)[0]
    if not isinstance(edge_index, Tensor):  # loops of torch_sparse are replaced, those of torch added to
        others = (index[0] != index[1]).nonzero().view(-1)
        index, values = index[:, others], None if values is None else values[others]
    if values is None:
        values = torch.ones(index.size(1), dtype=conv.lin.weight.dtype, device=index.device)
    weight = torch.cat([values, values.new_full((count,), relation.loops)])
    return RelationEdges(without, torch.cat([index, loops(index, count)], dim=1), weight)


def kept_relation_edges(
    graph: HeteroGraph, relation: Relation, conv: Any, edge_index: Any, weight: Tensor | None
) -> RelationEdges:
    """Returns the result of `relation_edges`, made once for an adjacency of torch whose values need no gradient."""
    source: Any = identity(edge_index)[0]
    values = None if isinstance(edge_index, Tensor) else edge_values(edge_index)
    gradient = (edge_index if values is None else values).requires_grad and torch.is_grad_enabled()
    if not is_matrix(edge_index) or gradient or values is not None:
        return relation_edges(relation, conv, edge_index, weight)
    return kept(graph, ("relation", relation), source, lambda: relation_edges(relation, conv, edge_index, None))


def _weights(relation: Relation, edge_index: Any) -> Tensor | None:
    """Returns the values [E] of an adjacency that a layer multiplies messages with; None if it ignores them."""
    counts = isinstance(edge_index, Tensor) or relation.weighted
    return edge_values(edge_index) if counts else None

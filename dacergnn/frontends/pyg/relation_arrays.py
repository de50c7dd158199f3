"""Arrays of one program for the layers of several relations: weights by relation, by node type, by edge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dacergnn.frontends.pyg.relations import EdgeType, Relation
from dacergnn.frontends.pyg.self_loops import symmetric_norm, with_loop_weights
from dacergnn.graph import HeteroGraph
from dacergnn.graph.lifetime import lasting


class RelationLayout:
    """Holds the relations of a call and the order of their node types: destinations first, as others have no results.

    Args:
        relations: The relations that the call has edges for.
    """

    def __init__(self, relations: Sequence[Relation]) -> None:
        self.relations = relations
        self.keys = tuple([r.key for r in relations])
        self.destinations = list(dict.fromkeys([r.key[-1] for r in relations]))
        """Node types with results, in the order of the results."""
        self.node_types = list(dict.fromkeys([*self.destinations, *[r.key[0] for r in relations]]))
        self.edge_type_names = ["__".join(key) for key in self.keys]
        self._into = [self.destinations.index(r.key[-1]) for r in relations]
        self.ends = [(self.node_types.index(key[0]), self.node_types.index(key[-1])) for key in self.keys]
        """Positions of the types of sources and destinations, by relation."""
        self.rules = tuple([r.rule for r in relations])
        """Tells how the messages of each relation are weighted."""
        self.marks = [(r.key, *r.loop_form(matrix=False)) for r in relations]
        """Tells what the graph of a call depends on beside edges, if none are a matrix."""

    def share(self, graph: HeteroGraph, dtype: torch.dtype) -> Tensor | None:
        """Returns one over the number of relations into each node type, [T]; None if the number is 1 for all."""
        counts = [max(self._into.count(i), 1) for i in range(len(self.node_types))]
        return constant(graph, [1 / n for n in counts], dtype) if max(counts) > 1 else None

    def reached_from(self, node_type: str) -> list[int]:
        """Returns the positions of results that depend on a node type, even if no relation reads its features."""
        return [i for i, r in zip(self._into, self.relations, strict=True) if node_type in (r.key[0], r.key[-1])]

    def totals(self, graph: HeteroGraph, relations: Sequence[Relation], rows: Tensor) -> Tensor:
        """Returns sums [T, ...] over the relations into each node type; ``rows`` has one row for each relation."""
        numbers = [self.destinations.index(r.key[-1]) for r in relations]
        into = constant(graph, numbers, torch.int64)
        # A sum would pass one gradient tensor to all its terms; here each term has a row of its own.
        return rows.new_zeros(len(self.node_types), *rows.shape[1:]).index_add(0, into, rows)


def constant(graph: HeteroGraph, numbers: Sequence[float], dtype: torch.dtype) -> Tensor:
    """Returns numbers as a tensor on the graph's device; the graph keeps it to save copies from the host."""
    key = ("constant", tuple(numbers), dtype)
    if key not in graph.derived:
        with lasting():
            graph.derived[key] = torch.tensor(numbers, dtype=dtype, device=graph.device)
    return graph.derived[key]


def edge_weights(
    graph: HeteroGraph,
    relations: Sequence[Relation],
    x_dict: dict[str, Tensor],
    edge_index_dict: dict[EdgeType, Any],
    weights: dict[EdgeType, Tensor | None],
    dtype: torch.dtype,
) -> Tensor | None:
    """Returns weights [E] in the order of the relations, 1 for an edge without; None if no relation has weights."""
    if all(weight is None for weight in weights.values()):
        return None
    parts: list[Tensor] = []
    for relation in relations:
        edge_index, weight = edge_index_dict[relation.key], weights.get(relation.key)
        count, fill = x_dict[relation.key[0]].size(0), relation.loops if weight is not None else 1.0
        if weight is None:
            weight = torch.ones(edge_index.size(1), dtype=dtype, device=graph.device)
        if relation.loops:
            weight = with_loop_weights(graph, relation.key, edge_index, weight, fill, count)
        parts.append(weight)
    return torch.cat(parts)


def edge_coefficients(
    graph: HeteroGraph, rules: tuple[str, ...], weights: Tensor | None, dtype: torch.dtype
) -> Tensor | None:
    """Returns the factors of messages, [E] in canonical order; None if all are 1, and if all relations attend.

    Args:
        rules: How the messages of each relation are weighted.
        weights: [E] in the order of the relations.
    """
    if weights is not None:
        return _coefficients(graph, rules, graph.to_canonical(weights))
    if set(rules) == {"mean"}:
        return graph.pair_mean_weights(dtype)
    if not {"mean", "gcn"} & set(rules) and len(set(rules)) == 1:
        return None
    key = ("edge coefficients", rules, dtype)
    if key not in graph.derived:
        with lasting():
            if "gcn" in rules:
                ones = torch.ones(graph.size("E"), dtype=dtype, device=graph.device)
                graph.derived[key] = _coefficients(graph, rules, ones)
            else:
                graph.derived[key] = _shares(graph, rules, dtype)
    return graph.derived[key]


def _shares(graph: HeteroGraph, rules: Sequence[str], dtype: torch.dtype) -> Tensor:
    """Returns the factors of relations without norms, by operations that can be exported."""

    def of_edges(by_rule: dict[str, float], other: float) -> Tensor:
        values = torch.tensor([by_rule.get(rule, other) for rule in rules], dtype=dtype, device=graph.device)
        return values.index_select(0, graph.index("E", "etype"))

    shares = graph.pair_mean_weights(dtype) * of_edges({"mean": 1.0}, 0.0)
    return shares + of_edges({"mean": 0.0, "attention": 0.0}, 1.0)


def _coefficients(graph: HeteroGraph, rules: Sequence[str], weights: Tensor) -> Tensor:
    result = torch.zeros_like(weights)
    types = graph.index("E", "etype").long()
    for rule in set(rules) - {"attention"}:
        rows = _rows(graph, rules, rule)
        values = weights[rows]
        if rule == "mean":
            values = values * graph.pair_mean_weights(weights.dtype)[rows]
        elif rule == "gcn":
            values = _symmetric(graph, types[rows], rows, values)
        result = result.index_copy(0, rows, values)
    return result


def _rows(graph: HeteroGraph, rules: Sequence[str], rule: str) -> Tensor:
    """Returns the edges of the relations that follow a rule; reads their number from the device once."""
    key = ("edges by rule", tuple(rules), rule)
    if key not in graph.derived:
        with lasting():
            follows = torch.tensor([r == rule for r in rules], device=graph.device)
            graph.derived[key] = follows[graph.index("E", "etype").long()].nonzero().view(-1)
    return graph.derived[key]


def _symmetric(graph: HeteroGraph, types: Tensor, rows: Tensor, weights: Tensor) -> Tensor:
    """Divides weights by the square roots of both ends' weighted in-degrees within the edge's relation."""
    count = graph.size("ND")
    src, dst = (types * count + graph.index("E", end)[rows] for end in ("src", "dst"))
    return symmetric_norm(src, dst, graph.size("R") * count, weights)

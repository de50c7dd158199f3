"""The graph to sample: the edges of each relation, sorted by destination, and by time if they have times."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dacergnn.errors import ArrayError
from dacergnn.graph.checks import IndexRange, check_length, check_ranges
from dacergnn.graph.edge_list import split_edge_index
from dacergnn.graph.sorting import ascends, pointers, stable_order

EdgeType = tuple[str, str, str]


@dataclass(frozen=True)
class Relation:
    """Holds the E edges of one type, sorted by destination.

    Args:
        source: Number of the node type of the sources.
        destination: Number of the node type of the destinations.
        colptr: int64 [destinations + 1], the start of the edges of each destination.
        row: int64 [E], the sources.
        edge: int64 [E], the number of each edge in the user's graph; None if edges are in that order.
        time: int64 [E], in ascending order for each destination; None if time does not matter.
        weight: float64 [E]; None if all edges have the same chance.
    """

    source: int
    destination: int
    colptr: Tensor
    row: Tensor
    edge: Tensor | None
    time: Tensor | None
    weight: Tensor | None

    def numbers(self) -> tuple[int, ...]:
        """Returns addresses and node types in the form that C++ reads."""
        vectors = (self.colptr, self.row, self.edge, self.time, self.weight)
        return (*(0 if vector is None else vector.data_ptr() for vector in vectors), self.source, self.destination)


@dataclass(frozen=True)
class SampledGraph:
    """Holds node types with their numbers of nodes, and edge types with their relations; a single type is None.

    Args:
        node_time: int64 [nodes of the type], by type; types without times are left out.
    """

    node_types: Sequence[str | None]
    num_nodes: Sequence[int]
    edge_types: Sequence[EdgeType | None]
    relations: Sequence[Relation]
    node_time: Mapping[str | None, Tensor] = field(default_factory=dict[str | None, Tensor])

    def numbers(self) -> array[int]:
        """Returns the numbers that C++ reads: counts, then each relation.

        They are made for each call, since torch moves tensors to shared memory to send them to a process.
        """
        numbers = array("q", [len(self.node_types), len(self.relations), *self.num_nodes])
        for relation in self.relations:
            numbers.extend(relation.numbers())
        return numbers


@dataclass(frozen=True)
class GivenEdges:
    """Holds the E edges of one type in the user's form.

    Args:
        name: The name of the edges in errors.
        edge_index: int32 or int64 [2, E], sources and destinations.
        node_time: Times of the source nodes; None if they have none.
        edge_time: Times of the edges; None if they have none.
        weight: Weights of the edges; None if they have none.
    """

    name: str
    edge_index: object
    node_time: Tensor | None = None
    edge_time: Tensor | None = None
    weight: Tensor | None = None


def make_relation(edges: GivenEdges, source: int, destination: int, num_nodes: Sequence[int]) -> Relation:
    """Returns edges sorted by destination, and by time if they or their sources have times.

    Raises:
        ArrayError: An array has the wrong shape or dtype.
        GraphError: An edge leads from or to an unknown node.
    """
    (row, row_name), (col, col_name) = split_edge_index(edges.edge_index, edges.name)
    row, col = row.cpu().long(), col.cpu().long()
    check_length(col_name, col, len(row), "as many destinations as sources")
    check_ranges(
        IndexRange(row_name, row, num_nodes[source], "source nodes", "num_nodes"),
        IndexRange(col_name, col, num_nodes[destination], "destination nodes", "num_nodes"),
    )
    time = edges.edge_time
    if time is not None:
        check_length(f"The time of {edges.name}", time, len(row), "one for each edge")
    elif edges.node_time is not None:
        time = edges.node_time[row]
    weight = None if edges.weight is None else as_weights(edges.name, edges.weight, len(row))
    order = _order(col, num_nodes[destination], time)
    if order is not None:
        row, col = row[order], col[order]
        time = None if time is None else time[order]
        weight = None if weight is None else weight[order]
    colptr = pointers(col.contiguous(), num_nodes[destination])
    others = [None if vector is None else vector.contiguous() for vector in (order, time, weight)]
    return Relation(source, destination, colptr, row.contiguous(), *others)


def _order(col: Tensor, count: int, time: Tensor | None) -> Tensor | None:
    if time is None:
        return stable_order([(col, count)])
    if bool(ascends(col, time)):
        return None
    by_time = torch.argsort(time, stable=True)
    then = stable_order([(col[by_time], count)])
    return by_time if then is None else by_time[then]


def as_times(name: str, times: object) -> Tensor:
    """Returns times as an int64 vector; raises ArrayError if they are not times."""
    if not isinstance(times, Tensor):
        raise ArrayError(name, f"must be a torch tensor, got {type(times).__name__}")
    if times.dtype.is_floating_point or times.dtype.is_complex or times.dtype is torch.bool:
        raise ArrayError(name, f"has dtype {times.dtype}; times are integers, so convert them, e.g. with .long()")
    if times.ndim != 1:
        raise ArrayError(name, f"has shape {list(times.shape)}; it must have one dimension")
    return times.cpu().long().contiguous()


def as_weights(name: str, weights: object, length: int) -> Tensor:
    """Returns weights of edges as a float64 vector; raises ArrayError unless they are finite and not negative."""
    name = f"The weight of {name}"
    if not isinstance(weights, Tensor):
        raise ArrayError(name, f"must be a torch tensor, got {type(weights).__name__}")
    if weights.dtype.is_complex or weights.ndim != 1:
        raise ArrayError(name, f"is {weights.dtype} {list(weights.shape)}; it must be a vector of real numbers")
    check_length(name, weights, length, "one for each edge")
    weights = weights.cpu().double()
    wrong = ~(weights >= 0) | weights.isinf()
    if bool(wrong.any()):
        position = int(wrong.nonzero()[0])
        raise ArrayError(
            name, f"holds {float(weights[position])} at position {position}; weights are finite and not negative"
        )
    if not bool(weights.sum().isfinite()):
        raise ArrayError(name, "has a sum that is not finite; divide the weights by their largest")
    return weights

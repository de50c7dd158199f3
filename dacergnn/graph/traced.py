"""Edges in calls that torch.export traces: operators of torch that sort them, and what stands for their encodings.

A tracer knows the sizes of a graph, and no edge. So the numbers of nodes are sizes of tensors, and everything that
depends on the edges themselves is an operator. The edges of a graph are one tensor int32 [4, E] in canonical order:
sources, destinations, types, and the position of each edge in the user's list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dacergnn.errors import GraphError
from dacergnn.graph import native_sorting, sorting
from dacergnn.graph.canonical import canonical_edges
from dacergnn.graph.edge_list import EdgeList
from dacergnn.graph.encodings import Encodings
from dacergnn.graph.names import NumberNames
from dacergnn.graph.operator import operator
from dacergnn.graph.stored import StoredGraph
from dacergnn.graph.typed_parts import Part, canonical_parts


def tensor_of_edges(encodings: Encodings, perm: Tensor | None) -> Tensor:
    """Returns edges with these encodings, and the old position of each (None if nothing moved), as int32 [4, E].

    Raises:
        GraphError: The graph needs indices of 64 bits.
    """
    if encodings.dtype is not torch.int32:
        raise GraphError("the graph needs indices of 64 bits; exported programs take graphs with indices of 32 bits.")
    src, dst, types = (encodings.get(f"idx_E_{path}") for path in ("src", "dst", "etype"))
    perm = torch.arange(len(src), dtype=torch.int32) if perm is None else perm
    return torch.stack([src, dst, types, perm.to(src)])


@operator("edges")
def _edges(
    edge_index: Tensor, edge_type: Tensor | None, num_src: int, num_dst: int, num_types: int, bipartite: bool
) -> Tensor:
    """Sorts edges [2, E]; ids and types are checked."""
    edges, perm = canonical_edges(
        edge_index, edge_type, num_nodes=(num_src, num_dst), num_edge_types=num_types, bipartite=bipartite,
        counted_by="x",
    )  # fmt: skip
    return tensor_of_edges(Encodings(edges), perm)


@_edges.register_fake
def _(edge_index: Tensor, edge_type: Any, num_src: Any, num_dst: Any, num_types: int, bipartite: bool) -> Tensor:
    return edge_index.new_empty(4, edge_index.size(1), dtype=torch.int32)


@operator("typed_edges")
def _typed_edges(
    parts: Sequence[Tensor], numbers: Sequence[int], ends: Sequence[int], counts: Sequence[int], num_dst: int,
    num_types: int, labels: str,
) -> Tensor:  # fmt: skip
    """Sorts edges of several types, with ids local to the types of their ends.

    ``numbers`` holds the type of each part, ``ends`` two node types for each, ``counts`` the nodes of each type, and
    ``labels`` the names of the parts, separated by new lines.
    """
    names = labels.split("\n")
    described = [
        Part(edges, number, (ends[2 * i], ends[2 * i + 1]), names[i])
        for i, (edges, number) in enumerate(zip(parts, numbers, strict=True))
    ]
    edges, perm = canonical_parts(described, counts, NumberNames(num_types), NumberNames(len(counts)), num_dst)
    return tensor_of_edges(Encodings(edges), perm)


@_typed_edges.register_fake
def _(
    parts: Sequence[Tensor], numbers: Any, ends: Any, counts: Any, num_dst: Any, num_types: int, labels: str
) -> Tensor:
    return parts[0].new_empty(4, sum([part.size(1) for part in parts]), dtype=torch.int32)


@operator("node_types")
def _node_types(counts: Sequence[int], like: Tensor) -> Tensor:
    """Returns the type of each node, int32 [N], where nodes are numbered type after type."""
    numbers = torch.arange(len(counts), dtype=torch.int32)
    return numbers.repeat_interleave(torch.tensor(counts)).to(like.device)


@_node_types.register_fake
def _(counts: Sequence[int], like: Tensor) -> Tensor:
    return like.new_empty(sum(counts), dtype=torch.int32)


@operator("with_loops")
def traced_loops(edge_index: Tensor, count: int, num_src: int, num_dst: int) -> Tensor:
    """Returns the edges between different nodes, then a self loop at each of ``count`` nodes; ids are checked."""
    made = None
    if sorting.at_hand(edge_index):
        made = native_sorting.with_loops(edge_index, (num_src, num_dst), count)
    if made is None:
        canonical_edges(edge_index, None, num_nodes=(num_src, num_dst), num_edge_types=1, bipartite=True)
        loops = torch.arange(count, dtype=edge_index.dtype, device=edge_index.device).expand(2, -1)
        made = torch.cat([edge_index[:, edge_index[0] != edge_index[1]], loops], dim=1)
    return made.clone()


@traced_loops.register_fake
def _(edge_index: Tensor, count: Any, num_src: Any, num_dst: Any) -> Tensor:
    size: Any = torch.library.get_ctx().new_dynamic_size(min=0)
    return edge_index.new_empty(2, size)


class TracedEncodings(Encodings):
    """Stands for the encodings of a graph in a call that torch.export traces; sizes may be symbols.

    Args:
        edges: The rows of ``tensor``.
        tensor: [4, E] edges in canonical order.
        single: Whether each relation joins one source type with one destination type.
    """

    def __init__(self, edges: EdgeList, tensor: Tensor, *, single: bool = True) -> None:
        super().__init__(edges)
        self.tensor, self._single = tensor, single

    @property
    def numbers(self) -> list[int]:
        """Returns the sizes that operators take."""
        own = self.edges
        return [own.num_src, own.num_dst, own.num_edge_types, own.num_node_types, int(own.bipartite)]

    def weights(self, kind: str, dtype: torch.dtype) -> Tensor:
        return torch.ops.dacergnn.edge_weights(self.tensor, self.numbers, kind, dtype)

    def single_typed(self) -> bool:
        return self._single

    def check_rows(self, values: Tensor) -> None:
        fits = values.size(0) == self.size("E")
        torch._check(fits, lambda: "values must have a row for each edge")  # pyright: ignore[reportPrivateUsage]


def traced_encodings(
    tensor: Tensor,
    nodes: tuple[int, int],
    names: tuple[Sequence[str], Sequence[str]],
    types: tuple[Tensor, Tensor] | None = None,
    *,
    bipartite: bool = False,
    single: bool = True,
) -> tuple[TracedEncodings, Tensor]:
    """Returns what stands for the encodings of edges [4, E] in canonical order, and the old position of each edge.

    Args:
        nodes: Numbers of sources and destinations.
        names: Names of the edge types and of the node types.
        types: [NS] and [ND] types of the nodes; None for one type.
    """
    edge_names, node_names = names
    src_type, dst_type = (None, None) if types is None else types
    src, dst, edge_type, perm = tensor.unbind()
    edges = EdgeList(
        src, dst, edge_type, *nodes, len(edge_names), src_type, dst_type, len(node_names), bipartite, edge_names,
        node_names, in_order=True,
    )  # fmt: skip
    return TracedEncodings(edges, tensor, single=single), perm


def encodings_of(graph: StoredGraph) -> TracedEncodings | None:
    """Returns what stands for the encodings of a traced graph; None for other graphs."""
    encodings = graph.encodings
    return encodings if isinstance(encodings, TracedEncodings) else None


def traced_edges(edge_index: Any, edge_type: Any, **options: Any) -> tuple[TracedEncodings, Tensor]:
    """Returns `traced_encodings` of an edge list; the arguments are those of `HeteroGraph.of_edges`."""
    nodes, bipartite = options["num_nodes"], options.get("bipartite", False)
    nodes = nodes if isinstance(nodes, tuple) else (nodes, nodes)
    num_types = options["num_edge_types"]
    if isinstance(edge_index, tuple):
        edge_index = torch.stack(edge_index)
    tensor = torch.ops.dacergnn.edges(edge_index, edge_type, *nodes, num_types, bipartite)
    return traced_encodings(tensor, nodes, (NumberNames(num_types), NumberNames(1)), bipartite=bipartite)


def traced_parts(
    parts: Sequence[Part],
    counts: Sequence[int],
    edge_type_names: Sequence[str],
    node_type_names: Sequence[str],
    num_dst: int | None = None,
) -> tuple[TracedEncodings, Tensor]:
    """Returns `traced_encodings` of edges of several types; the arguments are those of `canonical_parts`."""
    num_src = sum(counts)
    num_dst = num_src if num_dst is None else num_dst
    numbers, ends = [part.number for part in parts], [end for part in parts for end in part.ends]
    labels = "\n".join([part.label for part in parts])
    tensor = torch.ops.dacergnn.typed_edges(
        [part.edges for part in parts], numbers, ends, counts, num_dst, len(edge_type_names), labels
    )
    types = torch.ops.dacergnn.node_types(counts, tensor)
    names = edge_type_names, node_type_names
    return traced_encodings(tensor, (num_src, num_dst), names, (types, types.narrow(0, 0, num_dst)))

"""Graphs in calls that torch.export traces: operators of torch that sort edges, and the graph of such edges.

A tracer knows the sizes of a graph, and no edge. So the numbers of nodes are sizes of tensors, and everything that
depends on the edges themselves is an operator. The edges of a graph are one tensor int32 [4, E] in canonical order:
sources, destinations, types, and the position of each edge in the user's list.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from dacergnn.errors import GraphError
from dacergnn.graph import native_sorting, sorting
from dacergnn.graph.edge_list import EdgeList
from dacergnn.graph.encodings import Encodings
from dacergnn.graph.hetero_graph import HeteroGraph
from dacergnn.graph.names import NumberNames
from dacergnn.graph.operator import operator
from dacergnn.graph.profile import TYPICAL, Profile
from dacergnn.graph.typed_parts import Part


def tensor_of_edges(graph: HeteroGraph) -> Tensor:
    """Returns the edges of a graph as one tensor, int32 [4, E].

    Raises:
        GraphError: The graph needs indices of 64 bits.
    """
    if graph.index_dtype is not torch.int32:
        raise GraphError("the graph needs indices of 64 bits; exported programs take graphs with indices of 32 bits.")
    src, dst = graph.index("E", "src"), graph.index("E", "dst")
    perm = torch.arange(len(src), dtype=torch.int32) if graph.edge_perm is None else graph.edge_perm
    return torch.stack([src, dst, graph.index("E", "etype"), perm.to(src)])


@operator("edges")
def _edges(
    edge_index: Tensor, edge_type: Tensor | None, num_src: int, num_dst: int, num_types: int, bipartite: bool
) -> Tensor:
    """Sorts edges [2, E]; ids and types are checked."""
    graph = HeteroGraph.of_edges(
        edge_index, edge_type, num_nodes=(num_src, num_dst), num_edge_types=num_types, bipartite=bipartite,
        counted_by="x",
    )  # fmt: skip
    return tensor_of_edges(graph)


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
    types = NumberNames(num_types), NumberNames(len(counts))
    return tensor_of_edges(HeteroGraph.of_parts(described, counts, *types, num_dst))


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
        HeteroGraph.of_edges(edge_index, None, num_nodes=(num_src, num_dst), num_edge_types=1, bipartite=True)
        loops = torch.arange(count, dtype=edge_index.dtype, device=edge_index.device).expand(2, -1)
        made = torch.cat([edge_index[:, edge_index[0] != edge_index[1]], loops], dim=1)
    return made.clone()


@traced_loops.register_fake
def _(edge_index: Tensor, count: Any, num_src: Any, num_dst: Any) -> Tensor:
    size: Any = torch.library.get_ctx().new_dynamic_size(min=0)
    return edge_index.new_empty(2, size)


@operator("edge_weights")
def _edge_weights(edges: Tensor, sizes: Sequence[int], kind: str, dtype: torch.dtype) -> Tensor:
    """Returns the weights [E] of `HeteroGraph` that ``kind`` names ("pair_mean", "symmetric")."""
    weights = graph_of_tensor(edges, None, None, sizes).encodings.weights(kind, dtype)
    return weights.clone()


@_edge_weights.register_fake
def _(edges: Tensor, sizes: Any, kind: str, dtype: torch.dtype) -> Tensor:
    return edges.new_empty(edges.size(1), dtype=dtype)


_GRAPHS: Any = WeakTensorKeyDictionary()
"""Graphs by the tensor of their edges, so that the next operator finds their encodings."""


def graph_of_tensor(
    edges: Tensor, src_type: Tensor | None, dst_type: Tensor | None, sizes: Sequence[int]
) -> HeteroGraph:
    """Returns the graph of sorted edges; operators that get the same tensor share it.

    Args:
        edges: int32 [4, E].
        src_type: [NS] types of sources; None for one type.
        dst_type: [ND] types of destinations; None for one type.
        sizes: Numbers of sources, destinations, edge types and node types, and whether both ends are different nodes.
    """
    num_src, num_dst, num_types, node_types, bipartite = sizes
    known: HeteroGraph | None = _GRAPHS.get(edges)
    extent = num_src, num_dst, edges.size(1), num_types, bool(bipartite)
    if known is not None and known.extent == extent and known.has_node_types == (src_type is not None):
        return known
    vectors = {"src": edges[0], "dst": edges[1], "edge_type": edges[2], "perm": edges[3]}
    vectors |= {} if src_type is None or dst_type is None else {"src_type": src_type, "dst_type": dst_type}
    none = torch.empty(0, dtype=torch.int32)
    rest = EdgeList(
        none, none, none, num_src, num_dst, num_types, None, None, node_types, bool(bipartite),
        NumberNames(num_types), NumberNames(node_types), in_order=True,
    )  # fmt: skip
    graph = HeteroGraph.of_state(vectors, (rest, None, "auto"))
    _GRAPHS[edges] = graph
    return graph


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


def traced_graph(
    tensor: Tensor,
    nodes: tuple[int, int],
    names: tuple[Sequence[str], Sequence[str]],
    types: tuple[Tensor, Tensor] | None = None,
    *,
    bipartite: bool = False,
    single: bool = True,
) -> HeteroGraph:
    """Returns the graph of edges [4, E] in canonical order.

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
    return HeteroGraph.of_encodings(TracedEncodings(edges, tensor, single=single), perm)


def encodings_of(graph: HeteroGraph) -> TracedEncodings | None:
    """Returns what stands for the encodings of a traced graph; None for other graphs."""
    encodings = graph.encodings
    return encodings if isinstance(encodings, TracedEncodings) else None


def graph_of_edges(edge_index: Any, edge_type: Any, **options: Any) -> HeteroGraph:
    """Returns the traced graph of an edge list; the arguments are those of `HeteroGraph.of_edges`."""
    nodes, bipartite = options["num_nodes"], options.get("bipartite", False)
    nodes = nodes if isinstance(nodes, tuple) else (nodes, nodes)
    num_types = options["num_edge_types"]
    if isinstance(edge_index, tuple):
        edge_index = torch.stack(edge_index)
    tensor = torch.ops.dacergnn.edges(edge_index, edge_type, *nodes, num_types, bipartite)
    return traced_graph(tensor, nodes, (NumberNames(num_types), NumberNames(1)), bipartite=bipartite)


def graph_of_parts(
    parts: Sequence[Part],
    counts: Sequence[int],
    edge_type_names: Sequence[str],
    node_type_names: Sequence[str],
    num_dst: int | None = None,
) -> HeteroGraph:
    """Returns the traced graph of edges of several types; the arguments are those of `canonical_parts`."""
    num_src = sum(counts)
    num_dst = num_src if num_dst is None else num_dst
    numbers, ends = [part.number for part in parts], [end for part in parts for end in part.ends]
    labels = "\n".join([part.label for part in parts])
    tensor = torch.ops.dacergnn.typed_edges(
        [part.edges for part in parts], numbers, ends, counts, num_dst, len(edge_type_names), labels
    )
    types = torch.ops.dacergnn.node_types(counts, tensor)
    names = edge_type_names, node_type_names
    return traced_graph(tensor, (num_src, num_dst), names, (types, types.narrow(0, 0, num_dst)))


def profile_of(graph: HeteroGraph, earlier: Iterable[Profile]) -> Profile:
    """Returns the profile of a graph; for a traced graph, that of ``earlier`` calls with graphs of its kind."""
    if encodings_of(graph) is None:
        return Profile.of(graph)
    fitting = [profile for profile in earlier if profile.single_typed == graph.single_typed]
    return fitting[-1] if fitting else replace(TYPICAL, single_typed=graph.single_typed)

"""Registers graphs as pytrees of torch, so that functions that torch.export traces can take them.

A graph consists of three tensors: its edges, and the types of sources and of destinations. Their shapes hold all sizes
that may differ between calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakTensorKeyDictionary

from dacergnn.graph.edge_tensors import graph_of_tensor
from dacergnn.graph.hetero_graph import HeteroGraph, unpickled_graph
from dacergnn.graph.names import NumberNames
from dacergnn.graph.traced import encodings_of, tensor_of_edges, traced_encodings

_LEAVES = "leaves of torch's pytrees"
_FIELDS = ("edges", "source_types", "destination_types")
"""Names of the leaves."""
_Context = tuple[bool, bool, bool, int, int, tuple[str, ...], tuple[str, ...]]
"""Says whether both ends are different nodes, whether nodes have types, and whether each relation joins one pair of
types; holds the numbers of edge types and node types, and their names, empty where these are numbers."""
_OWNERS: Any = WeakTensorKeyDictionary()
"""Graphs by their first leaf."""


def _flatten(graph: HeteroGraph) -> tuple[list[Any], _Context]:
    bipartite, typed, single = graph.bipartite, graph.has_node_types, graph.single_typed
    edge_names, node_names = _names(graph.edge_type_names), _names(graph.node_type_names)
    return _leaves(graph), (bipartite, typed, single, graph.size("R"), graph.size("T"), edge_names, node_names)


def _flatten_with_keys(graph: HeteroGraph) -> tuple[list[Any], _Context]:
    leaves, context = _flatten(graph)
    return _with_keys(leaves), context


def _with_keys(leaves: list[Any]) -> list[Any]:
    return list(zip(map(pytree.GetAttrKey, _FIELDS), leaves, strict=True))


def _names(own: Sequence[str]) -> tuple[str, ...]:
    return () if isinstance(own, NumberNames) else tuple(own)


def _leaves(graph: HeteroGraph) -> list[Any]:
    traced = encodings_of(graph)
    if traced is not None:
        return [traced.tensor, *[_types(graph, space) for space in ("NS", "ND")]]
    leaves = graph.derived.get(_LEAVES)
    if leaves is None:
        leaves = [tensor_of_edges(graph.encodings, graph.edge_perm), *[_types(graph, space) for space in ("NS", "ND")]]
        graph.derived[_LEAVES] = leaves
        _OWNERS[leaves[0]] = graph
    return leaves


def _types(graph: HeteroGraph, space: str) -> Tensor:
    """Returns the types of nodes; zeros if there is one type."""
    if graph.has_node_types:
        return graph.index(space, "ntype")
    return torch.zeros(graph.size(space), dtype=torch.int32, device=graph.device)


def _unflatten(leaves: Iterable[Any], context: _Context) -> Any:
    """Returns the graph that the leaves belong to, or a graph of other leaves."""
    edges, src_type, dst_type = leaves
    if not isinstance(edges, Tensor):  # torch's utilities keep numbers in the place of tensors
        return _Other([edges, src_type, dst_type], context)
    bipartite, typed, single, num_types, node_types, edge_names, node_names = context
    names = edge_names or NumberNames(num_types), node_names or NumberNames(node_types)
    nodes, types = (src_type.size(0), dst_type.size(0)), (src_type, dst_type) if typed else None
    if torch.compiler.is_exporting() or isinstance(edges, FakeTensor):
        return HeteroGraph.of_encodings(
            *traced_encodings(edges, nodes, names, types, bipartite=bipartite, single=single)
        )
    known: HeteroGraph | None = _OWNERS.get(edges)
    if known is not None:
        return known
    own = types or (None, None)
    return graph_of_tensor(edges, *own, [*nodes, num_types, node_types, int(bipartite)])


class _Other:
    """Stands for a graph whose leaves are no tensors."""

    def __init__(self, leaves: list[Any], context: _Context) -> None:
        self.leaves, self.context = leaves, context


def _read(context: Any) -> _Context:
    """Returns a context that JSON has turned into lists."""
    *rest, edge_names, node_names = context
    return (*rest, tuple(edge_names), tuple(node_names))  # pyright: ignore[reportReturnType]


def register() -> None:
    """Registers graphs; a second registration is an error of torch's."""
    pytree.register_pytree_node(
        HeteroGraph, _flatten, _unflatten, serialized_type_name="dacergnn.graph.HeteroGraph",
        to_dumpable_context=list, from_dumpable_context=_read, flatten_with_keys_fn=_flatten_with_keys,
    )  # fmt: skip
    pytree.register_pytree_node(
        _Other,
        lambda other: (other.leaves, other.context),
        lambda leaves, context: _Other([*leaves], context),
        flatten_with_keys_fn=lambda other: (_with_keys(other.leaves), other.context),
    )
    # torch.export.load reads the example of a call without running code of the file.
    torch.serialization.add_safe_globals([unpickled_graph])


register()

"""Reading of a DGL graph or block without an import of DGL, for the front ends of DGL layers."""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.derived_values import kept
from dacergnn.frontends.dgl.graph_classes import is_graph_class
from dacergnn.graph import HeteroGraph
from dacergnn.graph.checks import IndexRange, as_index_vector, check_ranges
from dacergnn.runtime.edge_changes import Seen


def graph_sizes(g: Any, *, bipartite: bool = False) -> tuple[int, int, int]:
    """Counts nodes at both ends and edges of `g`, of one type; UnsupportedCallError unless ND <= NS or `bipartite`."""
    _check_graph(g)
    if len(g.canonical_etypes) != 1:
        raise UnsupportedCallError(
            "g has several edge types; pass a homogeneous graph with types as tensors (dgl.to_homogeneous)."
        )
    sizes = (int(g.num_src_nodes()), int(g.num_dst_nodes()), int(g.num_edges()))
    if sizes[1] > sizes[0] and not bipartite:
        raise UnsupportedCallError(f"g has {sizes[1]} destinations but {sizes[0]} sources, so they are no prefix.")
    return sizes


def relation_sizes(g: Any) -> tuple[int, int, int]:
    """Counts sources, destinations and edges of `g`; raises UnsupportedCallError unless it has one edge type."""
    _check_graph(g)
    if len(g.canonical_etypes) != 1:
        raise UnsupportedCallError("g has several edge types; wrap layers of one type each in a HeteroGraphConv.")
    return int(g.num_src_nodes()), int(g.num_dst_nodes()), int(g.num_edges())


def _check_graph(g: object) -> None:
    """Raises UnsupportedCallError unless `g` is of DGL's own class: other graphs may keep their edges elsewhere."""
    if not is_graph_class(type(g)):
        raise UnsupportedCallError(f"the graph is a {type(g).__name__}; compiled layers take a DGLGraph or a block.")


def is_bipartite(g: Any) -> bool:
    """Returns whether sources and destinations of `g` are different nodes.

    Destinations of a block count as the first of its sources. If there are more of them, they have another type.
    """
    return (not g.is_block and g.srctypes != g.dsttypes) or g.num_dst_nodes() > g.num_src_nodes()


def encode(
    g: Any, etype: Tensor | None, num_edge_types: int, ntype: Tensor | None = None, num_node_types: int = 1,
    *, bipartite: bool = False,
) -> HeteroGraph:  # fmt: skip
    """Encodes the edges of `g` by edge id, with a type for each edge and for each source node."""
    if etype is not None:
        types = as_index_vector("etypes", etype)
        check_ranges(IndexRange("etypes", types, num_edge_types, "relations in the layer", "a layer with a number"))
    return HeteroGraph.from_arrays(
        tuple(g.edges()), etype, num_nodes=(int(g.num_src_nodes()), int(g.num_dst_nodes())),
        num_edge_types=num_edge_types, node_type=ntype, num_node_types=num_node_types, bipartite=bipartite,
    )  # fmt: skip


_ENCODED: dict[int, tuple[weakref.ref[Any], object, Seen, HeteroGraph]] = {}
"""Encoded graphs by the id of the edge data of a relation, as long as these data live."""


def encode_relation(g: Any, *, bipartite: bool = False, loops: bool = False) -> HeteroGraph:
    """Encodes the edges of `g` by edge id, all of one type; encodes a relation of the same heterograph only once.

    DGL makes a new graph of a relation whenever it is asked for it; these graphs share their edge data.

    Args:
        bipartite: Sources and destinations are different nodes, as they are where they have different types.
        loops: A self loop is added at each destination, from further sources if these are different nodes.
    """
    frame, known = g._edge_frames[0], (relation_sizes(g), bipartite or is_bipartite(g), loops)
    entry, edges = _ENCODED.get(id(frame)), g.edges(order="eid")
    if entry is None or entry[0]() is not frame or entry[1] != known or not entry[2].unwritten(edges):
        place, seen = id(frame), Seen(edges)
        graph = _encode_relation(g, edges, known[1], loops)
        entry = _ENCODED[place] = (weakref.ref(frame, lambda _: _ENCODED.pop(place, None)), known, seen, graph)
    return entry[3]


def _encode_relation(g: Any, edges: tuple[Tensor, Tensor], bipartite: bool, loops: bool) -> HeteroGraph:
    src, dst = edges
    sources, destinations = int(g.num_src_nodes()), int(g.num_dst_nodes())
    if loops:
        nodes = torch.arange(destinations, dtype=src.dtype, device=src.device)
        src, dst = torch.cat([src, nodes + sources * bipartite]), torch.cat([dst, nodes])
        sources += destinations * bipartite
    return HeteroGraph.from_arrays(
        (src, dst), None, num_nodes=(sources, destinations), num_edge_types=1, bipartite=bipartite
    )


def check_rows(name: str, value: object, rows: int, channels: int) -> None:
    """Raises UnsupportedCallError unless `value` is a floating-point tensor [rows, channels]."""
    if not isinstance(value, Tensor) or not value.is_floating_point() or value.shape != (rows, channels):
        description = f"{value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise UnsupportedCallError(f"{name} is {description}; it must be a floating-point tensor [{rows}, {channels}].")


def check_types(name: str, value: object) -> None:
    """Raises UnsupportedCallError unless `value` is a tensor of types."""
    if not isinstance(value, Tensor) or value.dim() != 1:
        raise UnsupportedCallError(f"{name} must be a tensor with one type for each row.")


def check_edge_weight(weight: object, edges: int, dtype: torch.dtype) -> None:
    """Raises UnsupportedCallError unless the weight is None, or a tensor with one value for each edge."""
    if weight is None:
        return
    if not isinstance(weight, Tensor) or weight.shape not in ((edges,), (edges, 1)) or weight.dtype != dtype:
        raise UnsupportedCallError(f"edge_weight must be a tensor [{edges}] of {dtype}.")


def coefficients(graph: HeteroGraph, key: Hashable, weight: Tensor | None, share: Tensor | None) -> Tensor | None:
    """Returns weights times shares [E] in canonical order, None for 1; without gradients, the graph keeps them.

    Args:
        key: Tells the shares apart.
        weight: [E] or [E, 1] by edge id.
        share: [E] in canonical order.
    """
    if weight is None:
        return share

    def make() -> Tensor:
        values = graph.to_canonical(weight.view(-1))
        return values if share is None else values * share

    if weight.requires_grad and torch.is_grad_enabled():
        return make()
    return kept(graph, ("weights", key), weight, make)


def check_pair(g: Any, feat: object) -> bool:
    """Returns whether ``feat`` is a pair: features of sources and of destinations, which are different nodes then.

    Raises UnsupportedCallError for one tensor where sources and destinations of the graph are different nodes.
    """
    pair = isinstance(feat, tuple)
    if not pair and is_bipartite(g):
        raise UnsupportedCallError(
            "feat is one tensor for sources and destinations that are different nodes; pass a pair of features."
        )
    return pair


def check_in_degrees(layer: Any, encoded: HeteroGraph, *args: Any) -> None:
    """Raises the error of a layer that takes no nodes without incoming edges, if the graph has such nodes."""

    def some_unreached() -> bool:
        return bool((encoded.encoding("ptr_E_dst").diff() == 0).any())

    if not layer._allow_zero_in_degree and kept(encoded, "unreached", None, some_unreached):
        layer.forward(*args)

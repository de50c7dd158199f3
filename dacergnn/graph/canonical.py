"""Sorts edges stably into the canonical order (etype, dst), and chooses the index dtype of a graph."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dacergnn.graph import native_sorting, sorting
from dacergnn.graph.edge_list import ArrayLike, EdgeIndexLike, EdgeList, all_zero, make_edge_list
from dacergnn.graph.names import NumberNames
from dacergnn.graph.sorting import INT32_LIMIT, INT64_LIMIT, reordered, sorted_rows

_OTHERS = ("node_type", "num_node_types", "edge_type_names", "node_type_names", "given_as")
"""Arguments that only `make_edge_list` checks."""


def row_counts(edges: EdgeList) -> dict[str, int]:
    """Returns the number of rows of every space except U and V, whose rows have to be counted."""
    return {
        "NS": edges.num_src,
        "ND": edges.num_dst,
        "E": edges.src.numel(),
        "R": edges.num_edge_types,
        "T": edges.num_node_types,
        "ONE": 1,
        "RNS": edges.num_edge_types * edges.num_src,
    }


def canonical_edges(
    edge_index: EdgeIndexLike, edge_type: ArrayLike | None, **options: Any
) -> tuple[EdgeList, Tensor | None]:
    """Returns what `canonical_order` returns for an edge list with these arguments of `make_edge_list`."""
    ordered = _sorted_at_once(edge_index, edge_type, options)
    return canonical_order(make_edge_list(edge_index, edge_type, **options)) if ordered is None else ordered


def _sorted_at_once(
    edge_index: object, edge_type: object, options: dict[str, Any]
) -> tuple[EdgeList, Tensor | None] | None:
    """Checks and sorts edges by one call of C++, if they are dense tensors with known numbers of nodes and types.

    Returns None for other edges, and where a check fails; `make_edge_list` raises the error then.
    """
    num_nodes: Any = options["num_nodes"]
    nodes: tuple[Any, ...] = num_nodes if type(num_nodes) is tuple and len(num_nodes) == 2 else (num_nodes, num_nodes)
    num_src, num_dst = nodes
    num_types: Any = options.get("num_edge_types")
    if edge_type is None:
        num_types = 1 if num_types in (None, 1) else None
    bipartite: Any = options.get("bipartite", False)
    known = type(num_src) is type(num_dst) is type(num_types) is int and type(bipartite) is bool
    if not known or min(num_src, num_dst) < 0 or (num_dst > num_src and not bipartite) or num_types < 1:
        return None
    if any(options.get(name) is not None for name in _OTHERS):
        return None
    count = _count_of_plain(edge_index)
    if count is None:
        return None
    pairs = num_types * max(num_src, num_dst)
    if not (edge_type is None or (type(edge_type) is Tensor and edge_type.shape == (count,))) or pairs >= INT64_LIMIT:
        return None
    dtype = torch.int32 if max(count, pairs) < INT32_LIMIT else torch.int64
    edges: Any = edge_index
    order_and_vectors = native_sorting.sorted_edges(edges, edge_type, (num_src, num_dst, num_types), dtype)
    if order_and_vectors is None:
        return None
    order, (dst, src, *types) = order_and_vectors
    ordered = EdgeList(
        src, dst, types[0] if types else all_zero(src), num_src, num_dst, num_types, None, None, 1, bipartite,
        NumberNames(num_types), NumberNames(1), in_order=True,
    )  # fmt: skip
    return ordered, order


def _count_of_plain(edge_index: object) -> int | None:
    """Returns the number of edges in a tensor [2, E] or a pair of [E]; None unless the host can read them."""
    if type(edge_index) is Tensor:
        plain = edge_index.dim() == 2 and edge_index.size(0) == 2 and sorting.at_hand(edge_index)
        return edge_index.size(1) if plain else None
    ends: Any = edge_index
    if type(ends) is not tuple or len(ends) != 2:
        return None
    plain = all(type(end) is Tensor and end.dim() == 1 and sorting.at_hand(end) for end in ends)
    return ends[0].numel() if plain and ends[0].numel() == ends[1].numel() else None


def index_dtype(edges: EdgeList) -> torch.dtype:
    """Returns the narrowest type that holds all numbers of rows."""
    widest = max(*row_counts(edges).values(), edges.num_edge_types * edges.num_dst)
    return torch.int32 if widest < INT32_LIMIT else torch.int64


def canonical_order(edges: EdgeList) -> tuple[EdgeList, Tensor | None]:
    """Returns sorted edges in the narrowest index dtype, and the old position of each (None if nothing moved)."""
    dtype = index_dtype(edges)
    keys = [(edges.dst, edges.num_dst)]
    if edges.num_edge_types > 1:
        keys.insert(0, (edges.edge_type, edges.num_edge_types))
    # Users may write to their arrays later, so a graph shares no memory with them.
    if edges.in_order:
        order, made = None, reordered([*(vector for vector, _ in keys), edges.src], None, dtype)
    else:
        order, made = sorted_rows(keys, [edges.src], dtype)
    *types, dst, src = made
    node_types = [
        None if types is None else reordered([types], None, dtype)[0] for types in (edges.src_type, edges.dst_type)
    ]
    ordered = EdgeList(
        src, dst, types[0] if types else all_zero(src), edges.num_src, edges.num_dst, edges.num_edge_types,
        node_types[0], node_types[1], edges.num_node_types, edges.bipartite, edges.edge_type_names,
        edges.node_type_names, in_order=True,
    )  # fmt: skip
    return ordered, order


def to_device(edges: EdgeList, device: torch.device | str) -> EdgeList:
    """Returns the same edges in the memory of another device."""
    return edges._replace(
        src=edges.src.to(device),
        dst=edges.dst.to(device),
        edge_type=edges.edge_type.to(device),
        src_type=None if edges.src_type is None else edges.src_type.to(device),
        dst_type=None if edges.dst_type is None else edges.dst_type.to(device),
    )


def type_ranges(types: Tensor | None, num_nodes: int, num_types: int) -> tuple[tuple[int, int], ...] | None:
    """Returns (start, stop) of the nodes of each type; None where the nodes are not contiguous by type."""
    if types is None:
        return ((0, num_nodes), *((num_nodes, num_nodes) for _ in range(num_types - 1)))
    if len(types) > 1 and not bool((types[1:] >= types[:-1]).all()):
        return None
    stops = torch.bincount(types, minlength=num_types).cumsum(0).tolist()
    return tuple(zip([0, *stops[:-1]], stops, strict=True))

"""The canonical edge order (etype, dst), in which edges that agree keep their order, and the index dtype of a graph."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from dacergnn.graph.edge_list import EdgeList, all_zero
from dacergnn.graph.sorting import INT32_LIMIT, reordered, sorted_rows


def row_counts(edges: EdgeList) -> dict[str, int]:
    """Rows of every space but U and V, which have to be counted."""
    return {
        "NS": edges.num_src,
        "ND": edges.num_dst,
        "E": edges.src.numel(),
        "R": edges.num_edge_types,
        "T": edges.num_node_types,
        "ONE": 1,
        "RNS": edges.num_edge_types * edges.num_src,
    }


def canonical_order(edges: EdgeList) -> tuple[EdgeList, Tensor | None]:
    """Edges sorted, in the narrowest index dtype, and where each was before (None if nothing moved)."""
    widest = max(*row_counts(edges).values(), edges.num_edge_types * edges.num_dst)
    dtype = torch.int32 if widest < INT32_LIMIT else torch.int64
    keys = [(edges.dst, edges.num_dst)]
    if edges.num_edge_types > 1:
        keys.insert(0, (edges.edge_type, edges.num_edge_types))
    # The user may write to arrays of theirs later, so a graph shares no memory with them.
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
    """The same edges in the memory of another device."""
    return replace(
        edges,
        src=edges.src.to(device),
        dst=edges.dst.to(device),
        edge_type=edges.edge_type.to(device),
        src_type=None if edges.src_type is None else edges.src_type.to(device),
        dst_type=None if edges.dst_type is None else edges.dst_type.to(device),
    )


def type_ranges(types: Tensor | None, num_nodes: int, num_types: int) -> tuple[tuple[int, int], ...] | None:
    """(start, stop) of the nodes of each type; None where the nodes are not contiguous by type."""
    if types is None:
        return ((0, num_nodes), *((num_nodes, num_nodes) for _ in range(num_types - 1)))
    if len(types) > 1 and not bool((types[1:] >= types[:-1]).all()):
        return None
    stops = torch.bincount(types, minlength=num_types).cumsum(0).tolist()
    return tuple(zip([0, *stops[:-1]], stops, strict=True))

"""The canonical edge order (etype, dst, src) and the index dtype of a graph."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from dacergnn.graph.edge_list import EdgeList
from dacergnn.graph.sorting import INT32_LIMIT, stable_order


def row_counts(edges: EdgeList) -> dict[str, int]:
    """Rows of every space but U and V, which have to be counted."""
    return {
        "NS": edges.num_src,
        "ND": edges.num_dst,
        "E": len(edges.src),
        "R": edges.num_edge_types,
        "T": edges.num_node_types,
        "ONE": 1,
        "RNS": edges.num_edge_types * edges.num_src,
    }


def canonical_order(edges: EdgeList) -> tuple[EdgeList, Tensor | None]:
    """Edges sorted, in the narrowest index dtype, and where each was before (None if nothing moved)."""
    widest = max(*row_counts(edges).values(), edges.num_edge_types * edges.num_dst)
    dtype = torch.int32 if widest < INT32_LIMIT else torch.int64
    keys = [(edges.edge_type, edges.num_edge_types), (edges.dst, edges.num_dst), (edges.src, edges.num_src)]
    order = None if edges.in_order else stable_order(keys, ask=False)

    def own(vector: Tensor, rows: Tensor | None) -> Tensor:
        # The user may write to arrays of theirs later, so a graph shares no memory with them.
        picked = vector if rows is None else vector.index_select(0, rows)
        return picked.to(dtype, copy=rows is None, memory_format=torch.contiguous_format)

    ordered = replace(
        edges,
        src=own(edges.src, order),
        dst=own(edges.dst, order),
        edge_type=_all_zero(edges.src, dtype) if edges.num_edge_types == 1 else own(edges.edge_type, order),
        src_type=None if edges.src_type is None else own(edges.src_type, None),
        dst_type=None if edges.dst_type is None else own(edges.dst_type, None),
        in_order=True,
    )
    return ordered, None if order is None else order.to(dtype)


def _all_zero(like: Tensor, dtype: torch.dtype) -> Tensor:
    """As many zeros, in the memory of one."""
    return like.new_zeros(1, dtype=dtype).expand(len(like))


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

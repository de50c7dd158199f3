"""What the front ends of DGL layers share: reading a DGL graph or block without importing DGL."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from dacergnn.errors import UnsupportedCallError
from dacergnn.graph import HeteroGraph


def graph_sizes(g: Any) -> tuple[int, int, int]:
    """Sources, destinations and edges of `g`; UnsupportedCallError unless it has one type and ND <= NS."""
    if len(g.canonical_etypes) != 1:
        raise UnsupportedCallError(
            "g has several edge types; pass a homogeneous graph with types as tensors (dgl.to_homogeneous)."
        )
    sizes = (int(g.num_src_nodes()), int(g.num_dst_nodes()), int(g.num_edges()))
    if sizes[1] > sizes[0]:
        raise UnsupportedCallError(f"g has {sizes[1]} destinations but {sizes[0]} sources, so they are no prefix.")
    return sizes


def encode(
    g: Any, etype: Tensor, num_edge_types: int, ntype: Tensor | None = None, num_node_types: int = 1
) -> HeteroGraph:
    """The edges of `g` by edge id, with a type for each edge and for each source node."""
    return HeteroGraph.from_arrays(
        tuple(g.edges()), etype, num_nodes=(int(g.num_src_nodes()), int(g.num_dst_nodes())),
        num_edge_types=num_edge_types, node_type=ntype, num_node_types=num_node_types,
    )  # fmt: skip


def check_rows(name: str, value: object, rows: int, channels: int) -> None:
    """UnsupportedCallError unless `value` is a floating-point tensor [rows, channels]."""
    if not isinstance(value, Tensor) or not value.is_floating_point() or value.shape != (rows, channels):
        found = f"{value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise UnsupportedCallError(f"{name} is {found}; it must be a floating-point tensor [{rows}, {channels}].")


def check_types(name: str, value: object) -> None:
    """UnsupportedCallError unless `value` is a tensor of types."""
    if not isinstance(value, Tensor) or value.dim() != 1:
        raise UnsupportedCallError(f"{name} must be a tensor with one type for each row.")

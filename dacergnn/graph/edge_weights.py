"""Computes weights of edges from the graph alone; in C++ where the edges are on the host."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from dacergnn.graph import native_sorting, sorting
from dacergnn.graph.edge_list import EdgeList

_Starts = Callable[[], Tensor]
"""Returns where the edges of each pair of a destination and a type start, and their number: ``ptr_E_dstpair``."""


def mean_weights(edges: EdgeList, starts: _Starts, dtype: torch.dtype) -> Tensor:
    """Returns [E] in canonical order: 1 / number of edges with the same destination and edge type."""
    if sorting.at_hand(edges.src):
        types = edges.edge_type if edges.num_edge_types > 1 else None
        native_weights = native_sorting.mean_weights(edges.dst, types, dtype)
        if native_weights is not None:
            return native_weights
    counts = starts().diff()
    weights = counts.to(_computed_in(dtype)).reciprocal().to(dtype)
    return weights.repeat_interleave(counts, output_size=edges.src.numel())


def _computed_in(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype is torch.float64 else torch.float32


def symmetric_weights(edges: EdgeList, starts: _Starts, dtype: torch.dtype) -> Tensor:
    """Returns [E] in canonical order: 1 / root of the product of both ends' in-degrees; 0 where one has none."""
    src, dst, nodes = edges.src, edges.dst, edges.num_src
    native_weights = native_sorting.symmetric_weights(src, dst, nodes, dtype) if sorting.at_hand(src) else None
    if native_weights is not None:
        return native_weights
    roots = _roots(edges, dtype)
    return (roots[src] * roots[dst]).to(dtype)


def degree_roots(edges: EdgeList, starts: _Starts, dtype: torch.dtype) -> Tensor:
    """Returns [NS] 1 / root of the in-degree of each node; 0 where it is 0."""
    dst, nodes = edges.dst, edges.num_src
    native_roots = native_sorting.degrees(dst, nodes, dtype, roots=True) if sorting.at_hand(dst) else None
    return _roots(edges, dtype).to(dtype) if native_roots is None else native_roots


def degrees(end: str, edges: EdgeList, starts: _Starts, dtype: torch.dtype) -> Tensor:
    """Returns the number of edges at each node of one end, "src" [NS] or "dst" [ND]."""
    nodes, count = (edges.src, edges.num_src) if end == "src" else (edges.dst, edges.num_dst)
    native_degrees = native_sorting.degrees(nodes, count, dtype) if sorting.at_hand(nodes) else None
    return sorting.occurrences(nodes, count).to(dtype) if native_degrees is None else native_degrees


def _roots(edges: EdgeList, dtype: torch.dtype) -> Tensor:
    dst = edges.dst
    degrees = torch.zeros(edges.num_src, dtype=_computed_in(dtype), device=dst.device)
    roots = degrees.index_add(0, dst, torch.ones_like(dst, dtype=degrees.dtype)).rsqrt()
    return roots.masked_fill(roots.isinf(), 0)


WEIGHTS: dict[str, Callable[[EdgeList, _Starts, torch.dtype], Tensor]] = {
    "pair_mean": mean_weights,
    "symmetric": symmetric_weights,
    "roots": degree_roots,
    "src_degree": partial(degrees, "src"),
    "dst_degree": partial(degrees, "dst"),
}
"""Functions that compute weights of edges in canonical order, or of nodes, which `HeteroGraph` returns."""

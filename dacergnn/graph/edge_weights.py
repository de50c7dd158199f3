"""Computes weights of edges from the graph alone; in C++ where the edges are on the host."""

from __future__ import annotations

from collections.abc import Callable

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
    native_roots = native_sorting.degree_roots(dst, nodes, dtype) if sorting.at_hand(dst) else None
    return _roots(edges, dtype).to(dtype) if native_roots is None else native_roots


def _roots(edges: EdgeList, dtype: torch.dtype) -> Tensor:
    dst = edges.dst
    degrees = torch.zeros(edges.num_src, dtype=_computed_in(dtype), device=dst.device)
    roots = degrees.index_add(0, dst, torch.ones_like(dst, dtype=degrees.dtype)).rsqrt()
    return roots.masked_fill(roots.isinf(), 0)


WEIGHTS: dict[str, Callable[[EdgeList, _Starts, torch.dtype], Tensor]] = {
    "pair_mean": mean_weights,
    "symmetric": symmetric_weights,
    "roots": degree_roots,
}
"""Functions that compute weights of edges in canonical order, or of nodes, which `HeteroGraph` returns."""

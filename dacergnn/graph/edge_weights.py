"""Computes weights of edges from the graph alone; in C++ where the edges are on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dacergnn.graph import native_sorting, sorting

if TYPE_CHECKING:
    from dacergnn.graph.encodings import Encodings


def mean_weights(encodings: Encodings, dtype: torch.dtype) -> Tensor:
    """Returns [E] in canonical order: 1 / number of edges with the same destination and edge type."""
    edges = encodings.edges
    if sorting.at_hand(edges.src):
        types = edges.edge_type if edges.num_edge_types > 1 else None
        native_weights = native_sorting.mean_weights(edges.dst, types, dtype)
        if native_weights is not None:
            return native_weights
    counts = encodings.get("ptr_E_dstpair").diff()
    weights = counts.to(_computed_in(dtype)).reciprocal().to(dtype)
    return weights.repeat_interleave(counts, output_size=encodings.size("E"))


def _computed_in(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype is torch.float64 else torch.float32


def symmetric_weights(encodings: Encodings, dtype: torch.dtype) -> Tensor:
    """Returns [E] in canonical order: 1 / root of the product of both ends' in-degrees; 0 where one has none."""
    src, dst, nodes = encodings.edges.src, encodings.edges.dst, encodings.edges.num_src
    native_weights = native_sorting.symmetric_weights(src, dst, nodes, dtype) if sorting.at_hand(src) else None
    if native_weights is not None:
        return native_weights
    roots = _roots(encodings, dtype)
    return (roots[src] * roots[dst]).to(dtype)


def degree_roots(encodings: Encodings, dtype: torch.dtype) -> Tensor:
    """Returns [NS] 1 / root of the in-degree of each node; 0 where it is 0."""
    dst, nodes = encodings.edges.dst, encodings.edges.num_src
    native_roots = native_sorting.degree_roots(dst, nodes, dtype) if sorting.at_hand(dst) else None
    return _roots(encodings, dtype).to(dtype) if native_roots is None else native_roots


def _roots(encodings: Encodings, dtype: torch.dtype) -> Tensor:
    dst = encodings.edges.dst
    degrees = torch.zeros(encodings.edges.num_src, dtype=_computed_in(dtype), device=dst.device)
    roots = degrees.index_add(0, dst, torch.ones_like(dst, dtype=degrees.dtype)).rsqrt()
    return roots.masked_fill(roots.isinf(), 0)


WEIGHTS: dict[str, Callable[[Encodings, torch.dtype], Tensor]] = {
    "pair_mean": mean_weights,
    "symmetric": symmetric_weights,
    "roots": degree_roots,
}
"""Functions that compute weights of edges in canonical order, or of nodes, which `HeteroGraph` returns."""

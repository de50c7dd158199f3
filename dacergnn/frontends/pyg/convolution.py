"""What the front ends of layers over the edges of one type share: edge indices and adjacencies, checks of parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.frontend import GraphKey
from dacergnn.frontends.kept import kept
from dacergnn.frontends.linear import is_linear
from dacergnn.frontends.pyg.message_passing import MessagePassingFrontend, check_edge_index, check_ids, plain
from dacergnn.graph import HeteroGraph
from dacergnn.graph.checks import check_kernels
from dacergnn.graph.from_pyg import coordinates, is_adjacency

Sizes = tuple[int, int]


def is_matrix(edge_index: object) -> bool:
    """Whether edges are given as a sparse matrix of torch, an adjacency with destinations in rows."""
    return isinstance(edge_index, Tensor) and is_adjacency(edge_index)


def edge_values(edge_index: Any) -> Tensor | None:
    """[E] values of the entries of an adjacency, None for an edge index."""
    return coordinates(edge_index)[2] if is_matrix(edge_index) else None


def ends(edge_index: Any, sizes: Sizes) -> Tensor:
    """[2, E] sources and destinations; GraphError if one is not among ``sizes``."""
    if is_matrix(edge_index):
        rows, columns, *_ = coordinates(edge_index)
        return torch.stack([columns, rows])
    edges = plain(edge_index)
    check_ids(edges, sizes)
    return edges


class ConvolutionFrontend(MessagePassingFrontend):
    """Front end of a layer over the edges of one type.

    They are given as an edge index, or as a sparse adjacency of torch, whose values are weights of its edges.
    """

    def check_linear(self, names: Sequence[str]) -> None:
        """UnsupportedLayerError unless these parts of the layer are Linear layers that a program may compute."""
        for name in names:
            part = self.module._modules[name]
            if not is_linear(part):
                remedy = "keep the Linear of the layer, without hooks, and run it once if it is lazy"
                raise self.refuse(name, type(part).__name__, remedy)

    def check_edges(self, edge_index: Any, dtype: torch.dtype) -> None:
        """UnsupportedCallError unless a program can run over these edges."""
        if not is_matrix(edge_index):
            check_edge_index(edge_index)
            return
        if torch.compiler.is_compiling():
            raise UnsupportedCallError("edge_index is a sparse adjacency; torch.compile takes dense tensors [2, E].")
        if not self.module.fuse:
            raise UnsupportedCallError("fuse is False, so that the values of the adjacency may mean nothing.")
        if edge_index.requires_grad or edge_index.dtype != dtype:
            raise UnsupportedCallError(
                f"edge_index is an adjacency of {edge_index.dtype}{' with gradient' * edge_index.requires_grad}; "
                f"compiled layers take values of {dtype} without gradient."
            )
        check_kernels("edge_index", edge_index.device)

    def known_sizes(self, edge_index: Any, size: Any) -> tuple[int | None, int | None]:
        """Numbers of sources and destinations as far as the edges, or else the argument ``size``, tell them."""
        if is_matrix(edge_index):
            return edge_index.size(1), edge_index.size(0)
        known = getattr(edge_index, "sparse_size", None)
        return known() if known is not None else ((None, None) if size is None else tuple(size))

    def sizes(self, x: Any, edge_index: Any, size: Any) -> Sizes:
        """Numbers of sources and destinations of a call; UnsupportedCallError if they contradict each other."""
        x_l, x_r = x if isinstance(x, tuple | list) else (x, x)  # pyright: ignore[reportUnknownVariableType]
        found: list[int] = []
        for rows, known in zip((x_l, x_r), self.known_sizes(edge_index, size), strict=True):
            count = rows.size(0) if isinstance(rows, Tensor) else known
            if known is not None and known != count:
                raise UnsupportedCallError(f"x has {count} rows where the edges are said to have {known} nodes.")
            found.append(found[0] if count is None else count)
        return found[0], found[1]

    def key(self, edge_index: Any, sizes: Sizes, pair: bool, loops: str = "") -> GraphKey:
        """What identifies the graph of these edges; ``pair`` if sources and destinations are different nodes."""
        return (edge_index,), ("nodes", *sizes, pair, loops)

    def graph_owner(self) -> object:
        return "edges", "one type"

    def encode(self, edges: Tensor, sizes: Sizes, pair: bool) -> HeteroGraph:
        """The graph of edges [2, E] of one type."""
        return HeteroGraph.from_arrays(edges, None, num_nodes=sizes, num_edge_types=1, bipartite=pair)

    def norm(self, graph: HeteroGraph, edge_index: Any, dtype: torch.dtype, *, mean: bool) -> Tensor | None:
        """[E] in canonical order: values of an adjacency, over the number of edges for means; None for 1."""
        share = graph.pair_mean_weights(dtype) if mean else None
        if not is_matrix(edge_index):
            return share

        def make() -> Tensor:
            values = graph.to_canonical(coordinates(edge_index)[2])  # pyright: ignore[reportArgumentType]
            return values if share is None else values * share

        return kept(graph, ("values", mean, dtype), edge_index, make)

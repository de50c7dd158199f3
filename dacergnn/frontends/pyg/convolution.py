"""The base class of front ends for layers over the edges of one type: encodes graphs, checks the sizes of calls."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.derived_values import kept
from dacergnn.frontends.frontend import GraphKey, Outputs
from dacergnn.frontends.linear import is_linear
from dacergnn.frontends.pyg.given_edges import (
    Sizes,
    check_edges,
    check_extremes,
    edge_values,
    identity,
    is_matrix,
    matrix_sizes,
    source_of_values,
    sources_and_destinations,
)
from dacergnn.frontends.pyg.message_passing import MessagePassingFrontend, check_features, check_ids, ends, is_pair
from dacergnn.graph import HeteroGraph


class Nodes(NamedTuple):
    """Describes the nodes of a call.

    Args:
        src: Number of sources.
        dst: Number of destinations.
        pair: Whether sources and destinations are different nodes.
        batch: The leading axes of features: there are so many feature matrices of the same nodes.
    """

    src: int
    dst: int
    pair: bool
    batch: tuple[int, ...]

    @property
    def copies(self) -> int:
        """Returns the number of copies of each node in the graph that a program runs over."""
        return prod(self.batch)

    def shape(self, channels: int) -> tuple[int, ...]:
        """Returns the shape of a result."""
        return (*self.batch, self.dst, channels)

    def finish(self, outputs: Outputs) -> Tensor:
        """Returns the output of a program in the shape that the layer returns."""
        rows = outputs[0]
        return rows.view(self.shape(rows.size(-1))) if self.batch else rows


def rows_of(x: Tensor) -> Tensor:
    """Returns features [N, K] as they are, and features [..., N, K] of copies of a graph as rows."""
    return x if x.dim() == 2 else x.flatten(0, -2)


def checked_edges(edge_index: Any, sizes: Sizes) -> Tensor:
    """Returns sources and destinations [2, E]; raises GraphError if an id is out of the range of ``sizes``."""
    edges = sources_and_destinations(edge_index)
    if not is_matrix(edge_index):
        check_ids(edges, sizes)
    return edges


class ConvolutionFrontend(MessagePassingFrontend):
    """Represents the front end of a layer over the edges of one type.

    A static graph, whose nodes have features [..., N, K], is run as one graph with a part for each matrix of features.
    """

    fused = False
    """Tells whether the layer may multiply with an adjacency as a whole; its values are weights then."""
    static = False
    """Tells whether calls may have features [..., N, K]."""

    def check_linear(self, names: Sequence[str]) -> None:
        """Raises UnsupportedLayerError unless these parts of the layer are Linear layers that a program may compute."""
        for name in names:
            part = getattr(self.module, name, None)  # its option may be set although the part is missing
            if not is_linear(part):
                remedy = "keep the Linear of the layer, without hooks, and run it once if it is lazy"
                raise self.refuse(name, type(part).__name__, remedy)

    def check_rows(self, name: str, x: Any, channels: int) -> Tensor:
        """Returns `x` if it is a floating-point tensor [N, channels] or, for static graphs, [..., N, channels]."""
        if self.static and isinstance(x, Tensor) and x.dim() > 2:
            if not all(x.shape[:-2]):
                raise UnsupportedCallError(f"{name} has shape {list(x.shape)}; pass features of one graph at least.")
            check_features(name, x[(0,) * (x.dim() - 2)], channels)
            return x
        return check_features(name, x, channels)

    def check_ends(self, x: Any, channels: tuple[int, int], *, own: bool = True) -> None:
        """Raises UnsupportedCallError unless the features in `x` have ``channels`` columns at both ends.

        Args:
            own: Whether features of the destinations are read; they may still be None.
        """
        pair, (x_l, x_r) = is_pair(x), ends(x)
        self.check_rows("x[0]" if pair else "x", x_l, channels[0])
        if own and x_r is not None:
            self.check_rows("x[1]" if pair else "x", x_r, channels[1])

    def check_edges(self, edge_index: Any, dtype: torch.dtype) -> None:
        """Raises UnsupportedCallError unless a program can run over these edges."""
        check_edges(edge_index, fused=self.weighs(edge_index))
        if self.fused and is_matrix(edge_index) and self.module.fuse:
            check_extremes(self.module.aggr)
        if not self.weighs(edge_index):
            return
        values = edge_values(edge_index)
        if values is not None and values.dtype != dtype:
            raise UnsupportedCallError(
                f"edge_index is an adjacency of {values.dtype}; compiled layers take values of {dtype}."
            )

    def weighs(self, edge_index: Any) -> bool:
        """Tells whether messages are multiplied with the values of an adjacency."""
        return self.fused and is_matrix(edge_index) and isinstance(edge_index, Tensor) and bool(self.module.fuse)

    def known_sizes(self, edge_index: Any, size: Any) -> tuple[int | None, int | None]:
        """Returns the numbers of sources and destinations that the edges or else ``size`` tell; None if unknown."""
        if is_matrix(edge_index):
            return matrix_sizes(edge_index)
        known = getattr(edge_index, "sparse_size", None)
        return known() if known is not None else ((None, None) if size is None else tuple(size))

    def nodes(self, x: Any, edge_index: Any, size: Any = None) -> Nodes:
        """Returns the nodes of a call; raises UnsupportedCallError if its arguments contradict each other."""
        if type(x) is Tensor is type(edge_index) and size is None and x.dim() == 2 and not is_matrix(edge_index):
            return Nodes(x.size(0), x.size(0), pair=False, batch=())
        known = self.known_sizes(edge_index, size)
        counts = [n if rows is None else rows.size(-2) for rows, n in zip(ends(x), known, strict=True)]
        if any(n not in (None, count) for n, count in zip(known, counts, strict=True)):
            raise UnsupportedCallError(f"size={known!r} differs from {tuple(counts)}, the rows of x.")
        src: Any = counts[0]
        dst = src if counts[1] is None else counts[1]
        batches = {tuple(rows.shape[:-2]) for rows in ends(x) if isinstance(rows, Tensor)}
        if len(batches) > 1:
            raise UnsupportedCallError("x[0] and x[1] have features for different numbers of graphs.")
        batch = batches.pop()
        if batch and isinstance(edge_index, Tensor) and self.weighs(edge_index):
            raise UnsupportedCallError(
                "x has the shape [..., N, K] and edge_index is a matrix, which multiplies matrices."
            )
        return Nodes(src, dst, is_pair(x), batch)

    def key(self, edge_index: Any, nodes: Nodes, loops: object = None) -> GraphKey:
        """Returns the key of the graph of these edges; ``loops`` tells which self loops are added to them."""
        return identity(edge_index), ("nodes", *nodes, loops)

    def graph_owner(self) -> object:
        return "edges", "one type"

    def encode(self, edge_index: Any, nodes: Nodes) -> HeteroGraph:
        """Encodes the graph of a call, with one copy of it for each feature matrix."""
        if nodes.batch and torch.compiler.is_exporting():
            raise UnsupportedCallError("x has the shape [..., N, K]; torch.export takes compiled layers of one graph.")
        if nodes.batch:  # ids that are too large would lead to nodes of other copies
            return self.encode_edges(checked_edges(edge_index, (nodes.src, nodes.dst)), nodes)
        return self.encode_edges(sources_and_destinations(edge_index), nodes)

    def encode_edges(self, edges: Tensor, nodes: Nodes) -> HeteroGraph:
        """Encodes the graph of edges [2, E]."""
        if nodes.batch:
            starts = torch.arange(nodes.copies, device=edges.device).view(-1, 1)
            edges = torch.stack(
                [(edges[i] + starts * count).view(-1) for i, count in enumerate((nodes.src, nodes.dst))]
            )
        sizes = nodes.src * nodes.copies, nodes.dst * nodes.copies
        return HeteroGraph.of_edges(
            edges, None, num_nodes=sizes, num_edge_types=1, bipartite=nodes.pair, counted_by="x"
        )

    def norm(
        self, graph: HeteroGraph, edge_index: Any, dtype: torch.dtype, copies: int, *, mean: bool
    ) -> Tensor | None:
        """Returns factors [E] in canonical order: adjacency values, over edge counts for means; None if all are 1."""
        share = graph.pair_mean_weights(dtype) if mean else None
        if not self.weighs(edge_index):
            return share

        def make() -> Tensor:
            values: Any = edge_values(edge_index)
            values = graph.to_canonical(values.repeat(copies) if copies > 1 else values)
            return values if share is None else values * share

        if edge_index.requires_grad and torch.is_grad_enabled():
            return make()
        return kept(graph, ("values", mean, dtype), source_of_values(edge_index), make)

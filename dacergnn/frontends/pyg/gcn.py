"""Front end for PyG's `GCNConv`."""

from __future__ import annotations

import weakref
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.convolution_programs import gcn
from dacergnn.frontends.derived_values import kept
from dacergnn.frontends.frontend import Binding, GraphKey, ProgramSource, spec
from dacergnn.frontends.parameters import Parameters
from dacergnn.frontends.pyg.convolution import ConvolutionFrontend, checked_edges, rows_of
from dacergnn.frontends.pyg.given_edges import edge_values, is_matrix, source_of_values, sources_and_destinations
from dacergnn.frontends.pyg.self_loops import loops, split_loops, symmetric_norm, with_loop_weights, with_loops
from dacergnn.graph import HeteroGraph
from dacergnn.runtime.edge_changes import Seen

_BY_DEGREES: Any = WeakTensorKeyDictionary()
"""Coefficients in caches of layers that follow from the degrees of the cached edges, as they were then."""


def _follows_from_degrees(weight: Any, dtype: torch.dtype) -> bool:
    """Tells whether nobody has written to coefficients that follow from degrees, and they are of a type."""
    if not isinstance(weight, Tensor) or weight.dtype is not dtype:
        return False
    seen: Seen | None = _BY_DEGREES.get(weight)
    return seen is not None and seen.unwritten([weight])


class _Edges(NamedTuple):
    """Describes the edges that a call sums over, their weights, and whether these must still be normalized."""

    index: Any
    weight: Tensor | None
    normalize: bool
    loops: str
    """The self loops that are added: "" for none, "remaining" at nodes without one, "all" besides existing ones,
    "fill" in place of existing ones."""

    @property
    def bare(self) -> bool:
        """Tells whether all messages have the weight 1."""
        return not self.normalize and self.weight is None and not is_matrix(self.index)

    @property
    def by_degrees(self) -> bool:
        """Tells whether weights follow from the degrees of both ends."""
        return self.normalize and self.weight is None and not is_matrix(self.index)


class GCNFrontend(ConvolutionFrontend):
    """Runs `GCNConv`; the encoded graph has the self loops, and keeps coefficients that need no gradient.

    A layer with ``cached=True`` keeps its edges and their coefficients where PyG keeps them.
    """

    handles: ClassVar[tuple[str, ...]] = ("torch_geometric.nn.conv.gcn_conv.GCNConv",)
    inlined = True
    fused = static = True

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.check_options("add")
        self.check_linear(["lin"])
        self.layer = self.module  # stays the same when `module` is exchanged for a call
        self.out_channels, self.in_channels = self.layer.lin.weight.shape
        self.has_bias: bool = self.layer.bias is not None
        self.fill = 2.0 if self.layer.improved else 1.0
        paths = [("lin", "weight"), ("bias",)]
        self._own = Parameters(self.layer, paths if self.has_bias else paths[:1])

    def edges(self, x: Any, edge_index: Any, edge_weight: Any = None) -> GraphKey:
        x = self.check_rows("x", x, self.in_channels)
        self.check_edges(edge_index, x.dtype)
        nodes = self.nodes(x, edge_index)
        if edge_weight is not None and not is_matrix(edge_index):
            self._check_weight(edge_weight, edge_index.size(1), x.dtype)
        edges = self._edges(edge_index, edge_weight, x)
        if edges.index is not edge_index:
            self.check_edges(edges.index, x.dtype)
            self.nodes(x, edges.index)
        return self.key(edges.index, nodes, edges.loops)

    def check_edges(self, edge_index: Any, dtype: torch.dtype) -> None:
        super().check_edges(edge_index, dtype)
        if not is_matrix(edge_index):
            return
        if not self.module.fuse:
            raise UnsupportedCallError("fuse is False, so that edge_weight may be meant for an adjacency, too.")
        caches = self.layer.cached or self.layer._cached_adj_t is not None
        if caches and not isinstance(edge_index, Tensor):
            raise UnsupportedCallError(
                "adjacencies are cached, and edge_index is a SparseTensor; pass it as .to_torch_sparse()."
            )
        if self.layer.normalize and isinstance(edge_index, Tensor) and edge_index.layout is torch.sparse_csc:
            raise UnsupportedCallError("edge_index has the layout torch.sparse_csc; convert it with .to_sparse_csr().")

    def weighs(self, edge_index: Any) -> bool:
        return is_matrix(edge_index)

    def result(self, x: Any, edge_index: Any, *_: Any, **__: Any) -> tuple[int, ...]:
        return self.nodes(x, edge_index).shape(self.out_channels)

    def graph(self, x: Any, edge_index: Any, edge_weight: Any = None) -> HeteroGraph:
        edges = self._edges(edge_index, edge_weight, x)
        return self.encode_edges(_joined(edges, x.size(-2)), self.nodes(x, edges.index))

    def bind(self, graph: HeteroGraph, x: Any, edge_index: Any, edge_weight: Any = None) -> Binding:
        edges = self._edges(edge_index, edge_weight, x)
        nodes = self.nodes(x, edges.index)
        # Exported programs get the weights of edges, since an operator of theirs computes these.
        by_degrees = edges.by_degrees and not torch.compiler.is_exporting()
        factors = "" if edges.bare else "nodes" if by_degrees else "edges"
        program = self.program(factors, partial(self._program, factors))
        weight, *others = self._own.read(self.module)
        tensors, made = [rows_of(x), weight], {}
        if edges.weight is not None:
            tensors.append(edges.weight)
            index, rest, dtype = weakref.ref(edges.index), edges._replace(index=None, weight=None), x.dtype

            def coefficients(weight: Tensor) -> Tensor:  # for calls with the same index, which may be freed
                return self._norm(graph, rest._replace(index=index(), weight=weight), dtype, nodes.copies)

            made["norm"] = coefficients
        elif by_degrees:
            roots = graph.degree_roots(x.dtype)
            tensors += [roots, roots]  # sources and destinations are the same nodes
        elif edges.by_degrees:
            tensors.append(graph.symmetric_weights(x.dtype))
        elif factors:
            tensors.append(self._norm(graph, edges, x.dtype, nodes.copies))
        arrays = dict(zip(program.arrays, [*tensors, *others], strict=True))
        # With cached factors that follow from degrees, the program computes its own.
        cached: Any = self.layer._cached_edge_index
        watched = [cached[1]] if by_degrees and cached is not None else []
        return Binding(program, arrays, nodes.finish, made=made, reshapes=True, watched=watched)

    def _edges(self, edge_index: Any, edge_weight: Tensor | None, x: Tensor) -> _Edges:
        layer: Any = self.layer
        if is_matrix(edge_index):
            edge_weight = None
        if not layer.normalize:
            return _Edges(edge_index, edge_weight, False, "")
        added = _added_loops(edge_index) if layer.add_self_loops else ""
        if layer._cached_edge_index is None and not layer.cached:
            return _Edges(edge_index, edge_weight, True, added)
        if layer._cached_edge_index is None:  # a filled cache counts even if ``cached`` is False now
            self._keep(_Edges(edge_index, edge_weight, True, added), x)
        cached: Any = layer._cached_edge_index
        if _follows_from_degrees(cached[1], x.dtype):
            return _Edges(cached[0], None, True, "")
        return _Edges(cached[0], cached[1], False, "")

    def _keep(self, edges: _Edges, x: Tensor) -> None:
        """Stores the edges and coefficients of all later calls in the layer's cache, in PyG's form."""
        from torch_geometric.nn.conv.gcn_conv import gcn_norm

        if torch.compiler.is_compiling():
            raise UnsupportedCallError("cached is set and nothing cached yet; call the layer once before.")
        layer: Any = self.layer
        options = (x.size(-2), layer.improved, layer.add_self_loops, layer.flow, x.dtype)
        differentiable = torch.is_grad_enabled()  # coefficients keep the gradients of the weights
        with torch.inference_mode(False), torch.set_grad_enabled(differentiable):
            layer._cached_edge_index = gcn_norm(edges.index, edges.weight, *options)
        weight: Any = layer._cached_edge_index[1]
        if edges.by_degrees and isinstance(weight, Tensor):
            _BY_DEGREES[weight] = Seen([weight])

    def _norm(self, graph: HeteroGraph, edges: _Edges, dtype: torch.dtype, copies: int) -> Tensor:
        """Returns the factors of messages, [E] in canonical order."""
        source = source_of_values(edges.index) if edges.weight is None else edges.weight
        if source is not None and source.requires_grad and torch.is_grad_enabled():
            return self._coefficients(graph, edges, dtype, copies)
        key = (GCNFrontend, edges.normalize, self.fill, edges.weight is None, dtype)
        return kept(graph, key, source, lambda: self._coefficients(graph, edges, dtype, copies))

    def _coefficients(self, graph: HeteroGraph, edges: _Edges, dtype: torch.dtype, copies: int) -> Tensor:
        total, weight = graph.size("NS"), edges.weight
        count = total // copies
        if is_matrix(edges.index):
            weight = edge_values(edges.index)
        if weight is None:
            weight = torch.ones(graph.size("E") // copies, dtype=dtype, device=graph.device)
        elif edges.loops == "fill":
            others, _, _ = split_loops(graph, "one type", edges.index)
            weight = torch.cat([weight.index_select(0, others), weight.new_full((count,), self.fill)])
        elif edges.loops == "all":
            weight = torch.cat([weight, weight.new_full((count,), self.fill)])
        elif edges.loops:
            weight = with_loop_weights(graph, "one type", edges.index, weight, self.fill, count)
        weight = graph.to_canonical(weight.repeat(copies) if copies > 1 else weight)
        if not edges.normalize:
            return weight
        return symmetric_norm(graph.index("E", "src"), graph.index("E", "dst"), total, weight)

    def _check_weight(self, weight: object, count: int, dtype: torch.dtype) -> None:
        if not isinstance(weight, Tensor) or weight.shape != (count,) or weight.dtype != dtype:
            raise UnsupportedCallError(f"edge_weight must be a tensor [{count}] of {dtype}.")

    def _program(self, factors: str) -> ProgramSource:
        """Returns the program; ``factors`` of messages are "" for none, of "edges", or of "nodes" at both ends."""
        k, m = self.in_channels, self.out_channels
        of_nodes = factors == "nodes"
        return ProgramSource.of(
            gcn, x=spec("NS", k), W=spec("ONE", m, k), norm=spec("E") if factors == "edges" else None,
            left=spec("NS") if of_nodes else None, right=spec("ND") if of_nodes else None,
            bias=spec("ONE", m) if self.has_bias else None, transposed=True, features="h",
        )  # fmt: skip


def _added_loops(edge_index: Any) -> str:
    """Returns the name in `_Edges.loops` of the self loops that PyG adds to such edges."""
    if not is_matrix(edge_index):
        return "remaining"
    return "all" if isinstance(edge_index, Tensor) else "fill"


def _joined(edges: _Edges, count: int) -> Tensor:
    """Returns the edges [2, E] with the self loops that are added to them."""
    if edges.loops == "remaining":
        return with_loops(sources_and_destinations(edges.index), count, (count, count))
    index = checked_edges(edges.index, (count, count))
    if edges.loops == "all":
        return torch.cat([index, loops(index, count)], dim=1)
    return with_loops(index, count) if edges.loops else index

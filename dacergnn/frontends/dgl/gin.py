"""Front end for DGL's `GINConv`."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import nn

from dacergnn.frontends.dgl.graphs import (
    check_edge_weight,
    check_pair,
    check_rows,
    coefficients,
    encode_relation,
    relation_sizes,
)
from dacergnn.frontends.frontend import Binding, GraphKey, Outputs
from dacergnn.frontends.gin import GINProgram
from dacergnn.frontends.linear import ResultNetwork, is_torch
from dacergnn.graph import HeteroGraph


class DGLGINFrontend(GINProgram):
    """Expresses `GINConv`, with a first Linear of `apply_func`; torch runs the rest of it, and the activation."""

    handles: ClassVar[tuple[str, ...]] = ("dgl.nn.pytorch.conv.ginconv.GINConv",)
    called: ClassVar[tuple[str, ...] | None] = ("apply_func", "activation")

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.aggr: str = self.module._aggregator_type
        self.network = ResultNetwork(module, "apply_func")

    def edges(self, graph: Any, feat: Any, edge_weight: Any = None) -> GraphKey:
        sizes, pair = relation_sizes(graph), check_pair(graph, feat)
        for i, x in enumerate(feat if pair else (feat,)):
            check_rows(f"feat[{i}]" if pair else "feat", x, sizes[i], self.check_width(feat[0] if pair else feat))
        check_edge_weight(edge_weight, sizes[2], (feat[0] if pair else feat).dtype)
        return (graph,), (*sizes, pair, False)

    def result(self, graph: Any, feat: Any, edge_weight: Any = None) -> tuple[int, ...]:
        x = feat[0] if isinstance(feat, tuple) else feat
        width = self.network.shape[0] if self.network.has_linear else x.size(1)
        # Any module may be in the network, so that only a call of it tells how wide its results are.
        return tuple(self._finish((x.new_zeros(int(graph.num_dst_nodes()), width),)).shape)

    def graph_owner(self) -> object:
        return "dgl", "one type"

    def graph(self, graph: Any, feat: Any, edge_weight: Any = None) -> HeteroGraph:
        return encode_relation(graph, bipartite=isinstance(feat, tuple))

    @property
    def repeatable(self) -> bool:
        return self.network.width(self.module, 1) is not None and is_torch(self.module.activation)

    def bind(self, encoded: HeteroGraph, graph: Any, feat: Any, edge_weight: Any = None) -> Binding:
        pair = isinstance(feat, tuple)
        x, x_own = feat if pair else (feat, None)
        share = encoded.pair_mean_weights(x.dtype) if self.aggr == "mean" else None
        norm = coefficients(encoded, ("gin", self.aggr, x.dtype), edge_weight, share)
        program = self.gin_program(x, "x_own" if pair else "x", norm is not None)
        arrays = dict(zip(program.arrays, self.gin_arrays(program, x, x_own, norm), strict=True))
        layer = self.module
        reshapes = not self.network.rest(layer)
        return Binding(program, arrays, self._finish, reshapes=reshapes, repeats=True, activation=layer.activation)

    def _finish(self, outputs: Outputs) -> Any:
        return self.network.finish(self.module, outputs[0])

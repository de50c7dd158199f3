"""Front end for DGL's `GMMConv` (MoNet)."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from torch import Tensor, nn

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.dgl.graphs import check_in_degrees, check_pair, check_rows, encode_relation, relation_sizes
from dacergnn.frontends.edge_programs import Mixture, mixture
from dacergnn.frontends.features import contiguous, is_sparse
from dacergnn.frontends.frontend import Binding, Frontend, GraphKey, ProgramSource, only, spec
from dacergnn.frontends.parameters import Parameters
from dacergnn.graph import HeteroGraph

_REDUCERS = {"sum": "add", "mean": "mean", "max": "max"}


class DGLGMMFrontend(Frontend):
    """Expresses `GMMConv`: reduces messages for each kernel, sums over kernels, and adds residual and bias."""

    handles: ClassVar[tuple[str, ...]] = ("dgl.nn.pytorch.conv.gmmconv.GMMConv",)

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        layer = self.module
        reducer = layer._reducer.__name__
        if reducer not in _REDUCERS:
            raise self.refuse("_reducer", reducer, 'make the layer with aggregator_type "sum", "mean" or "max"')
        self.in_feats: tuple[int, int] = (layer._in_src_feats, layer._in_dst_feats)
        aggr, self.out_feats = _REDUCERS[reducer], layer._out_feats
        by_kernel = aggr == "max"  # sums and means of sums are the same
        self.options = Mixture(
            self.in_feats[0], self.out_feats, layer._dim, layer._n_kernels, aggr, "sigma * sigma", "W.T", by_kernel
        )
        for part in (layer.fc, layer.res_fc):
            if part is not None and (part._forward_hooks or part._forward_pre_hooks):
                raise self.refuse("fc", "Linear with hooks", "put hooks on the layer")
        self.residual = layer.res_fc is not None
        self.own: dict[str, str] = {}
        paths: list[tuple[str, ...]] = [("mu",), ("inv_sigma",), ("fc", "weight")]
        if isinstance(layer.res_fc, nn.Linear):
            self.own["root"] = spec("ONE", self.out_feats, self.in_feats[1])
            paths.append(("res_fc", "weight"))
        if layer.bias is not None:
            self.own["bias"] = spec("ONE", self.out_feats)
            paths.append(("bias",))
        self._read = Parameters(module, paths)

    def edges(self, graph: Any, feat: Any, pseudo: Any) -> GraphKey:
        sizes, pair = relation_sizes(graph), check_pair(graph, feat)
        parts = zip(("feat[0]", "feat[1]"), feat if pair else (feat,), sizes, self.in_feats, strict=False)
        for name, part, rows, channels in parts:
            check_rows(name if pair else "feat", part, rows, channels)
        check_rows("pseudo", pseudo, sizes[2], self.options.dim)
        if is_sparse(pseudo):
            raise UnsupportedCallError("pseudo is sparse; pass pseudo.to_dense().")
        return (graph,), (*sizes, pair, False)

    def result(self, graph: Any, feat: Any, pseudo: Any) -> tuple[int, int]:
        return int(graph.num_dst_nodes()), self.out_feats

    def graph_owner(self) -> object:
        return "dgl", "one type"

    def graph(self, graph: Any, feat: Any, pseudo: Any) -> HeteroGraph:
        return encode_relation(graph, bipartite=isinstance(feat, tuple))

    def bind(self, encoded: HeteroGraph, graph: Any, feat: Any, pseudo: Any) -> Binding:
        check_in_degrees(self.module, encoded, graph, feat, pseudo)
        pair = isinstance(feat, tuple)
        with_own = pair and self.residual
        features: list[Tensor] = [contiguous(part) for part in (feat[: 1 + with_own] if pair else (feat,))]
        names = [*("x", "x_own")[: len(features)], "u", "mu", "sigma", "W", *self.own]
        arrays = dict(zip(names, [*features, pseudo.contiguous(), *self._read.read(self.module)], strict=True))
        program = self.program(with_own, partial(self._program, with_own))
        return Binding(program, arrays, only, made={"u": encoded.to_canonical}, repeats=True)

    def _program(self, with_own: bool) -> ProgramSource:
        x = {"x": spec("NS", self.in_feats[0])} | ({"x_own": spec("ND", self.in_feats[1])} if with_own else {})
        own = "n.x_own" if with_own else "n.x"
        residual = (f"linear({own}, root.T)" if "root" in self.own else own) if self.residual else ""
        return mixture(self.options, x, self.own, residual)

"""Front end for DGL's `EdgeConv`."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from torch import Tensor, nn

from dacergnn.frontends.dgl.graphs import check_in_degrees, check_pair, check_rows, encode_relation, relation_sizes
from dacergnn.frontends.edge_programs import difference_conv
from dacergnn.frontends.features import contiguous
from dacergnn.frontends.frontend import Binding, Frontend, GraphKey, ProgramSource, only, spec
from dacergnn.frontends.parameters import Parameters
from dacergnn.graph import HeteroGraph

_PATHS = {"theta": ("theta", "weight"), "phi": ("phi", "weight")}
_BIASES = {"b_theta": ("theta", "bias"), "b_phi": ("phi", "bias")}


class DGLEdgeConvFrontend(Frontend):
    """Expresses `EdgeConv`; refuses layers with batch norm, which is taken over all edges."""

    handles: ClassVar[tuple[str, ...]] = ("dgl.nn.pytorch.conv.edgeconv.EdgeConv",)

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        if self.module.batch_norm:
            raise self.refuse("batch_norm", True, "programs do not average over all edges; leave it out")
        for part in (self.module.theta, self.module.phi):
            if part._forward_hooks or part._forward_pre_hooks:
                raise self.refuse("theta", "Linear with hooks", "put hooks on the layer")
        self.out_feat, self.in_feat = self.module.theta.weight.shape
        self.biases = [name for name, path in _BIASES.items() if self.module.get_submodule(path[0]).bias is not None]
        self.names = [*_PATHS, *self.biases]
        self._read = Parameters(module, [(_PATHS | _BIASES)[name] for name in self.names])

    def edges(self, g: Any, feat: Any) -> GraphKey:
        sizes, pair = relation_sizes(g), check_pair(g, feat)
        for name, part, rows in zip(("feat[0]", "feat[1]"), feat if pair else (feat,), sizes, strict=False):
            check_rows(name if pair else "feat", part, rows, self.in_feat)
        return (g,), (*sizes, pair, False)

    def result(self, g: Any, feat: Any) -> tuple[int, int]:
        return int(g.num_dst_nodes()), self.out_feat

    def graph_owner(self) -> object:
        return "dgl", "one type"

    def graph(self, g: Any, feat: Any) -> HeteroGraph:
        return encode_relation(g, bipartite=isinstance(feat, tuple))

    def bind(self, graph: HeteroGraph, g: Any, feat: Any) -> Binding:
        check_in_degrees(self.module, graph, g, feat)
        pair = isinstance(feat, tuple)
        features: list[Tensor] = [contiguous(part) for part in (feat if pair else (feat,))]
        names = [*("x", "x_own")[: len(features)], *self.names]
        arrays = dict(zip(names, [*features, *self._read.read(self.module)], strict=True))
        return Binding(self.program(pair, partial(self._program, pair)), arrays, only, repeats=True)

    def _program(self, pair: bool) -> ProgramSource:
        x = {"x": spec("NS", self.in_feat)} | ({"x_own": spec("ND", self.in_feat)} if pair else {})
        return difference_conv(x, self.in_feat, self.out_feat, self.biases)

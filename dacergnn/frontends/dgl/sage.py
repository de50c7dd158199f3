"""Front end for DGL's `SAGEConv`."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dacergnn.frontends.convolution_programs import sage
from dacergnn.frontends.dgl.graphs import (
    check_edge_weight,
    check_pair,
    check_rows,
    coefficients,
    encode_relation,
    is_bipartite,
    relation_sizes,
)
from dacergnn.frontends.features import drops
from dacergnn.frontends.frontend import Binding, Frontend, GraphKey, Outputs, ProgramSource, only, spec
from dacergnn.frontends.linear import is_linear, is_torch
from dacergnn.graph import HeteroGraph

_ARRAYS = {"W": ("fc_neigh", "weight"), "root": ("fc_self", "weight"), "pool": ("fc_pool", "weight")}
_BIASES = {"bias": ("fc_self", "bias"), "pool_bias": ("fc_pool", "bias")}


class DGLSAGEFrontend(Frontend):
    """Expresses `SAGEConv`, after torch's dropout of features; "gcn" is a mean over edges, including self loops."""

    handles: ClassVar[tuple[str, ...]] = ("dgl.nn.pytorch.conv.sageconv.SAGEConv",)
    called: ClassVar[tuple[str, ...] | None] = ("feat_drop", "norm", "activation")

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        layer = self.module
        self.aggregator: str = layer._aggre_type
        if self.aggregator == "lstm":
            raise self.refuse("aggregator_type", "lstm", 'use "mean", "gcn" or "pool"')
        for name, part in layer.named_children():
            if name.startswith("fc_") and not is_linear(part):
                raise self.refuse(name, type(part).__name__, "keep the Linear of the layer, without hooks")
        self.widths = layer._in_src_feats, layer._in_src_feats if self.aggregator == "gcn" else layer._in_dst_feats
        self.reduce = "max" if self.aggregator == "pool" else "sum"

    def edges(self, graph: Any, feat: Any, edge_weight: Any = None) -> GraphKey:
        sizes, pair = relation_sizes(graph), check_pair(graph, feat)
        for i, x in enumerate(feat if pair else (feat,)):
            check_rows(f"feat[{i}]" if pair else "feat", x, sizes[i], self.widths[i])
        check_edge_weight(edge_weight, sizes[2], (feat[0] if pair else feat).dtype)
        return (graph,), (*sizes, pair, self.aggregator == "gcn")

    def result(self, graph: Any, *_: Any, **__: Any) -> tuple[int, int]:
        return int(graph.num_dst_nodes()), self.module._out_feats

    def graph_owner(self) -> object:
        return "dgl", "one type"

    def graph(self, graph: Any, feat: Any, edge_weight: Any = None) -> HeteroGraph:
        return encode_relation(graph, bipartite=isinstance(feat, tuple), loops=self.aggregator == "gcn")

    @property
    def repeatable(self) -> bool:
        layer = self.module
        return is_torch(layer.activation) and is_torch(layer.norm) and not self._drops

    def bind(self, encoded: HeteroGraph, graph: Any, feat: Any, edge_weight: Any = None) -> Binding:
        layer = self.module
        if self._drops:
            feat = tuple(map(layer.feat_drop, feat)) if isinstance(feat, tuple) else layer.feat_drop(feat)
        pair, looped = isinstance(feat, tuple), self.aggregator == "gcn"
        x, x_own = feat if pair else (feat, None)
        if looped and pair:  # loops begin at destinations, which are further sources
            if not (graph.is_block or is_bipartite(graph)):  # the same nodes, to which DGL assigns feat[1] last
                feat = feat[1], feat[1]
            x, x_own = torch.cat(feat), None
        parts = layer._modules
        arrays: dict[str, Tensor | None] = {"x": x, "x_own": x_own}
        for name, (part, parameter) in (_ARRAYS | _BIASES).items():
            arrays[name] = getattr(parts[part], parameter) if part in parts else None
        if looped:
            arrays["bias"] = self.parameters.get("bias")
            if edge_weight is not None:
                loops = edge_weight.new_ones(encoded.size("ND"))
                edge_weight = torch.cat([edge_weight.view(-1), loops])
        share = encoded.pair_mean_weights(x.dtype) if self.reduce == "sum" else None
        arrays["norm"] = coefficients(encoded, ("mean", self.reduce, x.dtype), edge_weight, share)
        present = {name: array for name, array in arrays.items() if array is not None}
        program = self.program(frozenset(present), partial(self._program, present))
        if layer.norm is not None:
            return Binding(program, present, self._normed, repeats=True)
        return Binding(program, present, only, reshapes=True, activation=layer.activation)

    @property
    def _drops(self) -> bool:
        return drops(self.module.feat_drop)

    def _normed(self, outputs: Outputs) -> Any:
        activation = self.module.activation
        return self.module.norm(outputs[0] if activation is None else activation(outputs[0]))

    def _program(self, arrays: dict[str, Tensor]) -> ProgramSource:
        spaces = {"x": "NS", "x_own": "ND", "norm": "E"}
        bindings: dict[str, object] = {n: spec(spaces[n], *a.shape[1:]) for n, a in arrays.items() if n in spaces}
        bindings |= {n: spec("ONE", *a.shape) for n, a in arrays.items() if n not in spaces}
        features = "pooled" if "pool" in arrays else "x"
        return ProgramSource.of(sage, **bindings, reduce=self.reduce, features=features, unit=False)

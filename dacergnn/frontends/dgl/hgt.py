"""Front end for DGL's `HGTConv`."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.dgl.graphs import check_rows, check_types, encode, graph_sizes
from dacergnn.frontends.features import contiguous, drops, is_sparse
from dacergnn.frontends.frontend import Binding, Frontend, GraphKey, Outputs, ProgramSource, spec
from dacergnn.frontends.hgt_programs import hgt_residual
from dacergnn.frontends.programs import hgt
from dacergnn.graph import HeteroGraph


class DGLHGTFrontend(Frontend):
    """Expresses `HGTConv`; torch computes the layer norm and, if dropout is active, dropout, gate and residual."""

    handles: ClassVar[tuple[str, ...]] = ("dgl.nn.pytorch.conv.hgtconv.HGTConv",)
    called: ClassVar[tuple[str, ...] | None] = ("norm", "drop")

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        layer = self.module
        self.in_size: int = layer.in_size
        self.heads: int = layer.num_heads
        self.dim: int = layer.head_size
        self.out_size = self.heads * self.dim
        self.num_ntypes: int = layer.linear_k.num_types
        self.num_etypes: int = layer.relation_att[0].num_types
        self.has_residual = self.in_size != self.out_size

    def edges(self, g: Any, x: Any, ntype: Any, etype: Any, *, presorted: bool = False) -> GraphKey:
        sizes = graph_sizes(g)
        check_rows("x", x, sizes[0], self.in_size)
        if is_sparse(x) and drops(self.module.drop):
            raise UnsupportedCallError(f"x is sparse, and dropout={self.module.drop.p} acts in training; set it to 0.")
        check_types("ntype", ntype)
        check_types("etype", etype)
        return (g, ntype, etype), sizes

    def result(self, g: Any, *_: Any, **__: Any) -> tuple[int, int]:
        return int(g.num_dst_nodes()), self.out_size

    def graph_owner(self) -> object:
        return "dgl", self.num_etypes, self.num_ntypes

    def graph(self, g: Any, x: Any, ntype: Any, etype: Any, *, presorted: bool = False) -> HeteroGraph:
        return encode(g, etype, self.num_etypes, ntype, self.num_ntypes)

    @property
    def repeatable(self) -> bool:
        return not drops(self.module.drop)

    def bind(self, graph: HeteroGraph, g: Any, x: Any, ntype: Any, etype: Any, *, presorted: bool = False) -> Binding:
        layer = self.module
        arrays: dict[str, Tensor] = {
            "W_k": layer.linear_k.W,
            "W_q": layer.linear_q.W,
            "W_v": layer.linear_v.W,
            "A": layer.linear_a.W,
            "x": contiguous(x),
            "W_att": torch.stack([typed.W for typed in layer.relation_att], dim=1),
            "W_msg": torch.stack([typed.W for typed in layer.relation_msg], dim=1),
            "pri": torch.stack(list(layer.relation_pri), dim=1),
        }
        if drops(layer.drop):
            count = graph.size("ND")
            finish = partial(self._finish_dropout, x[:count], ntype[:count])
            return Binding(self.program("dropout", partial(self._program, False)), arrays, finish)
        arrays["skip"] = layer.skip
        if self.has_residual:
            arrays["residual"] = layer.residual_w
        return Binding(self.program("gated", partial(self._program, True)), arrays, self._finish)

    def _finish(self, outputs: Outputs) -> Tensor:
        return self.module.norm(outputs[0]) if self.module.use_norm else outputs[0]

    def _finish_dropout(self, x_dst: Tensor, dst_type: Tensor, outputs: Outputs) -> Tensor:
        layer = self.module
        h = layer.drop(outputs[0])
        alpha = torch.sigmoid(layer.skip[dst_type]).unsqueeze(-1)
        own = x_dst @ layer.residual_w if self.has_residual else x_dst
        return self._finish((h * alpha + own * (1 - alpha),))

    def _program(self, gated: bool) -> ProgramSource:
        k, h, d, f = self.in_size, self.heads, self.dim, self.out_size
        arrays: dict[str, object] = {name: spec("T", k, f) for name in ("W_k", "W_q", "W_v")}
        arrays |= {"W_att": spec("R", h, d, d), "W_msg": spec("R", h, d, d), "pri": spec("R", h)}
        arrays |= {"x": spec("NS", k), "A": spec("T", f, f), "skip": spec("T") if gated else None}
        constants: dict[str, object] = {
            "heads": h,
            "dim": d,
            "width": f,
            "scale": 1.0 / float(self.module.sqrt_d),
        }
        if gated and not self.has_residual:
            return ProgramSource.of(hgt, **arrays, **constants)
        residual = spec("ONE", k, f) if gated else None
        return ProgramSource.of(hgt_residual, residual=residual, gated=gated, **arrays, **constants)

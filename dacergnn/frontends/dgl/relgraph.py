"""Front end for DGL's `RelGraphConv`."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from torch import Tensor, nn

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.dgl.graphs import check_rows, check_types, encode, graph_sizes
from dacergnn.frontends.features import contiguous, drops, first_rows
from dacergnn.frontends.frontend import Binding, Frontend, GraphKey, Outputs, ProgramSource, in_shape, spec
from dacergnn.frontends.linear import is_torch
from dacergnn.frontends.programs import rgcn
from dacergnn.frontends.rgcn_programs import rgcn_modes
from dacergnn.graph import HeteroGraph


class RelGraphFrontend(Frontend):
    """Expresses `RelGraphConv`, with bias and self loop unless there is a layer norm, which comes before them.

    Layer norm, dropout, and the activation between them are the layer's own torch operations on the program's output.
    """

    handles: ClassVar[tuple[str, ...]] = ("dgl.nn.pytorch.conv.relgraphconv.RelGraphConv",)
    called: ClassVar[tuple[str, ...] | None] = ("layer_norm_weight", "dropout", "activation")

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        typed = self.module.linear_r
        self.in_feat: int = typed.in_size
        self.out_feat: int = typed.out_size
        self.num_rels: int = typed.num_types
        self.blocks: int | None = typed.num_bases if typed.regularizer == "bdd" else None

    def edges(self, g: Any, feat: Any, etypes: Any, norm: Any = None, *, presorted: bool = False) -> GraphKey:
        sizes = graph_sizes(g)
        check_rows("feat", feat, sizes[0], self.in_feat)
        check_types("etypes", etypes)
        if norm is not None and (not isinstance(norm, Tensor) or norm.shape != (sizes[2], 1)):
            raise UnsupportedCallError(f"norm must be a tensor [{sizes[2]}, 1], one value for each edge.")
        return (g, etypes), sizes

    def result(self, g: Any, *_: Any, **__: Any) -> tuple[int, int]:
        return int(g.num_dst_nodes()), self.out_feat

    def graph_owner(self) -> object:
        return "dgl", self.num_rels

    def graph(self, g: Any, feat: Any, etypes: Any, norm: Any = None, *, presorted: bool = False) -> HeteroGraph:
        return encode(g, etypes, self.num_rels)

    @property
    def repeatable(self) -> bool:
        layer = self.module
        return is_torch(layer.activation) and not drops(layer.dropout)

    def bind(
        self, graph: HeteroGraph, g: Any, feat: Any, etypes: Any, norm: Any = None, *, presorted: bool = False
    ) -> Binding:
        layer = self.module
        arrays: dict[str, Tensor] = {"W": self._weight(), "x": contiguous(feat)}
        if norm is not None:
            arrays["norm"] = norm.contiguous()
        made = {} if norm is None else {"norm": graph.to_canonical}
        if not layer.layer_norm:
            if layer.self_loop:
                arrays["root"] = self.parameters["loop_weight"]
            if layer.bias:
                arrays["bias"] = self.parameters["h_bias"]
        has_norm = norm is not None
        program = self.program(has_norm, partial(self._program, has_norm))
        own = first_rows(feat, graph.size("ND")) if layer.layer_norm and layer.self_loop else None
        if layer.layer_norm or drops(layer.dropout):
            return Binding(program, arrays, partial(self._finish, own), made=made)
        return Binding(program, arrays, self._shaped, made=made, reshapes=True, activation=layer.activation)

    def _weight(self) -> Tensor:
        typed = self.module._modules["linear_r"]
        return typed.get_weight() if typed.regularizer == "basis" else typed.W

    def _shaped(self, outputs: Outputs) -> Tensor:
        return in_shape(outputs[0], -1, self.out_feat)

    def _finish(self, own: Tensor | None, outputs: Outputs) -> Tensor:
        layer, h = self.module, self._shaped(outputs)
        if layer.layer_norm:
            h = layer.layer_norm_weight(h)
            if layer.bias:
                h = h + layer.h_bias
            if own is not None:
                h = h + own @ layer.loop_weight
        if layer.activation:
            h = layer.activation(h)
        return layer.dropout(h)

    def _program(self, has_norm: bool) -> ProgramSource:
        layer, k, m, blocks = self.module, self.in_feat, self.out_feat, self.blocks
        inside = not layer.layer_norm
        norm = spec("E") if has_norm else None
        root = spec("ONE", k, m) if layer.self_loop and inside else None
        has_bias = layer.bias and inside
        if blocks is None:
            bias = spec("ONE", m) if has_bias else None
            return ProgramSource.of(rgcn, x=spec("NS", k), W=spec("R", k, m), norm=norm, root=root, bias=bias)
        return ProgramSource.of(
            rgcn_modes, x=spec("NS", blocks, k // blocks), W=spec("R", blocks, k // blocks, m // blocks),
            bias=spec("ONE", blocks, m // blocks) if has_bias else None, norm=norm, root=root,
            blocks=blocks, width=m // blocks, in_channels=k, reduce="sum",
        )  # fmt: skip

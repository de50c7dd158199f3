"""Front end for PyG's `RGATConv`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.attention import kept_weights
from dacergnn.frontends.features import contiguous
from dacergnn.frontends.frontend import Binding, GraphKey, Outputs, ProgramSource, in_shape, spec
from dacergnn.frontends.parameters import Attributes
from dacergnn.frontends.programs import rgat
from dacergnn.frontends.pyg.attention import WeightsFrontend
from dacergnn.frontends.pyg.given_edges import edge_features, sources_and_destinations, with_weights
from dacergnn.frontends.pyg.message_passing import check_edge_type, check_features, check_ids, check_relations
from dacergnn.frontends.rgat_programs import rgat_modes
from dacergnn.graph import HeteroGraph

_MODS = ("additive", "scaled", "f-additive", "f-scaled")


class RGATFrontend(WeightsFrontend):
    """Runs `RGATConv` by the plain program for one head and default options, and by `rgat_modes` otherwise.

    With several heads, q and k mix them. Torch draws the masks of dropout.
    """

    handles: ClassVar[tuple[str, ...]] = ("torch_geometric.nn.conv.rgat_conv.RGATConv",)

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.check_options("add")
        layer = self.module
        self.heads: int = layer.heads
        self.dim: int = layer.dim
        self.in_channels: int = layer.in_channels
        self.channels: int = layer.out_channels
        self.num_bases: int | None = layer.num_bases
        self.num_blocks: int | None = layer.num_blocks
        self.edge_dim: int | None = layer.edge_dim
        # PyG ignores unknown names of cardinality preservation.
        self.mod: str = layer.mod if layer.mod in _MODS else "none"
        self.additive: bool = layer.attention_mode == "additive-self-attention"
        self.within: bool = layer.attention_mechanism == "within-relation"
        self.has_bias: bool = layer.bias is not None
        self.rows = self.heads * self.dim
        self.concat: bool = layer.concat or self.heads == 1
        self.plain = (
            self.rows == 1 and self.additive and not self.within and self.mod == "none" and self.num_blocks is None
        )
        self._copies: dict[tuple[torch.dtype, torch.device], Tensor] = {}

    def edges(
        self, x: Any, edge_index: Any, edge_type: Any = None, edge_attr: Any = None, size: Any = None,
        return_attention_weights: Any = None,
    ) -> GraphKey:  # fmt: skip
        attention = self.asks_for_weights(return_attention_weights)
        if torch.compiler.is_compiling() and (attention or not self.repeatable):
            raise UnsupportedCallError("inside torch.compile, attention weights and their dropout are torch's.")
        check_features("x", x, self.in_channels)
        self.check_edges(edge_index, x.dtype)
        check_edge_type(edge_type)
        key, sizes = self.key(edge_index, self.nodes(x, edge_index, size))
        edge_attr = edge_features(edge_index) if edge_attr is None else edge_attr
        if edge_attr is not None:
            if self.edge_dim is None:
                raise UnsupportedCallError("edge_attr is given to a layer without edge_dim.")
            check_features("edge_attr", edge_attr.view(-1, 1) if edge_attr.dim() == 1 else edge_attr, self.edge_dim)
        return (*key, edge_type), sizes

    @property
    def repeatable(self) -> bool:
        # With a mod, PyG drops no attention weights.
        return not (self.module.training and self.module.dropout > 0 and self.mod == "none")

    def graph_owner(self) -> object:
        return "edges", self.module.num_relations

    def result(self, x: Any, *_: Any, **__: Any) -> tuple[int, int]:
        return x.size(0), (self.rows if self.concat else self.dim) * self.channels

    def graph(self, x: Any, edge_index: Any, edge_type: Any = None, *_: Any, **__: Any) -> HeteroGraph:
        edges = sources_and_destinations(edge_index)
        check_relations(edge_type, self.module.num_relations)
        check_ids(edges, (x.size(0), x.size(0)))
        return HeteroGraph.from_arrays(
            edges,
            edge_type,
            num_nodes=x.size(0),
            num_edge_types=self.module.num_relations,
        )

    def bind(
        self, graph: HeteroGraph, x: Any, edge_index: Any, edge_type: Any = None, edge_attr: Any = None,
        size: Any = None, return_attention_weights: Any = None,
    ) -> Binding:  # fmt: skip
        own, attention = self.parameters, self.asks_for_weights(return_attention_weights)
        edge_attr = edge_features(edge_index) if edge_attr is None else edge_attr
        arrays: dict[str, Tensor] = {
            "W": self._weight(own),
            "x": contiguous(x),
            "q": own["q"],
            "k": own["k"],
        }
        if self.has_bias and self.concat:
            arrays["bias"] = own["bias"]
        if self.plain and edge_attr is None and self.repeatable and not attention:
            program = self.program("plain", self._plain_program)
            return Binding(program, arrays, self._finish, reshapes=self.concat, repeats=True)
        made: dict[str, Callable[[Tensor], Tensor]] = {}
        if edge_attr is not None:
            arrays["edge_attr"] = edge_attr.contiguous()
            made["edge_attr"] = graph.to_canonical
            arrays["lin_edge"] = self.module.lin_edge.weight
            arrays["edge_key"] = own["e"]
        if self.dim > 1:
            arrays["copies"] = self._copy_matrix(x)
        if self.mod == "additive":
            arrays["w"], made["w"] = own["w"], lambda w: w.repeat(self.rows)
        elif self.mod == "scaled":
            arrays |= {name: own[name] for name in ("l1", "b1", "l2", "b2")}
            made["l2"] = made["b2"] = lambda weight: weight.repeat(1, self.rows)
        if self.mod in ("scaled", "f-scaled"):
            starts = graph.encoding("ptr_E_dst")
            arrays["degree"] = (starts[1:] - starts[:-1]).to(x.dtype)
        if not self.repeatable:
            arrays["kept"] = kept_weights(graph, self.module.dropout, (graph.size("E"), self.rows), x)
        options = edge_attr is not None, "kept" in arrays, attention
        program = self.program(options, partial(self._modes_program, *options))
        if attention:
            return Binding(program, arrays, partial(self._with_attention, graph, edge_index), made=made)
        return Binding(program, arrays, self._finish, made=made, reshapes=self.concat, repeats=True)

    def _with_attention(self, graph: HeteroGraph, edge_index: Any, outputs: Outputs) -> tuple[Any, Any]:
        return self._finish(outputs), with_weights(edge_index, graph.from_canonical(outputs[1]))

    def _finish(self, outputs: Outputs) -> Tensor:
        if self.concat:
            return in_shape(outputs[0], -1, self.rows * self.channels)
        out = in_shape(outputs[0], -1, self.heads, self.dim * self.channels).mean(dim=1)
        return out + self.parameters["bias"] if self.has_bias else out

    def _weight(self, own: Attributes) -> Tensor:
        """Returns weights [R, in, heads * channels], or [R, B, in / B, heads * channels / B] with blocks."""
        return own["weight"] if self.num_bases is None else own["att"] @ own["basis"].view(self.num_bases, -1)

    def _copy_matrix(self, x: Tensor) -> Tensor:
        """Returns [heads, channels, dim * channels]: `dim` unit matrices side by side for each head."""
        key = (x.dtype, x.device)
        known = self._copies.get(key)
        if known is None:
            unit = torch.eye(self.channels, dtype=x.dtype, device=x.device).repeat(1, self.dim)
            known = unit.expand(self.heads, -1, -1).contiguous()
            if not torch.compiler.is_compiling():  # what a tracer sees holds no numbers
                self._copies[key] = known
        return known

    def _plain_program(self) -> ProgramSource:
        k, m = self.in_channels, self.channels
        return ProgramSource.of(
            rgat, x=spec("NS", k), W=spec("R", k, m), q=spec("ONE", 1, m), k=spec("ONE", 1, m),
            bias=spec("ONE", 1, m) if self.has_bias and self.concat else None, heads=1, channels=m,
            slope=float(self.module.negative_slope),
        )  # fmt: skip

    def _modes_program(self, has_edge_attr: bool, has_dropout: bool, attention: bool) -> ProgramSource:
        k, c, rows, blocks = self.in_channels, self.channels, self.rows, self.num_blocks
        width = self.heads * c
        bindings: dict[str, object] = {
            "x": spec("NS", k) if blocks is None else spec("NS", blocks, k // blocks),
            "W": spec("R", k, width) if blocks is None else spec("R", blocks, k // blocks, width // blocks),
            "q": spec("ONE", width, rows),
            "k": spec("ONE", width, rows),
            "bias": spec("ONE", rows, c) if self.has_bias and self.concat else None,
        }
        if has_edge_attr:
            bindings["edge_attr"] = spec("E", self.edge_dim or 1)
            bindings["lin_edge"] = spec("ONE", width, self.edge_dim or 1)
            bindings["edge_key"] = spec("ONE", width, rows)
        if has_dropout:
            bindings["kept"] = spec("E", self.rows)
        if self.dim > 1:
            bindings["copies"] = spec("ONE", self.heads, c, self.dim * c)
        if self.mod == "additive":
            bindings["w"] = spec("ONE", rows, c)
        if self.mod == "scaled":
            bindings |= {"l1": spec("ONE", c), "b1": spec("ONE", c)}
            bindings |= {"l2": spec("ONE", c, rows * c), "b2": spec("ONE", rows * c)}
        if self.mod in ("scaled", "f-scaled"):
            bindings["degree"] = spec("ND")
        return ProgramSource.of(
            rgat_modes, **bindings, additive=self.additive, within_relation=self.within, mod=self.mod,
            heads=self.heads, dim=self.dim, channels=c, width=width, rows=rows,
            slope=float(self.module.negative_slope), message="part" if self.dim > 1 else "hs", with_attention=attention,
        )  # fmt: skip

"""Front ends for PyG's `GATConv` and `GATv2Conv`."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from types import FunctionType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.attention import attention_program, gat, gatv2, kept_weights
from dacergnn.frontends.features import contiguous
from dacergnn.frontends.frontend import Binding, GraphKey, Outputs, Program
from dacergnn.frontends.parameters import Parameters
from dacergnn.frontends.pyg.message_passing import (
    MessagePassingFrontend,
    channel_pair,
    check_edge_index,
    check_ends,
    check_features,
    check_ids,
    ends,
    plain,
)
from dacergnn.frontends.pyg.self_loops import split_loops, with_loops
from dacergnn.graph import HeteroGraph
from dacergnn.runtime.stacks import stacks_of

Path = tuple[str, ...]


class _AttentionFrontend(MessagePassingFrontend):
    """Averages of heads, with what is added to them, are torch's; masks of dropout are drawn by torch."""

    source: ClassVar[FunctionType]

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.check_options("add")
        layer = self.module
        self.in_channels = channel_pair(layer.in_channels)
        self.heads: int = layer.heads
        self.channels: int = layer.out_channels
        self.concat: bool = layer.concat or self.heads == 1
        self.slope = float(layer.negative_slope)
        self.edge_dim: int | None = layer.edge_dim
        paths = {n: p for n, p in self.paths().items() if p is not None}
        if not self.concat:
            paths = {n: p for n, p in paths.items() if n not in ("res", "bias")}
        self.names = list(paths)
        self._own_parameters = Parameters(layer, list(paths.values()))

    @abstractmethod
    def paths(self) -> dict[str, Path | None]:
        """Where the parameters are, by the names that they have in the program; None for those that are not there."""

    def _common_paths(self) -> dict[str, Path | None]:
        layer = self.module
        return {
            "res": None if getattr(layer, "res", None) is None else ("res", "weight"),
            "bias": None if layer.bias is None else ("bias",),
        }

    def _key(self, x: Any, edge_index: Any, edge_attr: Any, size: Any, return_attention_weights: Any) -> GraphKey:
        check_edge_index(edge_index)
        counts = check_ends(x, self.in_channels, size)
        if edge_attr is not None and self.edge_dim is not None:
            check_features("edge_attr", edge_attr.view(-1, 1) if edge_attr.dim() == 1 else edge_attr, self.edge_dim)
        if return_attention_weights is False:
            raise UnsupportedCallError("return_attention_weights is False, which versions of PyG read in two ways.")
        if torch.compiler.is_compiling() and (return_attention_weights or not self.repeatable):
            raise UnsupportedCallError("inside torch.compile, attention weights and their dropout are torch's.")
        return (edge_index,), ("nodes", *counts, isinstance(x, tuple), self.loops)

    @property
    def loops(self) -> bool:
        """Whether the layer adds self loops."""
        return self.module.add_self_loops

    @property
    def repeatable(self) -> bool:
        return not (self.module.training and self.module.dropout > 0)

    def graph_owner(self) -> object:
        return "edges", 1

    def result(self, x: Any, *_: Any, **__: Any) -> tuple[int, int]:
        return ends(x)[1].size(0), (self.heads if self.concat else 1) * self.channels

    def graph(self, x: Any, edge_index: Any, *_: Any, **__: Any) -> HeteroGraph:
        x_src, x_dst = ends(x)
        counts = (x_src.size(0), x_dst.size(0))
        edges = plain(edge_index)
        if self.loops:
            # Here, because places count in the list that the user has.
            check_ids(edges, counts)
            edges = with_loops(edges, min(counts))
        return HeteroGraph.from_arrays(edges, None, num_nodes=counts, num_edge_types=1, bipartite=isinstance(x, tuple))

    def _binding(
        self, graph: HeteroGraph, x: Any, edge_index: Any, edge_attr: Any, return_attention_weights: Any
    ) -> Binding:
        x_src, x_dst = ends(x)
        arrays = dict(zip(self.names, self._own_parameters.read(self.module), strict=True))
        arrays["x"] = contiguous(x_src)
        if isinstance(x, tuple):
            arrays["x_dst"] = contiguous(x_dst)
        if edge_attr is not None and self.edge_dim is not None:
            arrays["edge_attr"] = self._edge_attr(graph, edge_index, edge_attr, min(x_src.size(0), x_dst.size(0)))
        else:
            arrays = {n: a for n, a in arrays.items() if n not in ("W_edge", "q_edge")}
        if not self.repeatable:
            shape = (graph.size("E"), self.heads)
            arrays["kept"] = kept_weights(graph, self.module.dropout, shape, x_src)
        attention = bool(return_attention_weights)
        program = self.program((*arrays, attention), lambda: self._program(arrays, attention=attention))
        finish = partial(self._finish, None if self.concat or not self.has_res else x_dst)
        if attention:
            return Binding(program, arrays, partial(self._with_attention, graph, edge_index, finish))
        if isinstance(x, tuple) or self.edge_dim is not None or self.module.dropout > 0 or not self.concat:
            return Binding(program, arrays, finish, reshapes=self.concat)
        return Binding(program, arrays, finish, stacks_of(), [], self._again, reshapes=True)

    def _again(self, x: Tensor, *_: Any) -> list[Tensor]:
        return [contiguous(x), *self._own_parameters.read(self.module)]

    @property
    def has_res(self) -> bool:
        """Whether features are added to the result."""
        return getattr(self.module, "res", None) is not None

    def _program(self, arrays: dict[str, Tensor], *, attention: bool) -> Program:
        return attention_program(
            type(self).source, arrays, heads=self.heads, channels=self.channels, slope=self.slope,
            residual="res" in arrays, attention=attention,
        )  # fmt: skip

    def _edge_attr(self, graph: HeteroGraph, edge_index: Tensor, edge_attr: Tensor, count: int) -> Tensor:
        """[E, edge_dim] in canonical order, with rows for self loops as `fill_value` says."""
        values = edge_attr.view(-1, 1) if edge_attr.dim() == 1 else edge_attr
        if self.loops:
            from torch_geometric.utils import add_self_loops

            others, _, _ = split_loops(graph, "one type", edge_index)
            edges = plain(edge_index).index_select(1, others)
            _, filled = add_self_loops(edges, values.index_select(0, others), self.module.fill_value, count)
            assert filled is not None
            values = filled
        return graph.to_canonical(values.contiguous())

    def _finish(self, x_dst: Tensor | None, outputs: Outputs) -> Tensor:
        if self.concat:
            return outputs[0].view(-1, self.heads * self.channels)
        out = outputs[0].mean(dim=1)
        if x_dst is not None:
            out = out + self.module.res(x_dst)
        bias = self.parameters["bias"]
        return out if bias is None else out + bias

    def _with_attention(
        self, graph: HeteroGraph, edge_index: Tensor, finish: Any, outputs: Outputs
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        edges = edge_index
        if self.loops:
            rows = [graph.from_canonical(graph.index("E", end)) for end in ("src", "dst")]
            edges = torch.stack(rows).to(edge_index.dtype)
        return finish(outputs), (edges, graph.from_canonical(outputs[1]))


class GATFrontend(_AttentionFrontend):
    """Scores are sums of a number for each end and for the edge."""

    handles: ClassVar[tuple[str, ...]] = ("torch_geometric.nn.conv.gat_conv.GATConv",)
    source: ClassVar[FunctionType] = gat

    def paths(self) -> dict[str, Path | None]:
        layer = self.module
        separate = layer.lin is None
        return {
            "W": ("lin_src", "weight") if separate else ("lin", "weight"),
            "W_dst": ("lin_dst", "weight") if separate else None,
            "q": ("att_src",),
            "k": ("att_dst",),
            "W_edge": None if layer.lin_edge is None else ("lin_edge", "weight"),
            "q_edge": None if layer.lin_edge is None else ("att_edge",),
            **self._common_paths(),
        }

    def edges(
        self, x: Any, edge_index: Any, edge_attr: Any = None, size: Any = None, return_attention_weights: Any = None
    ) -> GraphKey:
        return self._key(x, edge_index, edge_attr, size, return_attention_weights)

    def bind(
        self, graph: HeteroGraph, x: Any, edge_index: Any, edge_attr: Any = None, size: Any = None,
        return_attention_weights: Any = None,
    ) -> Binding:  # fmt: skip
        return self._binding(graph, x, edge_index, edge_attr, return_attention_weights)


class GATv2Frontend(_AttentionFrontend):
    """Scores are products with features of both ends; biases of the projections are in the program."""

    handles: ClassVar[tuple[str, ...]] = ("torch_geometric.nn.conv.gatv2_conv.GATv2Conv",)
    source: ClassVar[FunctionType] = gatv2

    def paths(self) -> dict[str, Path | None]:
        layer = self.module
        separate, has_bias = not layer.share_weights, layer.lin_l.bias is not None
        return {
            "W": ("lin_l", "weight"),
            "W_bias": ("lin_l", "bias") if has_bias else None,
            "W_dst": ("lin_r", "weight") if separate else None,
            "W_dst_bias": ("lin_r", "bias") if has_bias and separate else None,
            "q": ("att",),
            "W_edge": None if layer.lin_edge is None else ("lin_edge", "weight"),
            **self._common_paths(),
        }

    def edges(self, x: Any, edge_index: Any, edge_attr: Any = None, return_attention_weights: Any = None) -> GraphKey:
        if edge_attr is not None and self.edge_dim is None:
            raise UnsupportedCallError("edge_attr is given to a layer without edge_dim.")
        return self._key(x, edge_index, edge_attr, None, return_attention_weights)

    def bind(
        self, graph: HeteroGraph, x: Any, edge_index: Any, edge_attr: Any = None, return_attention_weights: Any = None
    ) -> Binding:
        return self._binding(graph, x, edge_index, edge_attr, return_attention_weights)

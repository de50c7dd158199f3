"""Base classes of the front ends for PyG's attention layers: self loops, edge features and returned weights."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from types import FunctionType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.attention import attention_program, kept_weights
from dacergnn.frontends.features import contiguous
from dacergnn.frontends.frontend import Binding, GraphKey, Outputs, ProgramSource, in_shape
from dacergnn.frontends.parameters import Parameters
from dacergnn.frontends.pyg.convolution import ConvolutionFrontend, Nodes
from dacergnn.frontends.pyg.given_edges import (
    edge_features,
    is_matrix,
    sources_and_destinations,
    with_self_loops,
    with_weights,
)
from dacergnn.frontends.pyg.message_passing import check_features, ends, is_pair, known_channels, plain, reads_type
from dacergnn.frontends.pyg.self_loops import loops, split_loops, with_loops
from dacergnn.graph import HeteroGraph

Path = tuple[str, ...]


class WeightsFrontend(ConvolutionFrontend):
    """Represents the front end of a layer that can return the attention weights of edges."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.reads_type = reads_type(module, self.handles)

    def asks_for_weights(self, value: object) -> bool:
        """Tells whether a call with this ``return_attention_weights`` returns attention weights."""
        return isinstance(value, bool) if self.reads_type else bool(value)


class AttentionFrontend(WeightsFrontend):
    """Runs an attention layer; torch averages heads, adds residual and bias to averages, and draws dropout masks."""

    source: ClassVar[FunctionType]

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.check_options("add")
        layer = self.module
        weights = [self.paths()["W"] or (), self.paths()["W_dst"] or self.paths()["W"] or ()]
        source, destination = (attrgetter(".".join(path))(layer) for path in weights)
        self.in_channels = known_channels(layer.in_channels, source, destination)
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
        """Returns the paths of the parameters by their names in the program; None for parameters that do not exist."""

    def common_paths(self) -> dict[str, Path | None]:
        """Returns the paths of the residual's weight and of the bias, which are added to the result."""
        layer = self.module
        return {
            "res": None if getattr(layer, "res", None) is None else ("res", "weight"),
            "bias": None if layer.bias is None else ("bias",),
        }

    def key_of_call(
        self, x: Any, edge_index: Any, edge_attr: Any, size: Any = None, return_attention_weights: Any = None
    ) -> GraphKey:
        """Returns the key of a call's graph; raises UnsupportedCallError unless a program covers the call."""
        self.check_ends(x, self.in_channels)
        self.check_edges(edge_index, ends(x)[0].dtype)
        nodes = self.nodes(x, edge_index, size)
        if self.loops:
            self._check_loops(x, edge_index, edge_attr, size, nodes)
        edge_attr = edge_features(edge_index) if edge_attr is None else edge_attr
        if edge_attr is not None and self.edge_dim is not None:
            check_features("edge_attr", edge_attr.view(-1, 1) if edge_attr.dim() == 1 else edge_attr, self.edge_dim)
        attention = self.asks_for_weights(return_attention_weights)
        if torch.compiler.is_compiling() and (attention or not self.repeatable):
            raise UnsupportedCallError("inside torch.compile, attention weights and their dropout are torch's.")
        loops = "" if not self.loops else "as PyG adds them" if is_matrix(edge_index) else "remaining"
        return self.key(edge_index, nodes, (loops, self._loop_count(x, size)) if self.loops else None)

    def _check_loops(self, x: Any, edge_index: Any, edge_attr: Any, size: Any, nodes: Nodes) -> None:
        """Raises UnsupportedCallError where PyG adds no self loops, or other ones than the program has."""
        reads = edge_attr is not None or (self.edge_dim is not None and not isinstance(edge_index, Tensor))
        if is_matrix(edge_index) and reads:
            raise UnsupportedCallError("self loops are added to an adjacency, whose edges have features besides.")
        if size is not None and None in size:
            raise UnsupportedCallError(f"size={size!r} does not tell how many nodes have self loops.")
        if not is_matrix(edge_index) and self._loop_count(x, size) > min(nodes.src, nodes.dst):
            raise UnsupportedCallError(f"there are fewer than {self._loop_count(x, size)} destinations for self loops.")

    @property
    def loops(self) -> bool:
        """Tells whether the layer adds self loops."""
        return self.module.add_self_loops

    def _loop_count(self, x: Any, size: Any) -> int:
        """Returns the number of nodes that have self loops."""
        return min(size) if size is not None else min(rows.size(0) for rows in ends(x) if rows is not None)

    @property
    def repeatable(self) -> bool:
        return not (self.module.training and self.module.dropout > 0)

    def result_of_call(self, x: Any, edge_index: Any, size: Any, return_attention_weights: Any) -> tuple[int, ...]:
        """Returns the shape of the result."""
        if return_attention_weights is not None:
            raise UnsupportedCallError("return_attention_weights is given, so that there are other results besides.")
        return self.nodes(x, edge_index, size).shape((self.heads if self.concat else 1) * self.channels)

    def graph_of_call(self, x: Any, edge_index: Any, size: Any = None) -> HeteroGraph:
        """Encodes the graph of a call, with self loops."""
        nodes = self.nodes(x, edge_index, size)
        if not self.loops:
            return self.encode(edge_index, nodes)
        count = self._loop_count(x, size)
        if is_matrix(edge_index):
            edges = sources_and_destinations(self._looped(edge_index, count))
        else:
            edges = with_loops(sources_and_destinations(edge_index), count, (nodes.src, nodes.dst))
        return self.encode_edges(edges, nodes)

    def _looped(self, edge_index: Any, count: int) -> Any:
        """Returns the edges with self loops, in PyG's order."""
        return with_self_loops(edge_index, None, self.module.fill_value, count)[0]

    def _returned(self, graph: HeteroGraph, edge_index: Any, count: int) -> Any:
        """Returns the edges with self loops; reads nothing from the device for an edge index of an earlier call."""
        if type(edge_index) is not Tensor or is_matrix(edge_index):
            return self._looped(edge_index, count)
        others, _, _ = split_loops(graph, "one type", edge_index)
        return torch.cat([edge_index.index_select(1, others), loops(edge_index, count)], dim=1)

    def binding_of_call(
        self, graph: HeteroGraph, x: Any, edge_index: Any, edge_attr: Any, size: Any, return_attention_weights: Any
    ) -> Binding:
        """Returns the program and the arrays of a call."""
        pair, (x_src, x_dst) = is_pair(x), ends(x)
        arrays = dict(zip(self.names, self._own_parameters.read(self.module), strict=True))
        made: dict[str, Callable[[Tensor], Tensor]] = {}
        arrays["x"] = contiguous(x_src)
        if x_dst is None:
            arrays = {n: a for n, a in arrays.items() if n not in ("k", "W_dst", "res")}
        elif pair:
            arrays["x_dst"] = contiguous(x_dst)
        edge_attr = edge_features(edge_index) if edge_attr is None else edge_attr
        if edge_attr is not None and self.edge_dim is not None:
            count = self._loop_count(x, size)
            arrays["edge_attr"] = self._edge_attr(graph, edge_index, edge_attr, count).contiguous()
            made["edge_attr"] = graph.to_canonical
        else:
            arrays = {n: a for n, a in arrays.items() if n not in ("W_edge", "q_edge")}
        if not self.repeatable:
            shape = (graph.size("E"), self.heads)
            arrays["kept"] = kept_weights(graph, self.module.dropout, shape, x_src)
        attention = self.asks_for_weights(return_attention_weights)
        program = self.program((*arrays, attention), lambda: self._program(arrays, attention=attention))
        finish = partial(self._finish, None if self.concat or not self.has_res else x_dst)
        if attention:
            looped = self._returned(graph, edge_index, self._loop_count(x, size)) if self.loops else edge_index
            return Binding(program, arrays, partial(self._with_attention, graph, looped, finish), made=made)
        return Binding(program, arrays, finish, made=made, reshapes=self.concat, repeats=not self.has_res)

    @property
    def has_res(self) -> bool:
        """Tells whether features are added to the result."""
        return getattr(self.module, "res", None) is not None

    def _program(self, arrays: dict[str, Tensor], *, attention: bool) -> ProgramSource:
        return attention_program(
            type(self).source, arrays, heads=self.heads, channels=self.channels, slope=self.slope,
            residual="res" in arrays, attention=attention,
        )  # fmt: skip

    def _edge_attr(self, graph: HeteroGraph, edge_index: Any, edge_attr: Tensor, count: int) -> Tensor:
        """Returns edge features [E, edge_dim] in PyG's order of the edges; `fill_value` sets the rows of self loops."""
        values = edge_attr.view(-1, 1) if edge_attr.dim() == 1 else edge_attr
        if self.loops and is_matrix(edge_index):
            values = edge_features(self._looped(edge_index, count))
        elif self.loops:
            from torch_geometric.utils import add_self_loops

            others, _, _ = split_loops(graph, "one type", edge_index)
            edges = plain(edge_index).index_select(1, others)
            _, values = add_self_loops(edges, values.index_select(0, others), self.module.fill_value, count)
        assert values is not None
        return values

    def _finish(self, x_dst: Tensor | None, outputs: Outputs) -> Tensor:
        if self.concat:
            return in_shape(outputs[0], -1, self.heads * self.channels)
        out = outputs[0].mean(dim=1)
        if x_dst is not None:
            out = out + self.module.res(x_dst)
        bias = self.parameters["bias"]
        return out if bias is None else out + bias

    def _with_attention(self, graph: HeteroGraph, edge_index: Any, finish: Any, outputs: Outputs) -> tuple[Any, Any]:
        return finish(outputs), with_weights(edge_index, graph.from_canonical(outputs[1]))

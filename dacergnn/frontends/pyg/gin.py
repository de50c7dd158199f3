"""Front end for PyG's `GINConv`."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.frontend import Binding, GraphKey, Outputs
from dacergnn.frontends.gin import GINProgram
from dacergnn.frontends.linear import ResultNetwork
from dacergnn.frontends.pyg.convolution import ConvolutionFrontend, Nodes, rows_of
from dacergnn.frontends.pyg.message_passing import ends, is_pair
from dacergnn.graph import HeteroGraph


class GINFrontend(ConvolutionFrontend, GINProgram):
    """Runs the first layer of the network in the program if it is a Linear; torch runs the other layers."""

    handles: ClassVar[tuple[str, ...]] = ("torch_geometric.nn.conv.gin_conv.GINConv",)
    inlined = True
    called: ClassVar[tuple[str, ...] | None] = ("nn",)
    fused = static = True

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.aggr = self.check_options("add", "mean", "max", "min")
        self.network = ResultNetwork(module, "nn")

    def edges(self, x: Any, edge_index: Any, size: Any = None) -> GraphKey:
        if torch.compiler.is_compiling() and not self.repeatable:
            raise UnsupportedCallError("a module of nn is none of those that torch.compile can take with the layer.")
        x_l = ends(x)[0]
        width = self.check_width(x_l) if isinstance(x_l, Tensor) and x_l.dim() else 0
        self.check_ends(x, (width, width))
        self.check_edges(edge_index, x_l.dtype)
        return self.key(edge_index, self.nodes(x, edge_index, size))

    def result(self, x: Any, edge_index: Any, size: Any = None) -> tuple[int, ...]:
        width = self.network.shape[0] if self.network.has_linear else ends(x)[0].size(-1)
        out_channels = self.network.width(self.module, width)
        if out_channels is None:
            raise UnsupportedCallError("a module in the network does not tell how wide its results are.")
        return self.nodes(x, edge_index, size).shape(out_channels)

    @property
    def repeatable(self) -> bool:
        return self.network.width(self.module, 1) is not None

    def graph(self, x: Any, edge_index: Any, size: Any = None) -> HeteroGraph:
        return self.encode(edge_index, self.nodes(x, edge_index, size))

    def bind(self, graph: HeteroGraph, x: Any, edge_index: Any, size: Any = None) -> Binding:
        pair, weighted = is_pair(x), self.aggr == "mean" or self.weighs(edge_index)
        nodes = self.nodes(x, edge_index, size)
        own = "x" if not pair else "" if x[1] is None else "x_own"
        program = self.gin_program(rows_of(x[0] if pair else x), own, weighted)
        x_l, x_r = x if pair else (x, None)
        x_l, x_r = rows_of(x_l), None if x_r is None else rows_of(x_r)
        norm = self.norm(graph, edge_index, x_l.dtype, nodes.copies, mean=self.aggr == "mean")
        arrays = dict(zip(program.arrays, self.gin_arrays(program, x_l, x_r, norm), strict=True))
        reshapes = not self.network.rest(self.module)
        return Binding(program, arrays, partial(self._finish, nodes), reshapes=reshapes, repeats=True)

    def _finish(self, nodes: Nodes, outputs: Outputs) -> Any:
        return self.network.finish(self.module, nodes.finish(outputs))

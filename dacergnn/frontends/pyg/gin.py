"""Front end for PyG's `GINConv`."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.frontend import Binding, GraphKey, Outputs
from dacergnn.frontends.gin import GINProgram
from dacergnn.frontends.linear import Network
from dacergnn.frontends.pyg.convolution import ConvolutionFrontend, ends, is_matrix
from dacergnn.frontends.pyg.message_passing import check_features
from dacergnn.graph import HeteroGraph
from dacergnn.runtime.stacks import stacks_of


class GINFrontend(ConvolutionFrontend, GINProgram):
    """The first layer of the layer's network is in the program where it is a Linear, the others are run by torch."""

    handles: ClassVar[tuple[str, ...]] = ("torch_geometric.nn.conv.gin_conv.GINConv",)

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.aggr = self.check_options("add", "mean", "max", "min")
        self.network = Network(module, "nn")

    def edges(self, x: Any, edge_index: Any, size: Any = None) -> GraphKey:
        if torch.compiler.is_compiling() and not self.repeatable:
            raise UnsupportedCallError("a module of nn is none of those that torch.compile can take with the layer.")
        pair = isinstance(x, tuple | list)
        for name, value in zip(("x[0]", "x[1]"), x, strict=True) if pair else (("x", x),):
            if value is not None or name == "x[0]":
                width = self.check_width(x[0] if pair else x) if isinstance(value, Tensor) and value.dim() else 0
                check_features(name, value, width)
        self.check_edges(edge_index, (x[0] if pair else x).dtype)
        return self.key(edge_index, self.sizes(x, edge_index, size), pair)

    def result(self, x: Any, edge_index: Any, size: Any = None) -> tuple[int, int]:
        x_l = x[0] if isinstance(x, tuple | list) else x
        width = self.network.shape[0] if self.network.has_linear else x_l.size(1)
        found = self.network.width(self.module, width)
        assert found is not None
        return self.sizes(x, edge_index, size)[1], found

    @property
    def repeatable(self) -> bool:
        return self.network.width(self.module, 1) is not None

    def graph(self, x: Any, edge_index: Any, size: Any = None) -> HeteroGraph:
        sizes = self.sizes(x, edge_index, size)
        return self.encode(ends(edge_index, sizes), sizes, isinstance(x, tuple | list))

    def bind(self, graph: HeteroGraph, x: Any, edge_index: Any, size: Any = None) -> Binding:
        pair, weighted = isinstance(x, tuple | list), self.aggr == "mean" or is_matrix(edge_index)
        own = "x" if not pair else "" if x[1] is None else "x_own"
        program = self.gin_program(x[0] if pair else x, own, weighted)

        def again(x: Any, edge_index: Any, size: Any = None) -> list[Tensor]:
            x_l, x_r = x if pair else (x, None)
            norm = self.norm(graph, edge_index, x_l.dtype, mean=self.aggr == "mean")
            return self.gin_arrays(program, x_l, x_r, norm)

        arrays = dict(zip(program.arrays, again(x, edge_index), strict=True))
        return Binding(
            program, arrays, self._finish, stacks_of(), again=again, reshapes=not self.network.rest(self.module)
        )

    def _finish(self, outputs: Outputs) -> Any:
        return self.network.finish(self.module, outputs[0])

"""Front end for PyG's `SAGEConv`."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from torch import nn

from dacergnn.frontends.convolution_programs import sage
from dacergnn.frontends.frontend import Binding, GraphKey, ProgramSource, spec
from dacergnn.frontends.parameters import Parameters
from dacergnn.frontends.pyg.convolution import ConvolutionFrontend, rows_of
from dacergnn.frontends.pyg.message_passing import ends, is_pair
from dacergnn.graph import HeteroGraph


class SAGEFrontend(ConvolutionFrontend):
    """Runs `SAGEConv`; the program holds the projection of the sources, the root weight and the normalization."""

    handles: ClassVar[tuple[str, ...]] = ("torch_geometric.nn.conv.sage_conv.SAGEConv",)
    inlined = True
    fused = static = True

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.aggr = self.check_options("mean", "add", "max", "min")
        layer = self.module
        self.has_root: bool = layer.root_weight
        self.has_pool: bool = layer.project and hasattr(layer, "lin")
        lins = ["lin_l", *["lin_r"] * self.has_root, *["lin"] * self.has_pool]
        self.check_linear(lins)
        paths = {"W": ("lin_l", "weight"), "bias": ("lin_l", "bias")}
        if self.has_root:
            paths["root"] = ("lin_r", "weight")
        if self.has_pool:
            paths |= {"pool": ("lin", "weight"), "pool_bias": ("lin", "bias")}
        paths = {name: path for name, path in paths.items() if getattr(getattr(layer, path[0]), path[1]) is not None}
        self._own = Parameters(layer, list(paths.values()))
        self._names = list(paths)
        self.out_channels, self.in_channels = layer.lin_l.weight.shape
        self.own_channels: int = layer.lin_r.weight.size(1) if self.has_root else 0

    def edges(self, x: Any, edge_index: Any, size: Any = None) -> GraphKey:
        self.check_ends(x, (self.in_channels, self.own_channels), own=self.has_root)
        self.check_edges(edge_index, ends(x)[0].dtype)
        return self.key(edge_index, self.nodes(x, edge_index, size))

    def result(self, x: Any, edge_index: Any, size: Any = None) -> tuple[int, ...]:
        return self.nodes(x, edge_index, size).shape(self.out_channels)

    def graph(self, x: Any, edge_index: Any, size: Any = None) -> HeteroGraph:
        return self.encode(edge_index, self.nodes(x, edge_index, size))

    def bind(self, graph: HeteroGraph, x: Any, edge_index: Any, size: Any = None) -> Binding:
        pair, nodes = is_pair(x), self.nodes(x, edge_index, size)
        own = pair and self.has_root and x[1] is not None
        kind = own, self.has_root and (own or not pair), self.aggr == "mean" or self.weighs(edge_index)
        program = self.program(kind, partial(self._program, *kind))
        arrays = dict(zip(self._names, self._own.read(self.module), strict=True))
        arrays["x"] = rows_of(x[0] if pair else x)
        if own:
            arrays["x_own"] = rows_of(x[1])
        norm = self.norm(graph, edge_index, arrays["x"].dtype, nodes.copies, mean=self.aggr == "mean")
        if norm is not None:
            arrays["norm"] = norm
        arrays = {name: arrays[name] for name in program.arrays}
        return Binding(program, arrays, nodes.finish, reshapes=True)

    def _program(self, own: bool, root: bool, norm: bool) -> ProgramSource:
        k, m, k_own = self.in_channels, self.out_channels, self.own_channels
        reduce = self.aggr if self.aggr in ("max", "min") else "sum"
        return ProgramSource.of(
            sage, x=spec("NS", k), x_own=spec("ND", k_own) if own else None,
            pool=spec("ONE", k, k) if self.has_pool else None,
            pool_bias=spec("ONE", k) if "pool_bias" in self._names else None,
            W=spec("ONE", m, k), norm=spec("E") if norm else None,
            root=spec("ONE", m, k_own) if root else None, bias=spec("ONE", m) if "bias" in self._names else None,
            reduce=reduce, features="pooled" if self.has_pool else "x", unit=bool(self.module.normalize),
        )  # fmt: skip

"""Front end for PyG's `GMMConv` (MoNet)."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.edge_programs import AGGREGATIONS, Mixture, mixture, separate_mixture
from dacergnn.frontends.features import contiguous, is_sparse
from dacergnn.frontends.frontend import Binding, GraphKey, Program, only, spec
from dacergnn.frontends.parameters import Parameters
from dacergnn.frontends.pyg.message_passing import (
    MessagePassingFrontend,
    channel_pair,
    check_edge_index,
    check_ends,
    check_features,
    ends,
    plain,
)
from dacergnn.graph import HeteroGraph
from dacergnn.runtime.stacks import stacks_of


class GMMFrontend(MessagePassingFrontend):
    """Gaussians, sums and what is added to them are in the program."""

    handles: ClassVar[tuple[str, ...]] = ("torch_geometric.nn.conv.gmm_conv.GMMConv",)

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        aggr, layer = self.check_options(*AGGREGATIONS), self.module
        if isinstance(layer.g, UninitializedParameter):
            raise self.refuse("in_channels", -1, "run the model once before it is optimized")
        self.in_channels = channel_pair(layer.in_channels)
        precision = "1.0 / (sigma * sigma + 1e-15)"
        self.options = Mixture(self.in_channels[0], layer.out_channels, layer.dim, layer.kernel_size, aggr, precision)
        self.separate: bool = layer.separate_gaussians
        root = getattr(layer, "root", None)
        if root is not None and (root._forward_hooks or root._forward_pre_hooks):
            raise self.refuse("root", "Linear with hooks", "put hooks on the layer")
        self.own: dict[str, str] = {}
        paths: list[tuple[str, ...]] = [("mu",), ("sigma",), ("g",)]
        if root is not None:
            self.own["root"] = spec("ONE", layer.out_channels, self.in_channels[1])
            paths.append(("root", "weight"))
        if layer.bias is not None:
            self.own["bias"] = spec("ONE", layer.out_channels)
            paths.append(("bias",))
        self._read = Parameters(module, paths)

    def edges(self, x: Any, edge_index: Any, edge_attr: Any = None, size: Any = None) -> GraphKey:
        check_edge_index(edge_index)
        counts = check_ends(x, self.in_channels, size)
        check_features("edge_attr", edge_attr, self.options.dim)
        if is_sparse(edge_attr):
            raise UnsupportedCallError("edge_attr is sparse; pass edge_attr.to_dense().")
        if edge_attr.size(0) != edge_index.size(1):
            raise UnsupportedCallError(f"edge_attr has {edge_attr.size(0)} rows for {edge_index.size(1)} edges.")
        return (edge_index,), ("nodes", *counts, isinstance(x, tuple))

    def graph_owner(self) -> object:
        return "edges", 1

    def result(self, x: Any, *_: Any, **__: Any) -> tuple[int, int]:
        return ends(x)[1].size(0), self.options.out_channels

    def graph(self, x: Any, edge_index: Any, *_: Any, **__: Any) -> HeteroGraph:
        x_l, x_r = ends(x)
        return HeteroGraph.from_arrays(
            plain(edge_index),
            None,
            num_nodes=(x_l.size(0), x_r.size(0)),
            num_edge_types=1,
            bipartite=isinstance(x, tuple),
        )

    def bind(self, graph: HeteroGraph, x: Any, edge_index: Any, edge_attr: Any = None, *_: Any, **__: Any) -> Binding:
        with_own = isinstance(x, tuple) and "root" in self.own

        def again(x: Any, _: Any, edge_attr: Any) -> list[Tensor]:
            features = [contiguous(part) for part in (x[: 1 + with_own] if isinstance(x, tuple) else (x,))]
            mu, sigma, g, *own = self._read.read(self.module)
            parameters = self._by_output(mu, sigma, g) if self.separate else [mu, sigma, g]
            return [*features, graph.to_canonical(edge_attr.contiguous()), *parameters, *own]

        program = self.program(with_own, partial(self._program, with_own))
        weight = "c" if self.separate else "W"
        names = [*("x", "x_own")[: 1 + with_own], "u", "mu", "sigma", weight, *self.own]
        arrays = dict(zip(names, again(x, edge_index, edge_attr), strict=True))
        return Binding(program, arrays, only, stacks_of(), again=again, reshapes=True)

    def _by_output(self, mu: Tensor, sigma: Tensor, g: Tensor) -> list[Tensor]:
        """Parameters of separate Gaussians, (in, out, kernel, ...), as rows in the order that the program has."""
        o = self.options
        rows = [t.transpose(0, 1).reshape(-1, o.dim) for t in (mu, sigma)]
        return [*rows, g.view(o.in_channels, o.out_channels, o.kernels).transpose(0, 1).reshape(-1)]

    def _program(self, with_own: bool) -> Program:
        x = {"x": spec("NS", self.in_channels[0])} | ({"x_own": spec("ND", self.in_channels[1])} if with_own else {})
        residual = f"linear(n.{'x_own' if with_own else 'x'}, root.T)" if "root" in self.own else ""
        make = separate_mixture if self.separate else mixture
        return make(self.options, x, self.own, residual)

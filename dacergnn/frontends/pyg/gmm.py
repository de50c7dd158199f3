"""Front end for PyG's `GMMConv` (MoNet)."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.edge_programs import AGGREGATIONS, Mixture, mixture, separate_mixture
from dacergnn.frontends.features import contiguous, is_sparse
from dacergnn.frontends.frontend import Binding, GraphKey, ProgramSource, only, spec
from dacergnn.frontends.parameters import Parameters
from dacergnn.frontends.pyg.convolution import ConvolutionFrontend
from dacergnn.frontends.pyg.given_edges import edge_count, edge_features
from dacergnn.frontends.pyg.message_passing import check_features, ends, is_pair, known_channels
from dacergnn.graph import HeteroGraph


class GMMFrontend(ConvolutionFrontend):
    """Runs `GMMConv`; the program holds Gaussians, sums, root weight and bias."""

    handles: ClassVar[tuple[str, ...]] = ("torch_geometric.nn.conv.gmm_conv.GMMConv",)

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        aggr, layer = self.check_options(*AGGREGATIONS), self.module
        if isinstance(layer.g, UninitializedParameter):
            raise self.refuse("in_channels", -1, "run the model once before it is optimized")
        root = getattr(layer, "root", None)
        rows = layer.g.T
        self.in_channels = known_channels(layer.in_channels, rows, rows if root is None else root.weight)
        precision = "1.0 / (sigma * sigma + 1e-15)"
        self.options = Mixture(self.in_channels[0], layer.out_channels, layer.dim, layer.kernel_size, aggr, precision)
        self.separate: bool = layer.separate_gaussians
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
        self.check_ends(x, self.in_channels)
        self.check_edges(edge_index, ends(x)[0].dtype)
        edge_attr = edge_features(edge_index) if edge_attr is None else edge_attr
        check_features("edge_attr", edge_attr, self.options.dim)
        if is_sparse(edge_attr):
            raise UnsupportedCallError("edge_attr is sparse; pass edge_attr.to_dense().")
        if edge_attr.size(0) != edge_count(edge_index):
            raise UnsupportedCallError(f"edge_attr has {edge_attr.size(0)} rows for {edge_count(edge_index)} edges.")
        return self.key(edge_index, self.nodes(x, edge_index, size))

    def result(self, x: Any, edge_index: Any, edge_attr: Any = None, size: Any = None) -> tuple[int, ...]:
        return self.nodes(x, edge_index, size).shape(self.options.out_channels)

    def graph(self, x: Any, edge_index: Any, edge_attr: Any = None, size: Any = None) -> HeteroGraph:
        return self.encode(edge_index, self.nodes(x, edge_index, size))

    def bind(self, graph: HeteroGraph, x: Any, edge_index: Any, edge_attr: Any = None, size: Any = None) -> Binding:
        pair, own_rows = is_pair(x), ends(x)[1] is not None
        own = {name: spec for name, spec in self.own.items() if own_rows or name != "root"}
        with_own = pair and "root" in own
        features = [contiguous(part) for part in (x[: 1 + with_own] if pair else (x,))]
        mu, sigma, g, *others = self._read.read(self.module)
        parameters = self._by_output(mu, sigma, g) if self.separate else [mu, sigma, g]
        others = [array for name, array in zip(self.own, others, strict=True) if name in own]
        attr: Any = edge_features(edge_index) if edge_attr is None else edge_attr
        program = self.program((with_own, *own), partial(self._program, own, with_own))
        weight = "c" if self.separate else "W"
        names = [*("x", "x_own")[: 1 + with_own], "u", "mu", "sigma", weight, *own]
        arrays = dict(zip(names, [*features, attr.contiguous(), *parameters, *others], strict=True))
        return Binding(program, arrays, only, made={"u": graph.to_canonical}, reshapes=True)

    def _by_output(self, mu: Tensor, sigma: Tensor, g: Tensor) -> list[Tensor]:
        """Returns the parameters of separate Gaussians, (in, out, kernel, ...), as rows in the program's order."""
        o = self.options
        rows = [t.transpose(0, 1).reshape(-1, o.dim) for t in (mu, sigma)]
        return [*rows, g.view(o.in_channels, o.out_channels, o.kernels).transpose(0, 1).reshape(-1)]

    def _program(self, own: dict[str, str], with_own: bool) -> ProgramSource:
        x = {"x": spec("NS", self.in_channels[0])} | ({"x_own": spec("ND", self.in_channels[1])} if with_own else {})
        residual = f"linear(n.{'x_own' if with_own else 'x'}, root.T)" if "root" in own else ""
        make = separate_mixture if self.separate else mixture
        return make(self.options, x, own, residual)

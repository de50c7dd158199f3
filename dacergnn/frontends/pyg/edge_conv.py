"""Front ends for PyG's `EdgeConv` and `DynamicEdgeConv`."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from torch import Tensor, nn

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.edge_programs import AGGREGATIONS, edge_conv
from dacergnn.frontends.features import contiguous
from dacergnn.frontends.frontend import Binding, GraphKey, ProgramSource, spec
from dacergnn.frontends.networks import RowNetwork
from dacergnn.frontends.parameters import Parameters
from dacergnn.frontends.pyg.convolution import ConvolutionFrontend, Nodes, rows_of
from dacergnn.frontends.pyg.message_passing import ends, is_pair
from dacergnn.frontends.pyg.neighbours import nearest_neighbours
from dacergnn.graph import HeteroGraph


class EdgeConvFrontend(ConvolutionFrontend):
    """Runs networks of linear layers and element-wise functions in the program, and refuses all other networks."""

    handles: ClassVar[tuple[str, ...]] = ("torch_geometric.nn.conv.edge_conv.EdgeConv",)
    static = True

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.aggr = self.check_options(*AGGREGATIONS)
        network = RowNetwork.of(self.module.nn, ("nn",)) if isinstance(self.module.nn, nn.Module) else "function"
        if isinstance(network, str):
            raise self.refuse("nn", network, "programs hold linear layers and activations")
        if not network.arrays or network.in_channels % 2:
            raise self.refuse("nn", type(self.module.nn).__name__, "begin with a linear layer of 2 * in_channels")
        self.network = network
        self.in_channels = network.in_channels // 2
        self._network_parameters = Parameters(module, network.paths)

    def edges(self, x: Any, edge_index: Any) -> GraphKey:
        nodes = self._checked(x, edge_index)
        self.check_edges(edge_index, ends(x)[0].dtype)
        return self.key(edge_index, nodes)

    def result(self, x: Any, edge_index: Any) -> tuple[int, ...]:
        return self.nodes(x, edge_index).shape(self.network.out_channels)

    def graph(self, x: Any, edge_index: Any) -> HeteroGraph:
        return self.encode(edge_index, self.nodes(x, edge_index))

    def bind(self, graph: HeteroGraph, x: Any, edge_index: Any) -> Binding:
        pair, nodes = is_pair(x), self.nodes(x, edge_index)
        features = [contiguous(rows_of(part)) for part in (x if pair else (x,))]
        names = [*("x", "x_own")[: 1 + pair], *self.network.arrays]
        arrays = dict(zip(names, [*features, *self._network_parameters.read(self.module)], strict=True))
        return Binding(self.program(pair, partial(self._program, pair)), arrays, nodes.finish, reshapes=True)

    def _checked(self, x: Any, edge_index: Any) -> Nodes:
        if ends(x)[1] is None:
            raise UnsupportedCallError("x[1] is None; pass features of the destinations.")
        self.check_ends(x, (self.in_channels, self.in_channels))
        return self.nodes(x, edge_index)

    def _program(self, pair: bool) -> ProgramSource:
        x = {"x": spec("NS", self.in_channels)} | ({"x_own": spec("ND", self.in_channels)} if pair else {})
        return edge_conv(x, self.network.arrays, self.network.steps, self.aggr)


class DynamicEdgeConvFrontend(EdgeConvFrontend):
    """Builds the graph of every call with SciPy on the CPU; features on a device are copied to the host for it."""

    handles: ClassVar[tuple[str, ...]] = ("torch_geometric.nn.conv.edge_conv.DynamicEdgeConv",)
    static = False

    def edges(self, x: Any, batch: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        self._checked(x, None)
        for part in _batches(batch):
            if part is not None and (not isinstance(part, Tensor) or part.dim() != 1):
                raise UnsupportedCallError("batch must be a tensor with the number of its example for each row of x.")

    def result(self, x: Any, batch: Any = None) -> tuple[int, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().result(x, None)

    @property
    def repeatable(self) -> bool:
        return False

    def graph(self, x: Any, batch: Any = None) -> HeteroGraph:  # pyright: ignore[reportIncompatibleMethodOverride]
        edges = nearest_neighbours(*ends(x), *_batches(batch), self.module.k)
        return self.encode_edges(edges, self.nodes(x, None))

    def bind(self, graph: HeteroGraph, x: Any, batch: Any = None) -> Binding:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().bind(graph, x, None)


def _batches(batch: Any) -> tuple[Any, Any]:
    return (batch[0], batch[1]) if isinstance(batch, tuple) else (batch, batch)

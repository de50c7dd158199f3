"""Front ends for PyG's `EdgeConv` and `DynamicEdgeConv`."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from torch import Tensor, nn

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.edge_programs import AGGREGATIONS, edge_conv
from dacergnn.frontends.features import contiguous
from dacergnn.frontends.frontend import Binding, GraphKey, Program, only, spec
from dacergnn.frontends.networks import Network
from dacergnn.frontends.parameters import Parameters
from dacergnn.frontends.pyg.message_passing import MessagePassingFrontend, check_edge_index, check_ends, ends, plain
from dacergnn.frontends.pyg.neighbours import nearest_neighbours
from dacergnn.graph import HeteroGraph
from dacergnn.runtime.stacks import stacks_of


class EdgeConvFrontend(MessagePassingFrontend):
    """Networks of linear layers and element-wise functions are in the program; those with anything else are refused."""

    handles: ClassVar[tuple[str, ...]] = ("torch_geometric.nn.conv.edge_conv.EdgeConv",)

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.aggr = self.check_options(*AGGREGATIONS)
        network = Network.of(self.module.nn, ("nn",)) if isinstance(self.module.nn, nn.Module) else "function"
        if isinstance(network, str):
            raise self.refuse("nn", network, "programs hold linear layers and activations")
        if not network.arrays or network.in_channels % 2:
            raise self.refuse("nn", type(self.module.nn).__name__, "begin with a linear layer of 2 * in_channels")
        self.network = network
        self.in_channels = network.in_channels // 2
        self._network_parameters = Parameters(module, network.paths)

    def edges(self, x: Any, edge_index: Any) -> GraphKey:
        check_edge_index(edge_index)
        return (edge_index,), self._sizes(x)

    def graph_owner(self) -> object:
        return "edges", 1

    def result(self, x: Any, *_: Any, **__: Any) -> tuple[int, int]:
        return ends(x)[1].size(0), self.network.out_channels

    def graph(self, x: Any, edge_index: Any) -> HeteroGraph:
        return self._graph(x, plain(edge_index))

    def bind(self, graph: HeteroGraph, x: Any, *_: Any, **__: Any) -> Binding:
        pair = isinstance(x, tuple)

        def again(x: Any, *_: Any) -> list[Tensor]:
            features = [contiguous(part) for part in (x if pair else (x,))]
            return [*features, *self._network_parameters.read(self.module)]

        program = self.program(pair, partial(self._program, pair))
        names = [*("x", "x_own")[: 1 + pair], *self.network.arrays]
        arrays = dict(zip(names, again(x), strict=True))
        return Binding(program, arrays, only, stacks_of(), again=again, reshapes=True)

    def _sizes(self, x: Any) -> tuple[object, ...]:
        return "nodes", *check_ends(x, (self.in_channels, self.in_channels)), isinstance(x, tuple)

    def _graph(self, x: Any, edge_index: Tensor) -> HeteroGraph:
        x_l, x_r = ends(x)
        return HeteroGraph.from_arrays(
            edge_index, None, num_nodes=(x_l.size(0), x_r.size(0)), num_edge_types=1, bipartite=isinstance(x, tuple)
        )

    def _program(self, pair: bool) -> Program:
        x = {"x": spec("NS", self.in_channels)} | ({"x_own": spec("ND", self.in_channels)} if pair else {})
        return edge_conv(x, self.network.arrays, self.network.steps, self.aggr)


class DynamicEdgeConvFrontend(EdgeConvFrontend):
    """Every call has a graph of its own, which SciPy finds on the CPU: features on a device are copied for that."""

    handles: ClassVar[tuple[str, ...]] = ("torch_geometric.nn.conv.edge_conv.DynamicEdgeConv",)

    def edges(self, x: Any, batch: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        self._sizes(x)
        for part in _batches(batch):
            if part is not None and (not isinstance(part, Tensor) or part.dim() != 1):
                raise UnsupportedCallError("batch must be a tensor with the number of its example for each row of x.")

    @property
    def repeatable(self) -> bool:
        return False

    def graph(self, x: Any, batch: Any = None) -> HeteroGraph:  # pyright: ignore[reportIncompatibleMethodOverride]
        x_l, x_r = ends(x)
        return self._graph(x, nearest_neighbours(x_l, x_r, *_batches(batch), self.module.k))

    def bind(self, graph: HeteroGraph, x: Any, *_: Any, **__: Any) -> Binding:
        binding = super().bind(graph, x)
        binding.again = None
        return binding


def _batches(batch: Any) -> tuple[Any, Any]:
    return (batch[0], batch[1]) if isinstance(batch, tuple) else (batch, batch)

"""Makes the networks of Zhang et al., of PyG, of DGL and compiled, times them, and counts what they need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.caching.facts import saved_bytes
from benchmarks.caching.networks import Layer
from benchmarks.caching.task import Task
from benchmarks.caching.workload import Workload, load_workload
from benchmarks.papers.artefact import Scale
from benchmarks.relational.candidate import Built, make_layer_step, step_of
from benchmarks.relational.peers import library_module
from dacergnn.api import explain, optimize
from dacergnn.bench.measure import clock_of, interleave
from dacergnn.bench.process import OUT_OF_MEMORY, reason
from dacergnn.cli.options import present
from dacergnn.config import Config
from dacergnn.cost import Cost, program_cost
from dacergnn.datasets.clouds import CLOUDS, point_clouds
from dacergnn.datasets.synthetic import Specification, drawn
from dacergnn.modules.building import building
from dacergnn.modules.compiled_parts import compiled_parts
from dacergnn.modules.programs import measured
from dacergnn.sdfg_passes import compile_program

BATCHES = {f"{clouds} clouds, k={k}": (clouds, k) for clouds in (2, 32, 64) for k in (20, 40)}
"""Names of batches of point clouds -> clouds, and neighbours of a point."""
REDDIT = Specification(232_965, 114_615_892, 1, 1, 0.002, features=602, classes=41)
"""Of graphs called "reddit~SCALE", which have as many edges for a node as Reddit at any scale; nearly all its nodes
have neighbours."""
SLOPE = 0.2
"""Of GAT's LeakyReLU."""
_MEMORY = 18_000_000_000
"""Bytes that a network of a library may need by estimate, which is high."""
_COPIES = {"pyg": 4, "dgl": 2}
"""Copies of the features of edges that a network of each library holds in training."""
_ITEM = 4
"""Bytes of a number."""


@dataclass(frozen=True)
class Network:
    """Describes a network of layers of one kind on a graph.

    Args:
        model: "gat", "edgeconv" or "monet".
        data: Name of a data set, one of `BATCHES`, or "reddit~SCALE".
        widths: Output features of each layer; of each head where there are heads.
        classes: Whether a last layer gives the classes of the data set.
        features: Random input features; 0 for the features of the data set.
        heads: Heads of GAT.
        gaussians: Kernels of MoNet and their dimensions.
        by_edge: Whether GAT computes scores from the features of both ends of an edge, as its paper writes it; PyG and
            DGL compute two numbers of each node in advance.
    """

    model: str
    data: str
    widths: tuple[int, ...]
    classes: bool = False
    features: int = 0
    heads: int = 1
    gaussians: tuple[int, int] = (1, 1)
    by_edge: bool = False


@dataclass(frozen=True)
class Needs:
    """Holds what the programs of a network need, by the compiler's estimate.

    Args:
        flops: Operations of the forward.
        moved: Bytes that are read and written, in order or row by row.
        between: Bytes that are saved for the backward or needed between operators, layer by layer.
        held: Bytes of features, parameters and results of layers; in training, of gradients of parameters, too.
    """

    flops: int
    moved: int
    between: int
    held: int

    @property
    def memory(self) -> int:
        """Returns all bytes in memory."""
        return self.held + self.between


@dataclass(frozen=True)
class Measured:
    """Holds what was measured of a network computed in one way.

    Args:
        ms: Time of a call.
        saved: Bytes that a forward keeps for its backward; 0 in inference.
        built: The network.
        needs: What its programs need; None for a library.
        written: What they would need before all passes.
    """

    ms: float
    saved: int
    built: Built
    needs: Needs | None = None
    written: Needs | None = None


@dataclass(frozen=True)
class Runs:
    """Holds what was measured of a network, and why libraries have no time, by the name of the way."""

    found: Mapping[str, Measured]
    failed: Mapping[str, str]


@cache
def workload(network: Network, scale: Scale) -> Workload:
    """Returns the edges and features of a network."""
    kind, data = ("layer" if network.features else "network"), network.data
    task = Task(network.model, data, kind, network.features, network.widths[0], network.heads)
    if data in BATCHES:
        clouds, neighbours = BATCHES[data]
        made = point_clouds(clouds, CLOUDS.points, neighbours, scale.seed)
    elif data.startswith("reddit~"):
        made = drawn(REDDIT, data, float(data.partition("~")[2]), scale.seed)
    else:
        return load_workload(replace(task, data=present(data)), scale.seed).on(scale.device)
    edges = torch.stack([made.graph.index("E", path).long() for path in ("src", "dst")])
    x = next(iter(made.features.values()))
    if network.features:
        x = torch.randn(len(x), network.features, generator=torch.Generator().manual_seed(scale.seed))
    return Workload(task, edges, x, made.num_classes or 0).on(scale.device)


def layers_of(network: Network, load: Workload) -> list[Layer]:
    """Returns the sizes of a network's layers."""
    layers: list[Layer] = []
    inputs = load.x.shape[1]
    for width in network.widths:
        layers.append(Layer(inputs, width, network.heads, last=False))
        inputs = width * network.heads
    return [*layers, Layer(inputs, load.classes, network.heads, last=True)] if network.classes else layers


def make(network: Network, way: str | Config, scale: Scale) -> Built:
    """Returns a network that is ready to run: "pyg" or "dgl" for that of a library, a config for a compiled one."""
    load = workload(network, scale)
    draw = torch.Generator().manual_seed(scale.seed)
    pseudo = torch.rand(load.edge_index.shape[1], network.gaussians[1], generator=draw).to(load.x.device)
    torch.manual_seed(scale.seed)
    edges: Any = load.edge_index
    if way == "dgl":
        module: nn.Module = _of_dgl(network, load)
        edges = _dgl().arguments(load)[0]
    else:
        module = _of_pyg(network, load)
    module = module.to(load.x.device)
    if isinstance(way, Config):
        module = optimize(module, load.graph, config=way, filter_fn=lambda *_: True, on_unsupported="error")
    return Built(lambda: module(load.x, edges, pseudo), (), tuple(module.parameters()), layer=module)


def measure(network: Network, ways: Mapping[str, str | Config], train: bool, scale: Scale) -> Runs:
    """Measures a network in several ways in turns; a library that fails has no time, an error of ours is raised."""
    load = workload(network, scale)
    runs: dict[str, Built] = {}
    steps: dict[str, Any] = {}
    failed: dict[str, str] = {}
    for name, way in ways.items():
        need = _COPIES[way] * _edge_bytes(network, load) if isinstance(way, str) else 0
        if need > _MEMORY:
            failed[name] = f"{OUT_OF_MEMORY}, by an estimate of {need / 1e9:.0f} GB"
            continue
        try:
            built = make(network, way, scale)
            step = make_layer_step(built, built.forward()) if train else step_of(built, lambda _: None, "infer")
            step()
        except Exception as error:
            if isinstance(way, Config):
                raise
            failed[name] = reason(error)
        else:
            runs[name], steps[name] = built, step
    timings = interleave(steps, scale.pick(9, 20), scale.pick(1.5, 15.0), clock=clock_of(load.x.device))
    found = {n: _measured(timings[n].ms, network, built, ways[n], train, load) for n, built in runs.items()}
    return Runs(found, failed)


def planned(built: Built, passes: Sequence[str]) -> tuple[Cost, Cost]:
    """Returns the costs of the forward, and of forward and backward, if other passes compiled a network that has run.

    Nothing is built for it.
    """
    forward, both = Cost(), Cost()
    for part in compiled_parts(built.layer):
        call = part.part.last_call
        assert call is not None, f"{part.name} has not run"
        program, graph = call[0], measured(*call)
        gradients = max((variant.program.wrt for variant in program.variants), key=len)
        config = replace(program.config, passes=tuple(passes), caching="cache_all")
        with building():
            made = compile_program(program.sdfg, gradients, config, program.index_type, program.profile)
            costs = [program_cost(sdfg, graph.sizes) for sdfg in made.parts]
        forward, both = forward + costs[0], sum(costs, both)
    return forward, both


def _measured(ms: float, network: Network, built: Built, way: str | Config, train: bool, load: Workload) -> Measured:
    saved = saved_bytes(built) if train else 0
    if isinstance(way, str):
        return Measured(ms, saved, built)
    builds = [build for layer in explain(built.layer).layers if (build := layer.largest) is not None]
    own = sum((cost for build in builds for cost in (build.forward, build.backward) if cost is not None), Cost())
    forward, both = planned(built, ())
    held = _held(network, built, load, train)
    between = sum(build.compiled.bytes for build in builds)
    between_written = sum(build.as_written.bytes for build in builds if build.as_written is not None)
    return Measured(
        ms, saved, built,
        Needs(sum(build.forward.flops for build in builds), _moved(own), between, held),
        Needs(forward.flops, _moved(both), between_written, held),
    )  # fmt: skip


def _held(network: Network, built: Built, load: Workload, train: bool) -> int:
    """Returns the bytes of features, parameters and results of layers, and of gradients of parameters in training."""
    parameters = sum(parameter.numel() for parameter in built.leaves)
    results = sum(place.outputs * (1 if place.last else place.heads) for place in layers_of(network, load))
    return _ITEM * (load.x.numel() + parameters * (2 if train else 1) + load.num_nodes * results)


def _moved(cost: Cost) -> int:
    return cost.streamed + cost.gathered


def _edge_bytes(network: Network, load: Workload) -> int:
    """Returns the bytes of the features of edges in all layers."""
    rows = sum(place.outputs * network.heads * network.gaussians[0] for place in layers_of(network, load))
    if network.model == "edgeconv":
        rows += sum(place.inputs for place in layers_of(network, load))
    return _ITEM * load.edge_index.shape[1] * rows


def _pyg() -> Any:
    library_module("pyg")
    from torch_geometric import nn as library

    return library


def _dgl() -> Any:
    library_module("dgl")
    from benchmarks.caching import dgl

    return dgl


def _of_pyg(network: Network, load: Workload) -> nn.Module:
    """Returns a network of PyG's layers with ReLU between them, which takes features, edges and pseudo-coordinates."""
    arguments = "x, edges, pseudo"
    steps: list[Any] = []
    for place in layers_of(network, load):
        steps += [(nn.ReLU(), "x -> x")] if steps else []
        steps.append((_layer(network, place), f"{arguments if network.model == 'monet' else 'x, edges'} -> x"))
    return _pyg().Sequential(arguments, steps)


def _layer(network: Network, place: Layer) -> nn.Module:
    pyg = _pyg()
    if network.model == "edgeconv":
        return pyg.EdgeConv(nn.Linear(2 * place.inputs, place.outputs))
    if network.model == "monet":
        kernels, dimensions = network.gaussians
        return pyg.GMMConv(place.inputs, place.outputs, dim=dimensions, kernel_size=kernels)
    if network.by_edge:
        return _gat_by_edge()(place)
    return pyg.GATConv(place.inputs, place.outputs, place.heads, concat=not place.last, add_self_loops=False)


@cache
def _gat_by_edge() -> type[nn.Module]:
    """Returns the class of GAT layers that compute scores from the features of both ends of an edge."""
    pyg = _pyg()
    from torch_geometric.utils import softmax

    class GATByEdge(pyg.MessagePassing):
        """Computes GAT as its paper writes it."""

        def __init__(self, place: Layer) -> None:
            super().__init__(aggr="add", node_dim=0)
            self.shape = (-1, place.heads, place.outputs)
            self.linear = nn.Linear(place.inputs, place.heads * place.outputs, bias=False)
            self.attention = nn.Parameter(torch.randn(1, place.heads, 2 * place.outputs) / place.outputs**0.5)

        def forward(self, x: Tensor, edges: Tensor) -> Tensor:
            return self.propagate(edges, h=self.linear(x).view(self.shape)).flatten(1)

        def message(self, h_i: Tensor, h_j: Tensor, index: Tensor, size_i: int | None) -> Tensor:
            score = (torch.cat([h_i, h_j], dim=-1) * self.attention).sum(-1)
            weight = softmax(nn.functional.leaky_relu(score, SLOPE), index, num_nodes=size_i)
            return weight.unsqueeze(-1) * h_j

    return GATByEdge


class _OfDGL(nn.Module):
    """Runs layers of DGL with ReLU between them."""

    def __init__(self, layers: Sequence[nn.Module], coordinates: bool) -> None:
        super().__init__()
        self.layers, self.coordinates = nn.ModuleList(layers), coordinates

    def forward(self, x: Tensor, graph: Any, pseudo: Tensor) -> Tensor:
        for position, layer in enumerate(self.layers):
            others = (pseudo,) if self.coordinates else ()
            x = layer(graph, x.relu() if position else x, *others)
        return x


def _of_dgl(network: Network, load: Workload) -> nn.Module:
    dgl, places = _dgl(), layers_of(network, load)
    if network.model != "monet":
        return _OfDGL([dgl.make_layer(network.model, place) for place in places], coordinates=False)
    kernels, dimensions = network.gaussians
    layers: list[Any] = [
        dgl.library.GMMConv(place.inputs, place.outputs, dimensions, kernels, aggregator_type="mean", residual=True)
        for place in places
    ]
    for layer in layers:
        layer.set_allow_zero_in_degree(True)
    return _OfDGL(layers, coordinates=True)

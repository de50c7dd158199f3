"""Parameters of layers whose calls are replayed as CUDA graphs, in emulation: leaves, hooks, parametrizations, DDP."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parametrizations

import dacergnn
from dacergnn import Config
from dacergnn.modules import RGAT, RGCN
from tests.support.emulated_device import emulated_device
from tests.support.emulated_graph import EmulatedRecorder, emulated_graphs
from tests.support.random_graphs import joined_graph
from tests.support.use import lone_process

pyg: Any = pytest.importorskip("torch_geometric.nn")
__all__ = ["emulated_device", "emulated_graphs"]
pytestmark = pytest.mark.usefixtures("emulated_graphs")
RAW = joined_graph(random.Random(3), 5, 90, 4, 3)
EDGES = torch.stack([torch.from_numpy(RAW.src), torch.from_numpy(RAW.dst)])
TYPES = torch.from_numpy(RAW.edge_type)
WIDTH = 16


class Distances(pyg.MessagePassing):
    """A layer whose forward passes a parameter to a function of torch that is no part of a program."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(WIDTH, WIDTH)
        self.centres = nn.Parameter(torch.randn(WIDTH, WIDTH))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return torch.cdist(self.lin(self.propagate(edge_index, x=x)), self.centres)

    def message(self, x_j: Tensor) -> Tensor:
        return x_j


Case = tuple[Callable[[], nn.Module], Sequence[Tensor]]
CASES: dict[str, Case] = {
    "front end": (lambda: pyg.RGCNConv(WIDTH, WIDTH, RAW.num_edge_types), (EDGES, TYPES)),
    "linear parts": (lambda: pyg.SAGEConv(WIDTH, WIDTH), (EDGES,)),
    "traced": (Distances, (EDGES,)),
}


def made(case: Case) -> nn.Module:
    torch.manual_seed(0)
    return case[0]()


def optimized(model: nn.Module, device: Config) -> nn.Module:
    return dacergnn.optimize(model, config=replace(device, cuda_graph=True), on_unsupported="error")


def assert_steps_equal(
    layers: Sequence[nn.Module], arguments: Sequence[Any], *, owners: Sequence[nn.Module] | None = None
) -> None:
    """Trains two layers for some steps, in which results of earlier ones stay alive, and compares values."""
    alive: list[Tensor] = []
    for step in range(7):
        found: list[list[Tensor]] = []
        for layer, owner in zip(layers, owners or layers, strict=True):
            owner.zero_grad()
            x = torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(step)).requires_grad_()
            out = layer(x, *arguments)
            alive.append(out)
            out.square().sum().backward()
            leaves = [x, *owner.parameters()]
            assert all(t.grad is not None for t in leaves)
            found.append([out.detach(), *[t.grad.clone() for t in leaves if t.grad is not None]])
            with torch.no_grad():
                for parameter in owner.parameters():
                    parameter.mul_(1.03125)
        for a, b in zip(*found, strict=True):
            torch.testing.assert_close(b, a, rtol=1e-3, atol=1e-3 * float(a.abs().max()))


def leaves_of(result: Any) -> list[Tensor]:
    """Returns the leaves that the history of some tensors accumulates gradients into."""
    nodes = [t.grad_fn for t in result if isinstance(t, Tensor) and t.grad_fn is not None]
    found: dict[Any, None] = {}
    while nodes:
        node = nodes.pop()
        if node not in found:
            found[node] = None
            nodes += [following for following, _ in node.next_functions if following is not None]
    return [node.variable for node in found if hasattr(node, "variable")]


@pytest.mark.parametrize("case", ["front end", "traced", "native"])
def test_recorded_leaves_are_new(
    case: str, emulated_device: Config, emulated_graphs: type[EmulatedRecorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes of parameters belong to the stream of the first call, which a recording may not touch."""
    if case == "native":
        model: nn.Module = RGCN(WIDTH, WIDTH, RAW.num_edge_types, config=replace(emulated_device, cuda_graph=True))
        layer, arguments = model, (RAW.hetero(),)
    else:
        model = made(CASES[case])
        layer, arguments = optimized(model, emulated_device), CASES[case][1]
    recorded: list[Any] = []
    record = EmulatedRecorder.record

    def noted(self: EmulatedRecorder, work: Callable[[], Any]) -> Any:
        result, again = record(self, work)
        recorded.append(result)
        return result, again

    monkeypatch.setattr(EmulatedRecorder, "record", noted)
    alive = [layer(torch.randn(5, WIDTH), *arguments).sum() for _ in range(6)]
    assert all(loss.grad_fn is not None for loss in alive)
    leaves = leaves_of(recorded[0])
    own = {p.data_ptr(): p for p in model.parameters()}
    assert {leaf.data_ptr() for leaf in leaves} == own.keys()
    assert all(leaf is not own[leaf.data_ptr()] for leaf in leaves)


def test_hooks_of_parameters_run_once(emulated_device: Config) -> None:
    models = [made(CASES["linear parts"]) for _ in range(2)]
    calls: list[int] = [0, 0]
    for number, model in enumerate(models):
        for parameter in model.parameters():
            parameter.register_hook(lambda g: g * 2)

            def count(_: Tensor, number: int = number) -> None:
                calls[number] += 1

            parameter.register_post_accumulate_grad_hook(count)
    assert_steps_equal([models[0], optimized(models[1], emulated_device)], (EDGES,), owners=models)
    assert calls[0] == calls[1] > 0


def tie(module: nn.Module, name: str) -> None:
    module.register_parameter("again", module.get_parameter(name))


WAYS: dict[str, Callable[[nn.Module, str], object]] = {
    "weight norm": parametrizations.weight_norm,
    "tied": tie,
    "spectral norm": parametrizations.spectral_norm,
    "hook": torch.nn.utils.spectral_norm,
}


# RGCNConv reads its weight three times, each of which would update the estimate of its spectral norm.
@pytest.mark.parametrize(
    ("case", "way"),
    [("front end", "weight norm"), ("linear parts", "spectral norm"), ("traced", "tied"), ("traced", "hook")],
)
def test_parameters_that_are_computed(case: str, way: str, emulated_device: Config) -> None:
    """Recordings do not write to buffers more often than the layer, and read no tensor of an earlier call."""
    models = [made(CASES[case]) for _ in range(2)]
    for model in models:
        part: Any = model if case == "front end" else model.lin if case == "traced" else model.lin_l
        torch.manual_seed(1)
        WAYS[way](part, "weight")
    assert_steps_equal([models[0], optimized(models[1], emulated_device)], CASES[case][1], owners=models)
    for a, b in zip(*[model.buffers() for model in models], strict=True):
        torch.testing.assert_close(b, a, rtol=1e-3, atol=1e-3)


def test_parameters_of_functions_of_torch(emulated_device: Config, emulated_graphs: type[EmulatedRecorder]) -> None:
    """Traced layers are replayed from the call on whose program runs without being traced."""
    models = [made(CASES["traced"]) for _ in range(2)]
    assert_steps_equal([models[0], optimized(models[1], emulated_device)], (EDGES,), owners=models)
    assert emulated_graphs.count == 2


def test_a_parameter_with_two_names(emulated_device: Config, emulated_graphs: type[EmulatedRecorder]) -> None:
    """Its gradient is the sum over both, once."""
    graph, layers = RAW.hetero(), list[Any]()
    for config in (emulated_device, replace(emulated_device, cuda_graph=True)):
        torch.manual_seed(0)
        layers.append(RGAT(WIDTH, WIDTH, RAW.num_edge_types, config=config))
        layers[-1].k = layers[-1].q
    assert_steps_equal(layers, (graph,))
    assert emulated_graphs.count == 2


@pytest.fixture
def process_group(tmp_path: Path) -> Generator[None]:
    with lone_process("gloo", tmp_path):
        yield


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("case", ["front end", "linear parts"])
def test_distributed_data_parallel(case: str, emulated_device: Config, emulated_graphs: type[EmulatedRecorder]) -> None:
    """DDP keeps the accumulating nodes of parameters alive and averages gradients where they arrive."""
    models = [made(CASES[case]) for _ in range(2)]
    layers = [models[0], DistributedDataParallel(optimized(models[1], emulated_device))]
    assert_steps_equal(layers, CASES[case][1], owners=models)
    assert emulated_graphs.count == 2

"""Whole layers, forward and backward, as CUDA programs in emulation: the values and gradients of NumPy."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn import Config, Plan
from dacergnn.errors import ArrayError
from dacergnn.modules import HGT, RGAT, RGCN
from dacergnn.runtime import cuda_executable
from dacergnn.runtime.cuda_executable import CUDAExecutable
from tests.support.emulated_device import STREAM, emulated_device
from tests.support.random_graphs import joined_graph
from tests.support.sparse import as_csr, thinned

__all__ = ["emulated_device"]
pytestmark = pytest.mark.interpreted  # layers that stay on the processor, whose results are expected
LAYERS: dict[str, Callable[[int, int, Config], Any]] = {
    "rgcn": lambda types, relations, config: RGCN(16, 16, relations, config=config),
    "rgat": lambda types, relations, config: RGAT(16, 16, relations, config=config),
    "rgat, two heads": lambda types, relations, config: RGAT(6, 5, relations, heads=2, config=config),
    "hgt": lambda types, relations, config: HGT(16, types, relations, config=config),
}
WIDTHS = {"rgat, two heads": 6}


def results(layer: Any, x: Tensor, graph: Any) -> list[Tensor]:
    """The output, and the gradients of the features and of all parameters."""
    x = x.clone().requires_grad_()
    output = layer(x, graph)
    weights = torch.linspace(-1, 1, output.numel(), dtype=x.dtype).view(output.shape)
    return [output.detach(), *torch.autograd.grad((output * weights).sum(), [x, *layer.parameters()])]


HUBS = joined_graph(random.Random(5), 2, 2600, 2, 1)


@pytest.mark.parametrize("name", ["hgt", "rgat, two heads"])
def test_same_as_on_the_cpu(name: str, emulated_device: Config) -> None:
    """With many nodes of few edges, or with few nodes of so many that blocks of threads share them."""
    many = "heads" in name
    nodes, edges, dtype, tolerance = (60, 300, torch.float64, 1e-10) if many else (5, 2000, torch.float32, 2e-4)
    raw = joined_graph(random.Random(3), nodes, edges, 4, 3)
    graph = raw.hetero()
    torch.manual_seed(0)
    configs = Config(), emulated_device
    layers = [LAYERS[name](raw.num_node_types, raw.num_edge_types, config).to(dtype) for config in configs]
    layers[1].load_state_dict(layers[0].state_dict())
    x = torch.randn(graph.size("NS"), WIDTHS.get(name, 16), dtype=dtype)
    expected, found = (results(layer, x, graph) for layer in layers)
    for a, b in zip(expected, found, strict=True):
        torch.testing.assert_close(b, a, rtol=tolerance, atol=tolerance * float(a.abs().max().clamp(1e-3)))


def test_sparse_features(emulated_device: Config) -> None:
    """Loops over the nonzeros of nodes and of pairs, and over those of columns in the gradients."""
    raw = joined_graph(random.Random(6), 60, 200, 4, 3)
    graph = raw.hetero()
    torch.manual_seed(0)
    layers = [RGCN(16, 5, raw.num_edge_types, config=config).double() for config in (Config(), emulated_device)]
    layers[1].load_state_dict(layers[0].state_dict())
    x = as_csr(thinned(torch.randn(graph.size("NS"), 16, dtype=torch.float64)))
    expected, found = ([y, *torch.autograd.grad(y.square().sum(), [*layer.parameters()])]
                       for layer, y in ((layer, layer(x, graph)) for layer in layers))  # fmt: skip
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", ["rgcn", "rgat"])
def test_hubs(name: str, emulated_device: Config) -> None:
    """Several blocks share the edges of a node, as the graph that a layer is compiled for asks for it."""
    torch.manual_seed(0)
    layers = [LAYERS[name](1, 2, config) for config in (Config(), emulated_device)]
    layers[1].load_state_dict(layers[0].state_dict())
    x = torch.randn(2, 16)
    expected, found = (results(layer, x, HUBS.hetero()) for layer in layers)
    for a, b in zip(expected, found, strict=True):
        torch.testing.assert_close(b, a, rtol=2e-4, atol=2e-4 * float(a.abs().max()))


def test_sums_of_outer_products(emulated_device: Config) -> None:
    """A layer of matrices of edges whose plan asks for the order without them, though that pays on larger graphs."""
    from torch_geometric.nn import NNConv

    torch.manual_seed(0)
    original = NNConv(6, 5, nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 30))).double()
    plan = Plan.of({"forward/aggregation_order/0/v9": "sum_outer_products"})
    found = dacergnn.optimize(copy.deepcopy(original), config=replace(emulated_device, plan=plan))
    x, attributes = (torch.randn(n, k, dtype=torch.float64, requires_grad=True) for n, k in ((9, 6), (60, 3)))
    edges = torch.randint(0, 9, (2, 60))
    outputs = [layer(x, edges, attributes) for layer in (found, original)]
    gradients = [
        torch.autograd.grad(output.square().sum(), [x, attributes, *layer.parameters()])
        for output, layer in zip(outputs, (found, original), strict=True)
    ]
    torch.testing.assert_close(outputs[0], outputs[1], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-10, atol=1e-10)


def test_launches_are_made_on_the_device_of_the_tensors(
    emulated_device: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    active: list[torch.device] = []
    seen: list[list[torch.device]] = []
    launch = CUDAExecutable._launch

    @contextmanager
    def current_stream(device: torch.device) -> Iterator[Any]:
        active.append(device)
        yield STREAM
        active.pop()

    def noted(self: CUDAExecutable, arguments: Any) -> bytes | None:
        seen.append(active[:])
        return launch(self, arguments)

    monkeypatch.setattr(cuda_executable, "current_stream", current_stream)
    monkeypatch.setattr(CUDAExecutable, "_launch", noted)
    x = torch.randn(2, 16)
    results(RGCN(16, 16, 2, config=emulated_device), x, HUBS.hetero())
    assert seen == [[x.device], [x.device]]


def test_kernels_for_devices_refuse_graphs_on_the_cpu(emulated_device: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CUDAExecutable, "_device", "cuda")
    layer = RGCN(16, 16, 2, config=emulated_device)
    with pytest.raises(ArrayError) as error:
        layer(torch.randn(2, 16), HUBS.hetero())
    assert str(error.value) == (
        "graph is on cpu, but these kernels are for devices of type 'cuda'; move it with .to('cuda')."
    )

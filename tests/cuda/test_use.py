"""Layers as models use them, with CUDA programs in emulation: wide rows, large arrays, views, threads, precisions."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dacergnn import Config
from dacergnn.errors import DeviceError
from dacergnn.graph import HeteroGraph
from dacergnn.modules import RGAT, RGCN
from dacergnn.modules.programs import compiled_program
from tests.cuda.test_layers import results
from tests.cuda.test_precision import tf32
from tests.support.emulated_device import emulated_device
from tests.support.emulated_graph import Tape, emulated_graphs
from tests.support.random_graphs import joined_graph
from tests.support.use import shifted

__all__ = ["emulated_device", "emulated_graphs", "tf32"]
pytestmark = pytest.mark.interpreted  # layers that stay on the processor, whose results are expected
RAW = joined_graph(random.Random(3), 20, 60, 4, 3)
LAYERS: dict[str, Callable[[int, Config], Any]] = {
    "rgcn": lambda width, config: RGCN(width, width, 4, config=config),
    "rgat": lambda width, config: RGAT(width, width // 4, 4, heads=4, config=config),
}


def pair(name: str, width: int, device: Config) -> list[Any]:
    """A layer on the processor, and one with the same parameters on the emulated device."""
    torch.manual_seed(0)
    layers = [LAYERS[name](width, config) for config in (Config(), device)]
    layers[1].load_state_dict(layers[0].state_dict())
    return layers


def assert_near(found: list[Tensor], expected: list[Tensor]) -> None:
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-4, atol=2e-4 * float(b.abs().max().clamp(1e-3)))


@pytest.mark.parametrize(("name", "width"), [("rgcn", 256), ("rgat", 128)])
def test_wide_rows(name: str, width: int, emulated_device: Config) -> None:
    x, graph = torch.randn(20, width), RAW.hetero()
    expected, found = (results(layer, x, graph) for layer in pair(name, width, emulated_device))
    assert_near(found, expected)


def test_views_that_start_anywhere(emulated_device: Config) -> None:
    """Features, parameters and gradients of the result."""
    layer, graph = pair("rgat", 128, emulated_device)[1], RAW.hetero()
    values = torch.randn(20, 128), torch.randn(20, 128)

    def run(place: Callable[[Tensor], Tensor]) -> list[Tensor]:
        for path, parameter in layer.named_parameters():
            setattr(layer, path, nn.Parameter(place(parameter.detach())))
        x, gradient = place(values[0]).requires_grad_(), place(values[1])
        out = layer(x, graph)
        return [out.detach(), *torch.autograd.grad(out, [x, *layer.parameters()], gradient)]

    aligned, moved = run(torch.clone), run(shifted)
    assert any(p.data_ptr() % 16 for p in layer.parameters())
    for a, b in zip(moved, aligned, strict=True):
        assert torch.equal(a, b)


def test_more_elements_than_32_bits_count(emulated_device: Config) -> None:
    """Rows are read beyond 2^31 elements, of memory that the system only provides where it is touched."""
    width, count = 64, 2**31 // 64 + 40
    x = torch.zeros(count, width, dtype=torch.float16)
    last = torch.arange(count - 30, count)
    x[last] = torch.randn(30, width).half()
    destinations, types = torch.arange(30) % 5, torch.arange(30) % 4
    small = HeteroGraph.from_arrays((torch.arange(30), destinations), types, num_nodes=(30, 5), num_edge_types=4)
    large = HeteroGraph.from_arrays((last, destinations), types, num_nodes=(count, 5), num_edge_types=4)
    layer = RGCN(width, width, 4, root_weight=False, config=emulated_device).half()
    # Choices are made for the first graph: products of edges, not of nodes.
    out = [layer(features, graph) for features, graph in ((x, large), (x[last], small))]
    gradients = [torch.autograd.grad(o.float().square().sum(), list(layer.parameters())) for o in out]
    assert out[0].abs().max() > 0.1
    torch.testing.assert_close(out[1], out[0])
    torch.testing.assert_close(gradients[1], gradients[0])


def test_calls_of_two_threads(emulated_device: Config) -> None:
    """The first calls too, which build and encode."""
    layer, graph = pair("rgcn", 24, emulated_device)[1], RAW.hetero()
    inputs = [torch.randn(20, 24) for _ in range(6)]
    with ThreadPoolExecutor(2) as workers:
        found = list(workers.map(lambda x: results(layer, x, graph), inputs))
    for x, result in zip(inputs, found, strict=True):
        for a, b in zip(result, results(layer, x, graph), strict=True):
            assert torch.equal(a, b)


@pytest.mark.usefixtures("emulated_graphs")
@pytest.mark.parametrize(("before", "state"), [(False, "allows"), (True, "does not allow")])
def test_another_precision_within_a_recording(
    before: bool, state: str, emulated_device: Config, tf32: Callable[[bool], None]
) -> None:
    """It is another build, which has to be loaded before."""
    compiled_program.cache_clear()  # other tests have loaded it
    layer, x, graph = pair("rgcn", 24, emulated_device)[1], torch.randn(20, 24), RAW.hetero()
    with torch.no_grad():
        tf32(before)
        layer(x, graph)
        tf32(not before)
        with Tape(), pytest.raises(DeviceError) as error:
            layer(x, graph)
        assert f"has not run since torch {state} TF32, which needs a build of its own" in str(error.value)
        layer(x, graph)
        with Tape():
            layer(x, graph)

"""Layers on a device as models use them: wide rows, large arrays, views, threads, DDP, recordings in a plain loop."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import dacergnn
from dacergnn import Config, HeteroGraph
from dacergnn.bench.rates import precision
from dacergnn.errors import DeviceError
from dacergnn.modules import RGCN
from tests.frontends.graphs import typed_edges
from tests.gpu.layers import NATIVE, PYG, assert_close, differentiated, filled, moved, native
from tests.gpu.test_calls import assert_equal, trained
from tests.support.use import lone_process, shifted


@pytest.mark.parametrize("width", [128, 256])
@pytest.mark.parametrize("name", NATIVE)
def test_wide_rows(name: str, width: int, device: torch.device) -> None:
    edges, results = typed_edges(400, 5), []
    for place, dtype in ((torch.device("cpu"), torch.float64), (device, torch.float32)):
        layer, x, graph = native(name, edges, place, dtype, width)
        results.append(differentiated(layer, layer, ((x, graph), {})))
    assert_close(results[1], results[0], "float32", tolerance=1e-3)


@pytest.mark.parametrize("name", NATIVE)
def test_views_that_start_anywhere(name: str, device: torch.device) -> None:
    """Features, parameters and gradients of the result."""
    layer, x, graph = native(name, typed_edges(400, 5), device, torch.float32)
    values = x.detach(), torch.randn_like(layer(x, graph))

    def run(place: Callable[[Tensor], Tensor]) -> list[Tensor]:
        for path, parameter in layer.named_parameters():
            setattr(layer, path, nn.Parameter(place(parameter.detach())))
        rows, gradient = place(values[0]).requires_grad_(), place(values[1])
        out = layer(rows, graph)
        return [out.detach(), *torch.autograd.grad(out, [rows, *layer.parameters()], gradient)]

    aligned, misaligned = run(torch.clone), run(shifted)
    assert any(p.data_ptr() % 16 for p in layer.parameters())
    assert_equal(misaligned, aligned)


def test_more_elements_than_32_bits_count(device: torch.device) -> None:
    """Rows of features, and of their gradient, beyond 2^31 elements."""
    width, count = 64, 2**31 // 64 + 40
    if torch.cuda.get_device_properties(device).total_memory < 20 * 2**30:
        pytest.skip("two arrays of 4 GiB, and what lies beside them, need a device of 20 GiB")
    x = torch.zeros(count, width, dtype=torch.float16, device=device)
    last = torch.arange(count - 30, count, device=device)
    x[last] = torch.randn(30, width, device=device).half()
    destinations, types = torch.arange(30, device=device) % 5, torch.arange(30, device=device) % 4
    first = torch.arange(30, device=device)
    layer = RGCN(width, width, 4, root_weight=False).to(device).half()
    results: list[list[Tensor]] = []
    for features, sources, nodes in ((x, last, count), (x[last], first, 30)):
        graph = HeteroGraph.from_arrays((sources, destinations), types, num_nodes=(nodes, 5), num_edge_types=4)
        rows = features.requires_grad_()
        out = layer(rows, graph)
        gradient, *others = torch.autograd.grad(out.float().square().sum(), [rows, *layer.parameters()])
        results.append([out.detach(), gradient[sources], *others])
        if nodes == count:
            assert not gradient[: count - 30].any()
    assert results[0][0].abs().max() > 0.1
    torch.testing.assert_close(results[0], results[1])


@pytest.mark.parametrize("name", NATIVE)
def test_calls_of_two_threads(name: str, device: torch.device) -> None:
    """Each on a stream of its own; the first calls too, which build and encode."""
    layer, x, graph = native(name, typed_edges(400, 5), device, torch.float32, 48)
    inputs = [torch.randn_like(x).requires_grad_() for _ in range(6)]
    torch.cuda.synchronize()

    def run(rows: Tensor) -> list[Tensor]:
        with torch.cuda.stream(torch.cuda.Stream(device)):
            found = trained(layer, rows, graph)
            torch.cuda.current_stream().synchronize()
            return found

    with ThreadPoolExecutor(2) as workers:
        found = list(workers.map(run, inputs))
    for rows, result in zip(inputs, found, strict=True):
        assert_equal(result, trained(layer, rows, graph))


def test_another_precision_within_a_recording(device: torch.device) -> None:
    """It is another build, which has to be loaded before."""
    layer, x, graph = native("rgcn", typed_edges(400, 5), device, torch.float32, 56)
    side = torch.cuda.Stream(device)
    with torch.no_grad(), torch.cuda.stream(side):
        with precision("float32"):
            layer(x, graph)
        with precision("tf32"):
            with (
                pytest.raises(DeviceError, match="has not run since torch allows TF32"),
                torch.cuda.graph(torch.cuda.CUDAGraph()),
            ):
                layer(x, graph)
            expected = layer(x, graph)
            recording = torch.cuda.CUDAGraph()
            with torch.cuda.graph(recording):
                out = layer(x, graph)
            recording.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, expected)


@pytest.fixture
def process_group(tmp_path: Path) -> Generator[None]:
    with lone_process("nccl", tmp_path):
        yield


def steps(model: nn.Module, owner: nn.Module, arguments: Any) -> list[Tensor]:
    """Trains in a plain loop, in which the loss of each step is alive when the next one runs."""
    optimizer = torch.optim.SGD(owner.parameters(), lr=0.01)
    args, kwargs = arguments
    losses: list[Tensor] = []
    for _ in range(6):
        optimizer.zero_grad()
        out = model(*args, **kwargs)
        rows = out if isinstance(out, Tensor) else torch.cat([t for t in out.values() if t is not None])
        losses.append(rows.square().mean())
        losses[-1].backward()
        optimizer.step()
    return [*[loss.detach() for loss in losses], *[p.detach() for p in owner.parameters()]]


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("name", PYG)
def test_layers_that_replay_in_a_plain_loop(
    name: str, parallel: bool, device: torch.device, request: pytest.FixtureRequest
) -> None:
    """With hooks of parameters, alone and in DDP, which keeps the accumulating nodes of parameters alive."""
    pytest.importorskip("torch_geometric")
    if parallel:
        request.getfixturevalue("process_group")
    case, edges = PYG[name], typed_edges(400, 5)
    arguments = moved(case.inputs(edges, torch.float64), device, torch.float32)
    results: list[list[Tensor]] = []
    for config in (Config(), Config(cuda_graph=True)):
        layer = filled(case.make(edges), device, torch.float32)
        for parameter in layer.parameters():
            parameter.register_hook(lambda g: g * 2)
        model = dacergnn.optimize(layer, config=config, on_unsupported="error")
        results.append(steps(DistributedDataParallel(model) if parallel else model, layer, arguments))
    torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-6)

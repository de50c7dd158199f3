"""Calls on a device: captured and replayed, on side streams, without waiting for it, with torch's memory alone."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import dacergnn
from benchmarks.relational.replay import replayed
from dacergnn import Config
from tests.frontends.graphs import typed_edges
from tests.gpu.layers import NATIVE, PYG, Values, filled, hub_edges, moved, native


def trained(layer: Any, x: Tensor, graph: Any) -> list[Tensor]:
    """Output, and the gradients of features and parameters for fixed gradients of it."""
    out = layer(x, graph)
    weights = torch.linspace(-1, 1, out.numel(), device=out.device, dtype=out.dtype).view(out.shape)
    return [out.detach(), *torch.autograd.grad(out, [x, *layer.parameters()], weights)]


def assert_equal(found: list[Tensor], wanted: list[Tensor]) -> None:
    """The same bits: kernels add in one order."""
    for number, (a, b) in enumerate(zip(found, wanted, strict=True)):
        assert torch.equal(a, b), f"tensor {number} is off by {(a - b).abs().max().item():.1e}"


@pytest.mark.parametrize("name", NATIVE)
def test_the_same_bits_in_every_call(name: str, device: torch.device) -> None:
    layer, x, graph = native(name, hub_edges(), device, torch.float32, 64)
    first = trained(layer, x, graph)
    for _ in range(3):
        assert_equal(trained(layer, x, graph), first)


@pytest.mark.parametrize("name", NATIVE)
def test_replays_compute_on_what_the_inputs_hold_then(name: str, device: torch.device) -> None:
    layer, x, graph = native(name, typed_edges(400, 5), device, torch.float32)
    step = replayed(lambda: trained(layer, x, graph))
    for seed in (7, 8):
        with torch.no_grad():
            x.copy_(Values(device, x.dtype)(*x.shape, seed=seed))
            for parameter in layer.parameters():
                parameter.mul_(0.75)
        found = [t.clone() for t in step()]
        assert_equal(found, trained(layer, x, graph))


@pytest.mark.parametrize("name", NATIVE)
def test_every_group_of_operators_is_timed(name: str, device: torch.device) -> None:
    layer, x, graph = native(name, hub_edges(), device, torch.float32, 64)
    expected = trained(layer, x, graph)
    profile = dacergnn.profile(layer, x, graph)
    assert {operator.role for operator in profile.operators} == {"forward", "backward"}
    assert all(operator.ms > 0 for operator in profile.operators)
    assert profile.forecast is not None
    assert all(operator.measured_ms and operator.kernels for operator in profile.forecast.operators)
    assert_equal(trained(layer, x, graph), expected)


def training(name: str, device: torch.device) -> tuple[Tensor, Callable[[], Tensor], list[Tensor]]:
    """Features; a step of training, forward, backward and optimizer, that gives the loss; the parameters."""
    layer, x, graph = native(name, typed_edges(400, 5), device, torch.float32)
    x = x.detach()
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.01, capturable=True)

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = layer(x, graph).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return x, step, list(layer.parameters())


@pytest.mark.parametrize("name", NATIVE)
def test_a_whole_training_step_is_captured(name: str, device: torch.device) -> None:
    """Replayed on other features each time, it gives the losses and parameters of the same steps one by one."""
    (x, step, parameters), (other_x, other_step, other_parameters) = (training(name, device) for _ in range(2))
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
            other_step()
    torch.cuda.current_stream().wait_stream(side)
    recording = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recording):
        loss = step()
    for seed in (7, 8, 9):
        for features in (x, other_x):
            features.copy_(Values(device, x.dtype)(*x.shape, seed=seed))
        recording.replay()
        torch.testing.assert_close(loss, other_step(), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(parameters, other_parameters, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", PYG)
def test_inference_of_a_library_layer_is_captured(name: str, device: torch.device) -> None:
    pytest.importorskip("torch_geometric")
    case, edges = PYG[name], typed_edges(400, 5)
    layer = dacergnn.optimize(filled(case.make(edges), device, torch.float32), on_unsupported="error")
    args, _ = moved(case.inputs(edges, torch.float64), device, torch.float32)

    def call() -> list[Tensor]:
        with torch.no_grad():
            out = layer(*args)
        return list(out.values()) if isinstance(out, dict) else [out]

    wanted = [t.clone() for t in call()]
    step = replayed(call)
    assert_equal([t.clone() for t in step()], wanted)


@pytest.mark.parametrize("name", PYG)
def test_training_with_a_graph_of_its_own(name: str, device: torch.device) -> None:
    """`cuda_graph=True`: a few steps end at the same parameters."""
    pytest.importorskip("torch_geometric")
    case, edges = PYG[name], typed_edges(400, 5)
    ends: list[list[Tensor]] = []
    for config in (Config(), Config(cuda_graph=True)):
        layer = filled(case.make(edges), device, torch.float32)
        fast = dacergnn.optimize(layer, config=config, on_unsupported="error")
        args, _ = moved(case.inputs(edges, torch.float64), device, torch.float32)
        optimizer = torch.optim.SGD(fast.parameters(), lr=0.01)
        for _ in range(6):
            optimizer.zero_grad()
            out = fast(*args)
            parts = list(out.values()) if isinstance(out, dict) else [out]
            sum(part.square().mean() for part in parts).backward()
            optimizer.step()
        ends.append([p.detach().clone() for p in fast.parameters()])
    for a, b in zip(*ends, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NATIVE)
def test_side_streams(name: str, device: torch.device) -> None:
    """Kernels follow torch's current stream: what a slow stream has yet to write is waited for, and not the default."""
    layer, x, graph = native(name, hub_edges(), device, torch.float32, 64)
    wanted = trained(layer, x, graph)
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream(device) for _ in range(2)]
    results: list[list[Tensor]] = []
    inputs: list[Tensor] = []
    for stream in streams:
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            late = torch.zeros_like(x).requires_grad_()
            torch.cuda._sleep(50_000_000)
            with torch.no_grad():
                late.copy_(x)
            inputs.append(late)
            results.append(trained(layer, late, graph))
    torch.cuda.synchronize()
    for result in results:
        assert_equal(result, wanted)


@pytest.mark.parametrize("name", NATIVE)
def test_calls_do_not_wait_for_the_device(name: str, device: torch.device) -> None:
    layer, x, graph = native(name, typed_edges(400, 5), device, torch.float32)
    trained(layer, x, graph)
    mode = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = trained(layer, x, graph)
        with torch.no_grad():
            layer(x, graph)
    finally:
        torch.cuda.set_sync_debug_mode(mode)
    assert found[0].isfinite().all()


@pytest.mark.parametrize("name", NATIVE)
def test_calls_return_before_the_device_is_done(name: str, device: torch.device) -> None:
    layer, x, graph = native(name, typed_edges(400, 5), device, torch.float32)
    trained(layer, x, graph)
    torch.cuda.synchronize()
    done = torch.cuda.Event()
    torch.cuda._sleep(2_000_000_000)  # about a second
    trained(layer, x, graph)
    done.record()
    assert not done.query()
    torch.cuda.synchronize()


@pytest.mark.alone
@pytest.mark.parametrize("name", NATIVE)
def test_no_memory_but_torchs(name: str, device: torch.device) -> None:
    layer, x, graph = native(name, hub_edges(), device, torch.float32, 64)
    trained(layer, x, graph)

    def elsewhere() -> int:
        """Bytes of the device that are taken, and not by torch's allocator."""
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info(device)
        return total - free - torch.cuda.memory_reserved(device)

    before = elsewhere()
    for _ in range(5):
        trained(layer, x, graph)
    assert elsewhere() == before


@pytest.mark.parametrize("name", NATIVE)
def test_what_a_forward_saves_is_freed(name: str, device: torch.device) -> None:
    layer, x, graph = native(name, hub_edges(), device, torch.float32, 64)
    trained(layer, x, graph)
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated(device)
    for backward in (True, False):  # by the backward, or with the result that nobody needs any more
        out = layer(x, graph)
        assert torch.cuda.memory_allocated(device) > before
        if backward:
            torch.autograd.grad(out.sum(), list(layer.parameters()))
        del out
        gc.collect()
        assert torch.cuda.memory_allocated(device) == before


def test_second_backward_with_the_graph_retained(device: torch.device) -> None:
    layer, x, graph = native("rgat", typed_edges(400, 5), device, torch.float32)
    out = layer(x, graph)
    first = torch.autograd.grad(out.sum(), [x], retain_graph=True)
    assert_equal(list(torch.autograd.grad(out.sum(), [x])), list(first))


def test_every_device(device: torch.device) -> None:
    """Kernels run where the tensors are, whatever the current device is."""
    if torch.cuda.device_count() < 2:
        pytest.skip("one device only")
    results: list[list[Tensor]] = []
    for index in range(torch.cuda.device_count()):
        layer, x, graph = native("hgt", typed_edges(400, 5), torch.device("cuda", index), torch.float32)
        found = trained(layer, x, graph)
        assert all(t.device.index == index for t in found)
        results.append([t.cpu() for t in found])
    assert torch.cuda.current_device() == device.index
    for result in results[1:]:
        for a, b in zip(result, results[0], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)

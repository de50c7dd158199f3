"""Layers whose calls are replayed as CUDA graphs, in emulation: values and gradients of layers that are just called."""

from __future__ import annotations

import copy
import gc
import random
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dace
import pytest
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn import Config
from dacergnn.errors import ArrayError, DacergnnError, DeviceError, UnsupportedCallError
from dacergnn.graph import HeteroGraph
from dacergnn.library_nodes import GraphOperator
from dacergnn.modules import RGCN
from dacergnn.report import layer_report
from dacergnn.runtime import cuda_executable
from tests.support.emulated_device import emulated_device
from tests.support.emulated_graph import EmulatedRecorder, Tape, emulated_graphs
from tests.support.random_graphs import joined_graph

__all__ = ["emulated_device", "emulated_graphs"]
Recorder = type[EmulatedRecorder]
pytestmark = pytest.mark.usefixtures("emulated_graphs")
RAW = joined_graph(random.Random(3), 5, 90, 4, 3)


@pytest.fixture
def graph() -> Any:
    return RAW.hetero()


@pytest.fixture
def layers(emulated_device: Config) -> tuple[RGCN, RGCN]:
    """Two layers with equal parameters, of which the first replays its calls."""
    torch.manual_seed(0)
    replaying = RGCN(16, 16, RAW.num_edge_types, config=replace(emulated_device, cuda_graph=True))
    plain = RGCN(16, 16, RAW.num_edge_types, config=emulated_device)
    plain.load_state_dict(replaying.state_dict())
    return replaying, plain


def features(seed: int, *, grad: bool = True) -> Tensor:
    return torch.randn(5, 16, generator=torch.Generator().manual_seed(seed)).requires_grad_(grad)


def gradients(layer: nn.Module, graph: Any, x: Tensor) -> list[Tensor]:
    layer.zero_grad()
    x.grad = None
    out = layer(x, graph)
    out.square().sum().backward()
    return [out.detach(), *[t.grad.clone() for t in (x, *layer.parameters()) if t.grad is not None]]


def assert_same(found: list[Tensor], expected: list[Tensor]) -> None:
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_training_steps(layers: tuple[RGCN, RGCN], graph: Any, emulated_graphs: Recorder) -> None:
    optimizers = [torch.optim.SGD(layer.parameters(), lr=1e-3) for layer in layers]
    for step in range(4):
        found, expected = (gradients(layer, graph, features(step)) for layer in layers)
        assert_same(found, expected)
        for optimizer in optimizers:
            optimizer.step()
    assert emulated_graphs.count == 2  # the second call forward and backward, and no other


def test_inference(layers: tuple[RGCN, RGCN], graph: Any, emulated_graphs: Recorder) -> None:
    with torch.no_grad():
        outputs = [[layer(features(step, grad=False), graph) for step in range(4)] for layer in layers]
    assert_same(*outputs)  # of later calls, earlier results do not know
    assert emulated_graphs.count == 1


def test_sdfgs_that_are_loaded(layers: tuple[RGCN, RGCN], graph: Any, tmp_path: Path) -> None:
    """What was recorded before is replayed no more."""
    replaying, plain = layers
    for step in range(3):
        gradients(replaying, graph, features(step))
    *_, forward, _ = replaying.save_sdfg(tmp_path)
    sdfg = dace.SDFG.from_file(str(forward))
    (state,) = sdfg.states()
    (last,) = [n for n in state.nodes() if isinstance(n, GraphOperator) and "bias" in n.read_arrays]
    target, value = last.body[-1].split(" = ")
    last.body = [*last.body[:-1], f"{target} = ({value}) * 2.0"]
    sdfg.save(str(forward))
    replaying.load_sdfg(tmp_path)
    for step in range(4):
        x = features(step)
        torch.testing.assert_close(replaying(x, graph).detach(), 2 * plain(x, graph).detach())
    replaying.unload_sdfg()
    for step in range(4):
        assert_same(*[gradients(layer, graph, features(step)) for layer in layers])


def test_gradients_add_up(layers: tuple[RGCN, RGCN], graph: Any) -> None:
    for layer in layers:
        gradients(layer, graph, features(0))
        layer.zero_grad(set_to_none=False)
        for step in range(3):
            layer(features(step), graph).square().sum().backward()
    assert_same(*[[p.grad for p in layer.parameters() if p.grad is not None] for layer in layers])


def test_calls_before_the_backward_of_the_last_one(layers: tuple[RGCN, RGCN], graph: Any) -> None:
    """What a backward will read is not overwritten."""
    results: list[list[Tensor]] = []
    for layer in layers:
        gradients(layer, graph, features(0))
        gradients(layer, graph, features(1))
        layer.zero_grad()
        total = sum((layer(features(step), graph).square().sum() * (step + 1) for step in range(3)), torch.zeros(()))
        total.backward()
        results.append([p.grad for p in layer.parameters() if p.grad is not None])
    assert_same(*results)


def test_backward_twice(layers: tuple[RGCN, RGCN], graph: Any, emulated_graphs: Recorder) -> None:
    results: list[list[Tensor]] = []
    for layer in layers:
        gradients(layer, graph, features(0))
        gradients(layer, graph, features(1))
        loss = layer(features(2), graph).square().sum()
        first = torch.autograd.grad(loss, list(layer.parameters()), retain_graph=True)
        layer(features(3), graph)
        results.append([*first, *torch.autograd.grad(loss, list(layer.parameters()))])
    assert_same(*results)
    assert emulated_graphs.count == 2


def test_memory_that_nobody_holds_is_not_read(layers: tuple[RGCN, RGCN], graph: Any) -> None:
    """Hooks on saved tensors may let go of what tells that a backward is to come."""
    layer = layers[0]
    gradients(layer, graph, features(0))
    gradients(layer, graph, features(1))
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        first = layer(features(2), graph)
    layer(features(3), graph)
    with pytest.raises(DeviceError, match="overwritten by a later one; call backward before"):
        first.sum().backward()


def test_parameters_written_to_before_a_backward(layers: tuple[RGCN, RGCN], graph: Any) -> None:
    layer = layers[0]
    gradients(layer, graph, features(0))
    gradients(layer, graph, features(1))
    out = layer(features(2), graph)
    with torch.no_grad():
        layer.W.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_checkpoints(layers: tuple[RGCN, RGCN], graph: Any) -> None:
    from torch.utils.checkpoint import checkpoint

    results: list[list[Tensor]] = []
    for layer in layers:
        for step in range(3):
            layer.zero_grad()
            out: Any = checkpoint(layer, features(step), graph, use_reentrant=False)
            out.square().sum().backward()
        results.append([p.grad for p in layer.parameters() if p.grad is not None])
    assert_same(*results)


def test_what_differs_is_another_recording(layers: tuple[RGCN, RGCN], graph: Any, emulated_graphs: Recorder) -> None:
    layer, plain = layers
    other = RAW.hetero()
    for make in (lambda: features(1), lambda: features(1, grad=False), lambda: features(1).detach().T.contiguous().T):
        for _ in range(3):
            assert_same(gradients(layer, graph, make()), gradients(plain, graph, make()))
    assert emulated_graphs.count == 6
    assert_same(gradients(layer, other, features(1)), gradients(plain, other, features(1)))
    assert emulated_graphs.count == 6
    layer.W = plain.W = nn.Parameter(torch.randn_like(layer.W))
    for _ in range(3):
        assert_same(gradients(layer, graph, features(1)), gradients(plain, graph, features(1)))
    assert emulated_graphs.count == 8


def test_parameters_in_other_memory(layers: tuple[RGCN, RGCN], graph: Any) -> None:
    layer, plain = layers
    for step in range(4):
        assert_same(gradients(layer, graph, features(1)), gradients(plain, graph, features(1)))
        if step == 1:
            for p, q in zip(layer.parameters(), plain.parameters(), strict=True):
                p.data = q.data = torch.randn_like(p)


def test_parameters_that_are_trained_later(layers: tuple[RGCN, RGCN], graph: Any) -> None:
    for step in range(6):
        found, expected = (layer.requires_grad_(step >= 3)(features(step, grad=False), graph) for layer in layers)
        torch.testing.assert_close(found, expected)
        assert found.requires_grad == expected.requires_grad == (step >= 3)


def test_copies_and_pickles_begin_anew(layers: tuple[RGCN, RGCN], graph: Any, emulated_graphs: Recorder) -> None:
    layer, plain = layers
    for step in range(2):
        gradients(layer, graph, features(step))
    assert_same(gradients(copy.deepcopy(layer), graph, features(5)), gradients(plain, graph, features(5)))
    assert emulated_graphs.count == 2


def test_reports_tell(layers: tuple[RGCN, RGCN], graph: Any) -> None:
    for expected in (None, "CUDA graphs replay 1 kind of calls"):
        gradients(layers[0], graph, features(0))
        assert layer_report("", layers[0], layers[0].notes).calls == expected


def test_layers_of_pyg(emulated_device: Config, emulated_graphs: Recorder) -> None:
    pyg = pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(0)
    original = pyg.RGCNConv(16, 16, RAW.num_edge_types)
    edge_index = torch.stack([torch.from_numpy(RAW.src), torch.from_numpy(RAW.dst)])
    edge_type = torch.from_numpy(RAW.edge_type)
    fast = dacergnn.optimize(original, config=replace(emulated_device, cuda_graph=True))
    for step in range(4):
        results: list[list[Tensor]] = []
        for layer in (original, fast):
            original.zero_grad()
            x = features(step)
            out = layer(x, edge_index, edge_type)
            out.square().sum().backward()
            assert x.grad is not None
            results.append([out.detach(), x.grad, *[p.grad.clone() for p in original.parameters()]])
        for a, b in zip(*results, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-3)
    assert emulated_graphs.count == 2
    edge_type[0] = (edge_type[0] + 1) % RAW.num_edge_types
    torch.testing.assert_close(
        fast(features(9), edge_index, edge_type), original(features(9), edge_index, edge_type), rtol=1e-4, atol=1e-3
    )


def test_weights_of_edges_that_change(emulated_device: Config, emulated_graphs: Recorder) -> None:
    """Their coefficients are kept with the graph otherwise."""
    pyg = pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(0)
    original = pyg.GCNConv(16, 16)
    edge_index = torch.stack([torch.from_numpy(RAW.src), torch.from_numpy(RAW.dst)])
    fast = dacergnn.optimize(original, config=replace(emulated_device, cuda_graph=True), on_unsupported="error")
    for step in range(5):
        weight = torch.rand(edge_index.size(1), generator=torch.Generator().manual_seed(step))
        with torch.no_grad():
            found, expected = (layer(features(step), edge_index, weight) for layer in (fast, original))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3)
    assert emulated_graphs.count == 1


def test_streams_that_read_a_graph_are_noted(
    layers: tuple[RGCN, RGCN], graph: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its memory is not to be used otherwise before they are done."""
    streams = [SimpleNamespace(cuda_stream=1), SimpleNamespace(cuda_stream=2)]
    noted: list[Any] = []
    monkeypatch.setattr(HeteroGraph, "record_stream", lambda self, stream: noted.append(stream))
    with torch.no_grad():
        for stream in (*streams, *streams):
            monkeypatch.setattr(cuda_executable, "current_stream", lambda device, stream=stream: nullcontext(stream))
            layers[1](features(0), graph)
    assert noted == streams


def test_recordings_need_a_call_before(layers: tuple[RGCN, RGCN], graph: Any) -> None:
    with torch.no_grad():
        layers[1](features(0), graph)
    with Tape(), pytest.raises(DeviceError) as error:
        layers[1](features(0), graph)
    assert "has not run on this graph yet" in str(error.value)
    assert str(error.value).endswith("make the call once before, with gradients if they are recorded.")


def test_graphs_that_are_met_in_a_recording(emulated_device: Config) -> None:
    pyg = pytest.importorskip("torch_geometric.nn")
    fast = dacergnn.optimize(pyg.RGCNConv(16, 16, RAW.num_edge_types), config=emulated_device)
    edge_index = torch.stack([torch.from_numpy(RAW.src), torch.from_numpy(RAW.dst)])
    with (
        Tape(),
        pytest.raises(DeviceError, match="cannot be encoded while a CUDA graph is recorded; make the call once"),
    ):
        fast(features(0), edge_index, torch.from_numpy(RAW.edge_type))
    tensors = (torch.from_numpy(RAW.src),)
    with Tape(), pytest.raises(UnsupportedCallError, match="its edges are made during the call"):
        fast.graphs.find_edges(tensors, (), False, lambda: graph)


def test_recordings_of_users(layers: tuple[RGCN, RGCN], graph: Any, emulated_graphs: Recorder) -> None:
    """A whole training step, forward, backward and optimizer, as one recording of the user's."""
    replaying, plain = layers
    results: list[list[Tensor]] = []
    for layer in (replaying, plain):
        x, optimizer = features(0, grad=False), torch.optim.SGD(layer.parameters(), lr=1e-3)

        def step(layer: nn.Module = layer, x: Tensor = x, optimizer: Any = optimizer) -> Tensor:
            optimizer.zero_grad(set_to_none=True)
            loss = layer(x, graph).square().sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        losses = [step().clone()]
        with Tape() if layer is plain else nullcontext() as tape:
            loss = step()
        losses.append(loss.clone())
        for number in range(1, 4):
            x.copy_(features(number))
            if tape is None:
                loss = step()
            else:
                tape.replay()
            losses.append(loss.clone())
        results.append([*losses, *[p.detach() for p in layer.parameters()]])
    assert_same(*results)


def test_layers_inside_recordings_of_users(layers: tuple[RGCN, RGCN], graph: Any, emulated_graphs: Recorder) -> None:
    layer, plain = layers
    x = features(0, grad=False)
    with torch.no_grad():
        for _ in range(3):
            layer(x, graph)
        count = emulated_graphs.count
        with Tape() as tape:
            out = layer(x, graph)
        x.copy_(features(1))
        tape.replay()
        torch.testing.assert_close(out, plain(x, graph))
    assert emulated_graphs.count == count


def test_calls_that_read_are_named(layers: tuple[RGCN, RGCN], graph: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = layers[0]
    eager = layer._eager  # pyright: ignore[reportPrivateUsage]

    def reads(graph: Any, x: Tensor) -> tuple[Tensor, ...]:
        assert bool((x == x).all())
        return eager(graph, x)

    monkeypatch.setattr(layer, "_eager", reads)
    layer(features(0), graph)
    with pytest.raises(DeviceError, match=r"cannot be recorded .* not permitted[^\n]*\nOptimize without cuda_graph"):
        layer(features(0), graph)


def test_graphs_on_the_cpu(graph: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()
    monkeypatch.setattr(EmulatedRecorder, "kind", "cuda")
    message = (
        "{} is on cpu, but cuda_graph=True records calls on CUDA devices; move model, graph and inputs there with "
        ".to('cuda'), or leave cuda_graph out."
    )
    with pytest.raises(ArrayError) as error:
        dacergnn.optimize(nn.Identity(), graph, config=Config(cuda_graph=True))
    assert str(error.value) == message.format("graph")
    with pytest.raises(ArrayError) as error:
        RGCN(16, 16, 4, config=Config(cuda_graph=True))(features(0), graph)
    assert str(error.value) == message.format("the call")


def test_implementations_without_graphs() -> None:
    with pytest.raises(DacergnnError) as error:
        Config(implementation="cpu", cuda_graph=True)
    assert str(error.value) == (
        "cuda_graph=True records calls of CUDA programs, but implementation='cpu'; leave one of them out."
    )


def test_builds_do_not_depend_on_it() -> None:
    assert Config(cuda_graph=True).on("cuda") == Config().on("cuda") == Config(implementation="cuda")

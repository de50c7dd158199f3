"""Models of layers: `optimize` runs them as one where it can, and layer by layer otherwise."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint
from torch_geometric.nn import GATv2Conv, GCNConv, GINConv, GraphConv, SAGEConv
from torch_geometric.utils import to_torch_csr_tensor

import dacergnn
from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.symbolic import trace
from dacergnn.frontends.symbolic.steps import ProgramRun
from dacergnn.modules.capture.captured_forward import CapturedForward
from dacergnn.modules.graph_forward import compiled_forwards

K = 8
LAYERS: dict[str, Callable[[], nn.Module]] = {
    "GCN": lambda: GCNConv(K, K),
    "SAGE": lambda: SAGEConv(K, K),
    "GIN": lambda: GINConv(nn.Sequential(nn.Linear(K, K), nn.ReLU(), nn.Linear(K, K))),
    "GATv2": lambda: GATv2Conv(K, K // 2, heads=2, dropout=0.5),
    "GraphConv": lambda: GraphConv(K, K, aggr="max"),
}


class Net(nn.Module):
    """Has norms, dropout and residuals between layers, and a head behind them."""

    convs: Any
    norms: Any

    def __init__(self, layer: Callable[[], nn.Module], depth: int = 2) -> None:
        super().__init__()
        self.convs = nn.ModuleList([layer() for _ in range(depth)])
        self.norms = nn.ModuleList([nn.LayerNorm(K) for _ in range(depth)])
        self.head, self.scale = nn.Linear(K, 3), 1.0

    def forward(self, x: Tensor, edges: Any) -> Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = x + F.dropout(norm(conv(x, edges)).relu(), 0.25, self.training) * self.scale
        return self.head(x)


def net(name: str = "SAGE", depth: int = 2) -> Any:
    torch.manual_seed(0)
    return Net(LAYERS[name], depth).double()


def call(nodes: int = 20, edges: int = 70) -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(nodes)
    x = torch.randn(nodes, K, generator=draws, dtype=torch.float64, requires_grad=True)
    return x, torch.randint(nodes, (2, edges), generator=draws)


def optimized(model: nn.Module, **options: Any) -> tuple[Any, Any]:
    """Returns a copy of a model with state of its own, and what optimize makes of another one."""
    return copy.deepcopy(model), dacergnn.optimize(copy.deepcopy(model), **options)


def runner(fast: nn.Module) -> CapturedForward:
    (forward,) = compiled_forwards(fast)
    assert isinstance(forward, CapturedForward)
    return forward


def assert_same_step(fast: nn.Module, model: nn.Module, x: Tensor, edges: Any) -> None:
    """Compares results, gradients, buffers and the state of random numbers after a step with the same seed."""
    found: list[list[Tensor]] = []
    for module in (fast, model):
        torch.manual_seed(1)
        module.zero_grad()
        x.grad = None
        out = module(x, edges)
        out.square().sum().backward()
        given = [p.grad for p in (x, *module.parameters())]
        found.append([out, *[g for g in given if g is not None], *module.buffers(), torch.rand(1)])
    assert len(found[0]) == len(found[1])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", LAYERS)
def test_a_model_runs_as_one(name: str) -> None:
    """In training and without gradients, for graphs of all sizes; nothing of it falls back."""
    model, fast = optimized(net(name))
    for sizes in ((20, 70), (20, 70), (13, 90), (31, 31)):
        assert_same_step(fast, model, *call(*sizes))
    for module in (model, fast):
        module.eval()
    with torch.no_grad():
        torch.testing.assert_close(fast(*call()), model(*call()), rtol=1e-9, atol=1e-9)
    (layer,) = dacergnn.explain(fast).layers
    assert layer.layer == "Net"
    assert runner(fast).runs_whole
    for graph in runner(fast).graphs:
        for _, network in graph.networks:
            assert sum(isinstance(step, ProgramRun) for step in network.steps) == 1


def test_what_is_changed_counts() -> None:
    """Layers, parameters, options and hooks, on the model and within it."""
    model, fast = optimized(net())
    assert_same_step(fast, model, *call())
    torch.manual_seed(3)
    other = SAGEConv(K, K, aggr="max").double()
    seen: list[int] = []
    for module in (fast, model):
        parts: Any = module
        parts.convs[0] = copy.deepcopy(other)
        parts.convs[1].lin_l.weight = nn.Parameter(torch.ones(K, K, dtype=torch.float64))
        parts.scale = 0.5
        parts.convs[1].register_forward_hook(lambda *given: seen.append(1) or given[-1] * 2)
    assert_same_step(fast, model, *call())
    assert seen == [1, 1]


def test_copies_and_pickles() -> None:
    model, fast = optimized(net())
    assert_same_step(fast, model, *call())
    assert isinstance(fast, Net)
    assert fast.state_dict().keys() == model.state_dict().keys()
    for other in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
        assert_same_step(other, copy.deepcopy(model), *call())
        assert runner(other).runs_whole
    assert type(dacergnn.revert(fast)) is Net


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.parametrize("name", ["GCN", "SAGE"])
def test_sparse_adjacencies_run_layer_by_layer(name: str) -> None:
    """Without a warning, since the layers are compiled, also after calls that ran as one."""
    model, fast = optimized(net(name), on_unsupported="error")
    assert_same_step(fast, model, *call())
    x, edges = call()
    edges = to_torch_csr_tensor(edges.unique(dim=1), size=(len(x), len(x))).double()
    for _ in range(2):
        assert_same_step(fast, model, x, edges)
    kinds = [layer.layer for layer in dacergnn.explain(fast).layers]
    assert kinds == ["Net", *[type(conv).__name__ for conv in model.convs]]


def test_running_statistics() -> None:
    """Torch computes batch norms of a training step, between programs."""
    model = net("GIN")
    model.norms[0] = nn.BatchNorm1d(K).double()
    model, fast = optimized(model)
    for sizes in ((20, 70), (20, 70), (13, 90)):
        assert_same_step(fast, model, *call(*sizes))
    assert runner(fast).runs_whole


class Checked(nn.Module):
    """Checkpoints its first layer, whose forward torch runs within an operator."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = SAGEConv(K, K), SAGEConv(K, K)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        h = checkpoint(self.first, x, edges, use_reentrant=False)
        return self.second(h.relu(), edges)


def test_checkpoints_run_layer_by_layer() -> None:
    model, fast = optimized(Checked().double())
    for _ in range(2):
        assert_same_step(fast, model, *call())
    assert "layer by layer" in str(dacergnn.explain(fast))


@pytest.mark.parametrize(
    "config",
    [dacergnn.Config(level="O0"), dacergnn.Config(memory="1 MiB"), dacergnn.Config(passes=())],
    ids=["level", "memory", "passes"],
)
def test_options_about_layers_run_layer_by_layer(config: dacergnn.Config) -> None:
    model, fast = optimized(net(), config=config)
    assert_same_step(fast, model, *call())
    assert not compiled_forwards(fast)


def test_autocast_runs_layer_by_layer() -> None:
    model, fast = optimized(net().float())
    x, edges = call()
    for _ in range(2):
        with torch.autocast("cpu", torch.bfloat16):
            found, expected = [m.eval()(x.detach().float(), edges) for m in (fast, model)]
        assert found.dtype is expected.dtype is torch.bfloat16
        torch.testing.assert_close(found, expected, rtol=0.1, atol=0.1)
    assert_same_step(fast.double(), model.double(), x, edges)


def test_lazy_layers() -> None:
    torch.manual_seed(0)
    fast = dacergnn.optimize(Net(lambda: SAGEConv((-1, -1), K)).double())
    x, edges = call()
    fast(x, edges)
    model = copy.deepcopy(dacergnn.revert(fast))
    assert_same_step(fast, model, x, edges)
    assert runner(fast).runs_whole


def test_wrong_arguments_are_errors_of_the_call() -> None:
    """Calls with right ones run as one afterwards."""
    model, fast = optimized(net())
    x, edges = call()
    wrong = edges.clone()
    wrong[0, 3] = 99
    for _ in range(2):
        with pytest.raises(IndexError):
            fast(x, wrong)
        with pytest.raises(RuntimeError):
            fast(x[:, :3], edges)
        assert_same_step(fast, model, x, edges)
    with pytest.raises(IndexError):
        fast(x, wrong)
    assert_same_step(fast, model, x, edges)
    assert runner(fast).runs_whole


def test_deep_models_repeat_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No program grows with the depth, and equal blocks share a build."""
    monkeypatch.setattr(trace, "_LARGE", 20)
    model, fast = optimized(net("GCN", depth=9))
    assert_same_step(fast, model, *call())
    ((_, network),) = runner(fast).graphs[0].networks
    programs = [step.program for step in network.steps if isinstance(step, ProgramRun)]
    assert len(programs) > len({*programs}) > 1
    assert max(len(str(program.source)) for program in programs) < 2000


class Changing(nn.Module):
    """Does something beside its layer, by name."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.conv, self.kind = GraphConv(K, K), kind
        self.count, self.before = 0, torch.zeros(())

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        if self.kind == "counts":
            self.count += 1
        elif self.kind == "draws by NumPy":
            x = x * torch.from_numpy(np.random.rand(K))  # noqa: NPY002 – its global state is what this is about
        h = self.conv(x, edges) + self.count
        if self.kind == "adds the last result":
            h = h + self.before.detach()
            self.before = h
        return h


@pytest.mark.parametrize("kind", ["counts", "draws by NumPy", "adds the last result"])
def test_what_a_forward_does_beside_its_layers(kind: str) -> None:
    """A number that every call changes has no more calls captured than some."""
    torch.manual_seed(0)
    model, fast = optimized(Changing(kind).double())
    x, edges = call()
    for seed in range(7):
        found: list[list[Any]] = []
        for module in (model, fast):
            np.random.seed(seed)  # noqa: NPY002
            out = module(x, edges)
            gradients = torch.autograd.grad(out.square().sum(), [x, *module.parameters()])
            found.append([out, *gradients, torch.tensor(np.random.rand(1)), torch.tensor(module.count)])  # noqa: NPY002
        for a, b in zip(*found, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
    assert runner(fast).runs_whole == (kind != "counts")
    assert len(runner(fast).graphs) <= 4


def test_hooks_of_messages_run() -> None:
    """Also hooks that come after calls that ran as one; PyG leaves them out where torch captures a layer."""
    model, fast = optimized(net())
    assert_same_step(fast, model, *call())
    for module in (model, fast):
        module.convs[1].register_message_forward_hook(lambda layer, given, messages: 2 * messages)
    with pytest.warns(UserWarning, match="message_forward_hooks"):
        assert_same_step(fast, model, *call())


def test_nothing_is_kept_alive() -> None:
    """Neither a model, nor the edges of former calls from which others were made."""
    fast = optimized(net("GCN"))[1]
    edges: list[weakref.ref[Tensor]] = []
    with torch.no_grad():
        for nodes in (20, 21, 22):
            x, index = call(nodes)
            fast(x, index)
            edges.append(weakref.ref(index))
    del index
    gc.collect()
    assert [edge() for edge in edges] == [None] * 3
    model = weakref.ref(fast)
    del fast
    gc.collect()
    assert model() is None


def test_sdfgs_of_a_model(tmp_path: Path) -> None:
    fast = optimized(net())[1]
    with pytest.raises(UnsupportedCallError, match="no call of this Net has run as one yet"):
        fast.save_sdfg(tmp_path)
    fast(*call())
    assert fast.save_sdfg(tmp_path)[0].name == "00_frontend.sdfg"
    with pytest.raises(UnsupportedCallError, match=r"has not been called yet.* have a save_sdfg"):
        fast.convs[0].save_sdfg(tmp_path)


@pytest.mark.parametrize("place", ["class", "layer"])
def test_methods_that_are_replaced_later(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """On a class, of which torch sees nothing, or on a layer."""
    model, fast = optimized(net())
    assert_same_step(fast, model, *call())
    for layer in [SAGEConv] if place == "class" else [model.convs[0], fast.convs[0]]:
        given = (lambda self, x_j: x_j * x_j) if place == "class" else (lambda x_j: x_j * x_j)
        monkeypatch.setattr(layer, "message", given)
    for _ in range(2):
        assert_same_step(fast, model, *call())


@pytest.mark.parametrize("known", [False, True])
def test_recorded_models_are_the_original(known: bool) -> None:
    """`torch.jit.trace` writes down torch's operations, and `FakeTensorMode` has no numbers for programs."""
    model, fast = optimized(net().eval())
    for _ in range(3 * known):
        fast(*call())
    traced: Any = torch.jit.trace(fast, call(), check_trace=False)
    torch.testing.assert_close(traced(*call(13)), model(*call(13)), rtol=1e-9, atol=1e-9)
    with FakeTensorMode(allow_non_fake_inputs=True), pytest.warns(UserWarning, match="hold no numbers"):
        assert fast(torch.empty(9, K, dtype=torch.double), torch.zeros(2, 5, dtype=torch.int64)).shape == (9, 3)
    torch.testing.assert_close(fast(*call(13)), model(*call(13)), rtol=1e-9, atol=1e-9)


def test_known_calls_that_change() -> None:
    """A call in which something is no more as it was is captured at once."""
    model, fast = optimized(net())
    counts: list[int] = []
    for scale in (1.0, 1.0, 2.0, 2.0, 2.0, 1.0):
        for module in (fast, model):
            module.scale = scale
        assert_same_step(fast, model, *call())
        counts.append(len(runner(fast).graphs))
    assert counts == [1, 1, 2, 2, 2, 2]
    assert runner(fast).runs_whole


def test_torch_may_be_told_not_to_compile() -> None:
    """By a stance, at any time, or altogether."""
    model, fast = optimized(net())
    for _ in range(3):
        assert_same_step(fast, model, *call())
    with torch.compiler.set_stance("force_eager"):
        ran = runner(fast).ran
        assert_same_step(fast, model, *call())
        assert runner(fast).ran == ran
    assert_same_step(fast, model, *call())
    assert runner(fast).ran == ran + 1
    options: Any = torch._dynamo.config  # pyright: ignore[reportPrivateUsage]
    with options.patch(disable=True):
        model, fast = optimized(net())
        for _ in range(3):
            assert_same_step(fast, model, *call())

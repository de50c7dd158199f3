"""`warmup`: all builds before the first call, and nothing else changed."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import dacergnn
from dacergnn import HeteroGraph
from dacergnn.errors import ArrayError, DacergnnError
from dacergnn.modules import RGAT, RGCN
from dacergnn.modules.early_builds import ahead
from dacergnn.modules.programs import compiled_program
from dacergnn.target import find
from tests.frontends.case import Case
from tests.frontends.cases import CASES


@pytest.fixture
def graph() -> HeteroGraph:
    return dacergnn.datasets.synthetic("aifb", 0.02).graph


@pytest.fixture(autouse=True)
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of programs whose libraries were asked for; no program of another test is there."""
    compiled_program.cache_clear()
    names: list[str] = []
    executable = find(None).executable_class()
    original = executable.build

    def build(programs: Any, architectures: Any) -> None:
        names.extend(name for name, _ in programs)
        original(programs, architectures)

    monkeypatch.setattr(executable, "build", build)
    return names


class Model(nn.Module):
    """Two layers around a norm with buffers, a dropout, and an operation in place."""

    def __init__(self, relations: int) -> None:
        super().__init__()
        self.first, self.second = RGCN(6, 5, relations), RGAT(5, 4, relations)
        self.norm, self.dropout = nn.BatchNorm1d(5), nn.Dropout(0.5)
        self.calls = 0

    def forward(self, x: Tensor, graph: HeteroGraph) -> Tensor:
        self.calls += 1
        return self.second(self.dropout(self.norm(self.first(x, graph)).relu_()), graph)


def test_calls_after_it_build_nothing(graph: HeteroGraph, built: list[str]) -> None:
    model, x = Model(graph.size("R")), torch.randn(graph.size("NS"), 6)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.dropout.eval()
    state = torch.random.get_rng_state()
    dacergnn.warmup(model, x, graph)
    assert len(built) == 6  # each layer: forward and backward, and the forward of inference
    assert model.calls == 0
    assert model.training
    assert not model.dropout.training
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    found = model(x, graph)
    found.sum().backward()
    with torch.no_grad():
        model(x, graph)
    assert len(built) == 6
    expected = model.second(model.norm(model.first(x, graph)).relu_(), graph)
    torch.testing.assert_close(found, expected)
    assert found.abs().max() > 0


def test_layers_are_built_at_the_same_time(graph: HeteroGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither build ends before the other has begun."""
    executable, meeting = find(None).executable_class(), threading.Barrier(2, timeout=60)
    original = executable.build
    monkeypatch.setattr("dacergnn.modules.early_builds.os.cpu_count", lambda: 2)

    def build(programs: Any, architectures: Any) -> None:
        if len(programs) == 2:  # with a backward
            meeting.wait()
        original(programs, architectures)

    monkeypatch.setattr(executable, "build", build)
    model, x = Model(graph.size("R")), torch.randn(graph.size("NS"), 6)
    dacergnn.warmup(model, x, graph)


def test_libraries_layers_and_traced_ones(graph: HeteroGraph, built: list[str]) -> None:
    pyg = pytest.importorskip("torch_geometric.nn")
    src, dst = (graph.index("E", path).long() for path in ("src", "dst"))
    edges, x = torch.stack([src, dst]), torch.randn(graph.size("NS"), 6)
    model = pyg.Sequential(
        "x, edges",
        [(pyg.GCNConv(6, 5), "x, edges -> x"), nn.ReLU(), (pyg.TAGConv(5, 4, K=2), "x, edges -> x")],
    )
    fast: Any = dacergnn.optimize(model)
    dacergnn.warmup(fast, x, edges)
    count = len(built)
    assert count >= 6
    torch.testing.assert_close(fast(x, edges), model(x, edges))
    with torch.no_grad():
        torch.testing.assert_close(fast(x, edges), model(x, edges))
    assert len(built) == count
    assert [layer.layer for layer in dacergnn.explain(fast).layers] == [type(model).__name__]


KINDS = {(case.library, case.name.partition("-")[2].partition("-")[0]): case for case in reversed(CASES)}.values()
"""The first mode of every layer with a front end."""


@pytest.mark.parametrize("case", KINDS, ids=lambda case: case.name)
def test_every_front_end(case: Case, built: list[str]) -> None:
    """Another type is refused before anything is built, and calls after warming up build nothing."""
    pytest.importorskip("torch_geometric" if case.library == "pyg" else "dgl")
    edges = case.edges()
    layer = case.layer(edges, torch.float32)
    fast = dacergnn.optimize(layer, on_unsupported="error")
    args, kwargs = case.inputs(edges, torch.float64)
    if any(isinstance(leaf, Tensor) and leaf.is_floating_point() for leaf in tree_leaves((args, kwargs))):
        with pytest.raises((ArrayError, dacergnn.UnsupportedCallError)):
            fast(*args, **kwargs)
        assert built == []
    args, kwargs = case.inputs(edges, torch.float32)
    dacergnn.warmup(fast, *args, **kwargs)
    count = len(built)
    assert count > 0
    found, expected = fast(*args, **kwargs), layer(*args, **kwargs)
    for own, other in zip(tree_leaves(found), tree_leaves(expected), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-3, atol=1e-3)
    with torch.no_grad():
        fast(*args, **kwargs)
    assert len(built) == count


def test_functions(graph: HeteroGraph, built: list[str]) -> None:
    @dacergnn.compile
    def layer(g, x, W):  # type: ignore[no-untyped-def]
        for n in g.dst_nodes():
            n["out"] = sum(e.src.x * W[e.etype] for e in n.incoming_edges())
        return out  # noqa: F821

    x, weight = torch.randn(graph.size("NS"), 3), torch.randn(graph.size("R"), 3, 2, requires_grad=True)
    dacergnn.warmup(layer, graph, x, weight)
    assert len(built) == 3
    assert layer(graph, x, weight).abs().max() > 0
    assert len(built) == 3


def test_a_failing_build_is_raised(graph: HeteroGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise dacergnn.BuildError("the compiler has no time")

    monkeypatch.setattr(find(None).executable_class(), "build", fail)
    model = Model(graph.size("R"))
    with pytest.raises(dacergnn.BuildError, match="the compiler has no time"):
        dacergnn.warmup(model, torch.randn(graph.size("NS"), 6), graph)
    monkeypatch.undo()
    assert model(torch.randn(graph.size("NS"), 6), graph).abs().max() > 0


def test_bad_models() -> None:
    for model in ("model", lambda x: x):
        with pytest.raises(DacergnnError, match=r"model is a (str|function); pass a module that optimize returned"):
            dacergnn.warmup(model)  # type: ignore[arg-type]


def test_a_method_of_a_module(graph: HeteroGraph, built: list[str]) -> None:
    model, x = Model(graph.size("R")), torch.randn(graph.size("NS"), 6)
    spread = model.norm.running_var
    assert spread is not None
    before = spread.clone()
    dacergnn.warmup(model.forward, x, graph)
    assert torch.equal(spread, before)
    assert len(built) == 6


def test_forwards_over_graphs_of_dgl_remember_no_zeros() -> None:
    dgl = pytest.importorskip("dgl")
    import dgl.function as fn

    class Loud(nn.Module):
        @dacergnn.compile
        def forward(self, g: Any, x: Tensor) -> Tensor:
            g = g.local_var()
            g.ndata["h"] = x
            g.update_all(fn.copy_u("h", "m"), fn.sum("m", "out"))
            out = g.ndata["out"]
            return 2 * out if bool((out.detach() != 0).any()) else -out - 1

    g = dgl.graph((torch.tensor([0, 1, 2]), torch.tensor([1, 2, 0])))
    model, x = Loud(), torch.tensor([[1.0], [2.0], [3.0]])
    dacergnn.warmup(model, g, x)
    for _ in range(3):
        assert torch.equal(model(g, x), 2 * x.roll(1, 0))
        with torch.no_grad():
            assert torch.equal(model(g, x), 2 * x.roll(1, 0))


@pytest.mark.parametrize("wrong", ["columns", "rows", "type"])
def test_bad_inputs_are_refused_before_anything_is_built(graph: HeteroGraph, built: list[str], wrong: str) -> None:
    x = torch.randn(graph.size("NS"), 6)
    bad = {"columns": x[:, :5], "rows": x[:-1], "type": x.double()}[wrong]
    layer = RGCN(6, 5, graph.size("R"))
    for warm in (False, True):
        with pytest.raises(ArrayError, match="x has"):
            dacergnn.warmup(layer, bad, graph) if warm else layer(bad, graph)
    assert built == []


def test_programs_check_inputs_first(graph: HeteroGraph, built: list[str]) -> None:
    layer = RGCN(6, 5, graph.size("R"))
    with ahead():
        layer(torch.randn(graph.size("NS"), 6), graph)
    program, _ = layer.last_call
    built.clear()
    for grad in (False, True):
        compiled_program.cache_clear()
        fresh = compiled_program(program.program, torch.float32, program.index, program.config, program.profile)
        arrays = [torch.randn(2, 3, requires_grad=grad) for _ in fresh.inputs]
        with pytest.raises(ArrayError, match=r"has shape .* but the graph and the layer ask for"):
            fresh(graph, arrays)
    assert built == []

"""`profile`: the operators of the program, the same results and gradients, all kinds of models, clear errors."""

from __future__ import annotations

import threading
from pathlib import Path
from statistics import median
from typing import Any

import dace
import pytest
import torch
from dace.codegen.instrumentation.report import InstrumentationReport
from torch import Tensor, nn

import dacergnn
from dacergnn import Config, Rates
from dacergnn.errors import DacergnnError
from dacergnn.modules import RGAT, RGCN
from dacergnn.modules.layer import core_of
from dacergnn.modules.programs import compiled_program
from dacergnn.profiling import OperatorProfile, measure
from dacergnn.program import Program
from dacergnn.sdfg_passes.compilation import ROLES
from tests.modules import functions
from tests.modules.hetero_layers import WITHIN, edge_index_dict, hetero, x_dict
from tests.modules.layers import EDGES, K, R, arguments, compiled, features, rgat

RATES = Rates(1e11, 1e10, 1e10, 1e9)


@pytest.fixture(autouse=True)
def few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two calls with clocks, and no measurement of the machine."""
    monkeypatch.setattr(measure, "LEAST_CALLS", 2)
    monkeypatch.setattr(measure, "MOST_CALLS", 2)
    monkeypatch.setattr(measure, "_rates", lambda *_: RATES)


class Watched(nn.Module):
    """Keeps the results of all calls, and the gradients of its first argument."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.results: list[Tensor] = []
        self.gradients: list[Tensor] = []

    def forward(self, x: Tensor, *args: Any) -> Tensor:
        if x.requires_grad:
            x = x * 1
            x.register_hook(self.gradients.append)
        result = self.model(x, *args)
        self.results.append(result.detach().clone())
        return result


def call() -> tuple[Tensor, ...]:
    """Arguments of `rgat`; features have a gradient, so that tests share builds."""
    x, *edges = arguments()
    return x.requires_grad_(), *edges


def check(profile: OperatorProfile, *roles: str) -> None:
    """All operators have taken time, and have the roles, in this order."""
    assert [*dict.fromkeys(operator.role for operator in profile.operators)] == [*roles]
    assert all(operator.ms > 0 for operator in profile.operators)
    assert profile.call_ms > 0
    assert profile.ms == sum(operator.ms for operator in profile.operators)
    assert profile.slowest in profile.operators


def test_operators_are_those_of_the_program() -> None:
    compiled_program.cache_clear()  # other tests have made other variants of the program
    layer = compiled(rgat())
    profile = dacergnn.profile(layer, *call())
    check(profile, "forward", "backward")
    program, graph = core_of(layer).last_call or pytest.fail("the layer has not run")
    compilation = program.variants[-1].compilation
    operators = [(role, o) for role, sdfg in compilation.by_role.items() for o in Program(sdfg).operators]
    assert sorted((o.role, *o.results) for o in profile.operators) == sorted(
        (role, *o.written_arrays) for role, o in operators
    )
    report = dacergnn.explain(layer).layers[0].builds[0]
    forward = [o.cost for o in profile.operators if o.role == "forward"]
    assert sum(cost.flops for cost in forward) == report.forward.flops
    assert sum(cost.gathered for cost in forward) == report.forward.gathered
    assert {o.kind for o in profile.operators} <= {"segment GEMM", "outer product", "weight product", "traversal"}
    product = next(o for o in profile.operators if o.kind == "segment GEMM")
    assert "linear(" in product.statements[0]
    longest = max(product.cost.flops / 1e11, product.cost.streamed / 1e10, product.cost.gathered / 1e10)
    assert product.bound_ms == pytest.approx(1e3 * longest)
    assert product.roofline == pytest.approx(product.bound_ms / product.ms)
    assert graph.size("E") == EDGES.edge_index.size(1)


def test_reports_hold_the_times_of_operators(tmp_path: Path) -> None:
    profile = dacergnn.profile(compiled(rgat()), *call())
    times = {(o.role, o.results): o.ms for o in profile.operators}
    paths = profile.save_sdfg(tmp_path / "new")
    assert len(paths) == len(ROLES)
    for role, path in zip(ROLES, paths, strict=True):
        nodes: list[Any] = Program(dace.SDFG.from_file(str(path))).state.nodes()
        report = InstrumentationReport(str(path.with_suffix(".report.json")))
        own = {k: median(t[-1]) for (_, _, k), named in report.durations.items() for t in named.values()}
        found = {(role, tuple(nodes[k].written_arrays)): ms for k, ms in own.items()}
        assert found == {key: pytest.approx(ms) for key, ms in times.items() if key[0] == role}


def test_results_and_gradients_are_those_without_clocks() -> None:
    layer = compiled(rgat())
    x, *edges = call()
    model = Watched(layer)
    dacergnn.profile(model, x, *edges)
    assert all(leaf.grad is None for leaf in (x, *layer.parameters()))
    model(x, *edges).sum().backward()
    assert len(model.results) == len(model.gradients) == 7
    for tensors in (model.results, model.gradients):
        assert all(torch.equal(tensors[0], other) for other in tensors[1:])


def test_a_model_that_is_captured_as_a_whole() -> None:
    """It is captured in the first call that is measured, which has no compiled part before."""
    pyg = pytest.importorskip("torch_geometric.nn")

    class Convolutions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.norm = pyg.GCNConv(K, K), pyg.GCNConv(K, K), nn.LayerNorm(K)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.second(self.norm(self.first(x, edge_index)).relu(), edge_index)

    x, edge_index, _ = call()
    profile = dacergnn.profile(dacergnn.optimize(Convolutions()), x, edge_index)
    check(profile, "forward", "backward")
    assert {operator.program for operator in profile.operators} == {"Convolutions"}


def test_layers_of_one_form_share_their_rows() -> None:
    graph = dacergnn.HeteroGraph.from_arrays(
        EDGES.edge_index, EDGES.edge_type, num_nodes=EDGES.num_src, num_edge_types=R
    )

    class Two(nn.Module):
        def __init__(self, *layers: nn.Module) -> None:
            super().__init__()
            self.layers = nn.ModuleList(layers)

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = torch.tanh(layer(x, graph))
            return x

    alike = dacergnn.profile(Two(RGCN(K, K, R), RGCN(K, K, R)), features().requires_grad_())
    assert {(o.place, o.role, o.runs) for o in alike.operators} == {
        ("rgcn in layers.0, layers.1", role, 2) for role in ("forward", "backward")
    }
    check(alike, "forward", "backward")
    unlike = dacergnn.profile(Two(RGCN(K, K, R), RGAT(K, K, R)), features().requires_grad_())
    assert [*dict.fromkeys((o.place, o.role) for o in unlike.operators)] == [
        ("rgcn in layers.0", "forward"), ("rgat in layers.1", "forward"),
        ("rgat in layers.1", "backward"), ("rgcn in layers.0", "backward"),
    ]  # fmt: skip


def test_no_gradients_no_backward() -> None:
    layer = compiled(rgat())
    layer(*call()).sum().backward()
    with torch.no_grad():
        check(dacergnn.profile(layer, *call()), "forward")
    for parameter in layer.parameters():
        parameter.requires_grad_(False)
    check(dacergnn.profile(layer, *arguments()), "forward")


def test_hetero_conv() -> None:
    """Runs in bfloat16; features have no gradient, as in a first layer."""
    layer = dacergnn.optimize(hetero(lambda library, key: library.SAGEConv((K, K), 4), WITHIN).bfloat16())
    x = {name: rows.bfloat16() for name, rows in x_dict().items() if name != "c"}
    check(dacergnn.profile(layer, x, edge_index_dict(WITHIN)), "forward", "backward")


def test_functions() -> None:
    """Runs in float64."""
    graph = functions.GRAPH
    x, W, b = functions.draw(graph.size("NS"), 3), functions.draw(graph.size("R"), 3, 2), functions.draw(2)
    check(dacergnn.profile(functions.two_results, graph, x, W, b), "forward", "backward")


def test_through_torch_compile() -> None:
    layer: Any = torch.compile(compiled(rgat()), backend="eager")
    check(dacergnn.profile(layer, *call()), "forward", "backward")


def test_loaded_sdfgs(tmp_path: Any) -> None:
    layer: Any = compiled(rgat())
    layer(*call()).sum().backward()
    layer.save_sdfg(tmp_path)
    layer.load_sdfg(tmp_path)
    check(dacergnn.profile(layer, *call()), "forward", "backward")


def test_a_model_that_runs_nothing_compiled_is_refused() -> None:
    with pytest.raises(DacergnnError, match="runs no compiled operator; pass a model of"):
        dacergnn.profile(nn.Linear(2, 2), torch.ones(1, 2))
    with pytest.raises(DacergnnError, match="model is a function"):
        dacergnn.profile(lambda: None)  # type: ignore[arg-type]


def test_replayed_layers_are_refused() -> None:
    layer = dacergnn.optimize(rgat(), config=Config(cuda_graph=True))
    with pytest.raises(DacergnnError, match="optimize it without cuda_graph=True"):
        dacergnn.profile(layer, *arguments())


def test_one_profile_at_a_time() -> None:
    layer = compiled(rgat())
    errors: list[str] = []

    class Nested(nn.Module):
        def forward(self, *args: Any) -> Tensor:
            def other() -> None:
                with pytest.raises(DacergnnError, match="another profile is being made") as error:
                    dacergnn.profile(layer, *args)
                errors.append(str(error.value))

            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            return layer(*args)

    model = Nested()
    model.layer = layer
    check(dacergnn.profile(model, *call()), "forward", "backward")
    assert errors


def test_clocks_are_gone_after_an_error() -> None:
    layer = compiled(rgat())
    calls = 0

    class Failing(nn.Module):
        def forward(self, *args: Any) -> Tensor:
            nonlocal calls
            calls += 1
            if calls == 2:
                raise ValueError("the second call")
            return layer(*args)

    model = Failing()
    model.layer = layer
    with pytest.raises(ValueError, match="the second call"):
        dacergnn.profile(model, *call())
    program, _ = core_of(layer).last_call or pytest.fail("the layer has not run")
    assert all("run" not in vars(variant.forward) for variant in program.variants)
    check(dacergnn.profile(model, *call()), "forward", "backward")

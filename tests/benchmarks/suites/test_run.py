"""A whole run on a small graph: rows, JSON, tables, command line, worker processes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from benchmarks.relational import case, ours, overhead, plain_torch, runner, trial
from benchmarks.relational.candidate import Built, Candidate, make_layer_step, make_step, unwrapped
from benchmarks.relational.command import relational
from benchmarks.relational.parameters import make_parameters
from benchmarks.relational.problem import Problem
from benchmarks.relational.reference import compute_reference, max_error
from benchmarks.relational.report import geometric_means
from benchmarks.relational.runner import run
from benchmarks.relational.settings import BenchSettings
from benchmarks.relational.trial import Named, Trial, cached_times, tiny_problem
from dacergnn.bench.runner import Limits, weigh
from dacergnn.config import Rates
from dacergnn.errors import DacergnnError
from dacergnn.json_lines import load

KEYS = {
    *("model", "data", "mode", "level", "ours_ms", "layer_ms", "library", "library_ms", "ratio_library"),
    *("torch", "torch_ms", "ratio_torch", "bound_ms", "ours_peak_mb", "library_peak_mb", "max_error"),
}


def stand_in(model: str, level: str = "O2", plan: str = "") -> Candidate:
    """A plain layer in place of the compiled one."""
    return replace(plain_torch.candidates(model)[-1], name=level, library="ours")


@pytest.fixture
def without_compiler(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stands in for our layer and for worker processes; lists what was asked of them."""
    asked: list[str] = []

    def weigh(trial: Trial, candidate: Named, limits: Limits, mode: str) -> dict[str, Any]:
        asked.append("memory")
        return {"peak_mb": 7.0 if candidate[0] == "ours" else 8.0 + len(candidate[1])}

    def times(trial: Trial, candidate: Named, limits: Limits) -> dict[str, Any]:
        asked.append("times")
        late = {"error": f"not done after {limits.trial_limit_s:.0f} s"}
        return late if "Hetero" in candidate[1] else {"ms": 1e6, "eager_ms": 1.0}

    monkeypatch.setattr(ours, "candidate", stand_in)
    monkeypatch.setattr(runner, "measure_rates", lambda rows, width, device: Rates(150e9, 25e9, 40e9, 5e8))
    monkeypatch.setattr(case, "weigh", weigh)
    monkeypatch.setattr(case, "cached_times", times)
    return asked


def test_rows_and_json(data_folder: Path, steady: None, without_compiler: list[str]) -> None:
    pytest.importorskip("torch_geometric")
    lines: list[str] = []
    report = run(
        models=("rgcn",), data=("aifb",), against=("pyg", "torch"), hidden=16, repeat=3, budget_s=1.0,
        progress=lines.append,
    )  # fmt: skip
    assert [row["mode"] for row in report.rows] == ["infer", "train"]
    for row in report.rows:
        assert set(row) >= KEYS | {"load_before", "load_after", "scattering"}
        assert row["layer_ms"] > 0
        assert (row["layer_ms"] == row["ours_ms"]) == (row["mode"] == "infer")
        assert row["ratio_library"] == pytest.approx(row["library_ms"] / row["ours_ms"])
        assert row["ratio_torch"] == pytest.approx(row["torch_ms"] / row["ours_ms"])
        assert row["max_error"] < 1e-5
        assert (row["ours_peak_mb"], row["library_peak_mb"]) == (7.0, 8.0 + len("RGCNConv"))
        notes = {c["name"]: c["note"] for c in row["candidates"]}
        assert {"edges", "pairs", "sources", "destinations", "O2", "FastRGCNConv"} <= set(notes)
        compiled = {notes[name] for name in notes if name.endswith("compiled")}
        assert compiled
        assert compiled <= {"measured apart", f"not done after {BenchSettings.trial_limit_s:.0f} s"}
    path = data_folder / "out.json"
    report.write(path)
    about, *rows = load(path)
    assert {"environment", "rates", "settings", "command", "commit", "date"} == set(about)
    assert {"cpu", "cores", "threads", "governor"} <= set(about["environment"])
    ratio = geometric_means(rows)["rgcn"]["train"]["ratio_torch"]
    assert ratio == pytest.approx(report.rows[1]["ratio_torch"])
    assert any("validating pyg RGCNConv" in line for line in lines)
    assert set(without_compiler) == {"memory", "times"}


def test_a_step_without_its_loss() -> None:
    x = torch.full((3,), 2.0, requires_grad=True)
    built = Built(lambda: {"a": 5 * x, "b": x * x}, (x,), (x,))
    step = make_layer_step(built, built.forward())
    for _ in range(2):
        step()
        assert x.grad is not None
        assert x.grad.tolist() == [5 + 2 * 2] * 3


def test_only_the_layers_that_are_named(data_folder: Path, without_compiler: list[str]) -> None:
    pytest.importorskip("torch_geometric")
    options: dict[str, Any] = {"models": ("rgcn",), "data": ("aifb",), "modes": ("infer",), "against": ("pyg", "torch")}
    (row,) = run(**options, layers=("FastRGCN",), compiled=False, memory=False, hidden=16, repeat=3).rows
    libraries = {c["name"] for c in row["candidates"] if c["library"] == "pyg"}
    assert libraries == {"FastRGCNConv"}
    assert row["torch"] is not None


def test_results_are_not_compared_with_what_takes_too_much_memory(
    data_folder: Path, without_compiler: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(case, "reference_memory", lambda function, problem: 1 << 50)
    monkeypatch.setattr(case, "compute_reference", lambda *_: pytest.fail("it is computed all the same"))
    (row,) = run(models=("rgcn",), data=("aifb",), modes=("infer",), against=("torch",), hidden=16, repeat=3).rows
    assert row["max_error"] is None
    assert row["ours_ms"] > 0
    assert all(c["note"].startswith("not compared") for c in row["candidates"] if c["status"] == "ok")


def test_what_does_not_fit_or_fails_or_is_wrong_is_reported(
    data_folder: Path, without_compiler: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: Any) -> Any:
        raise RuntimeError("no kernel")

    edges, *others = plain_torch.candidates("rgcn")
    broken = replace(edges, name="broken", build=explode)
    large = replace(edges, name="large", memory=lambda problem, train: 9 << 40)
    wrong = replace(plain_torch.candidates("rgat")[0], name="wrong", build=others[0].build, model="rgcn")
    odd = replace(wrong, function="rgcn", build=lambda p, shared, wrap: edges.build(
        p, {name: value * 2 for name, value in shared.items()}, wrap))  # fmt: skip
    monkeypatch.setattr(plain_torch, "candidates", lambda model: [edges, broken, large, odd])
    monkeypatch.setattr(ours, "candidate", lambda model, level, plan: replace(broken, library="ours", name=level))
    report = run(models=("rgcn",), data=("aifb",), modes=("infer",), against=("torch",), hidden=16, repeat=3)
    row = report.rows[0]
    found = {c["name"]: c["status"] for c in row["candidates"]}
    assert found == {"O2": "failed", "edges": "ok", "broken": "failed", "large": "out of memory",
                     "wrong": "wrong"}  # fmt: skip
    assert row["ours_status"] == "failed RuntimeError: no kernel"
    assert (row["ours_ms"], row["library"], row["ratio_torch"]) == (None, None, None)
    assert row["torch"] == "edges"


def test_geometric_means_by_model_mode_and_level() -> None:
    def row(level: str, library: float | None) -> dict[str, Any]:
        return {"model": "hgt", "mode": "train", "level": level, "ratio_library": library, "ratio_torch": 3.0}

    means = geometric_means([row("O2", 2.0), row("O2", 8.0), row("O2", None), row("other", 5.0)])
    assert means["hgt"]["train"]["ratio_library"] == pytest.approx(4.0)
    assert means["hgt"]["train"]["smallest_ratio_library"] == 2.0
    assert means["hgt"]["train"]["cases"] == 3
    assert means["hgt"]["train@other"]["ratio_library"] == pytest.approx(5.0)


def test_processes_weigh_and_time_a_candidate(data_folder: Path) -> None:
    trial, limits = Trial("rgcn", "aifb", "train", hidden=16), Limits(trial_limit_s=60.0)
    assert 0.0 <= weigh(trial, ("torch", "sources"), limits)["peak_mb"] < 50.0
    timed = cached_times(trial, ("torch", "sources"), limits)
    assert timed["ms"] > 0
    assert timed["eager_ms"] > 0
    assert cached_times(trial, ("torch", "sources"), limits) == timed
    lost = weigh(replace(trial, data="no_such_graph"), ("torch", "sources"), limits)
    assert lost["peak_mb"] is None
    assert "no_such_graph" in lost["note"]


def test_a_damaged_verdict_is_measured_again(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([{"ms": 1.0}, {"ms": 2.0}])
    monkeypatch.setattr(trial, "ask", lambda *_, **limits: next(answers))
    request = Trial("rgcn", "aifb", "train"), ("torch", "sources"), Limits()
    assert cached_times(*request) == cached_times(*request) == {"ms": 1.0}
    (stored,) = (data_folder / "cache").iterdir()
    stored.write_text("{")
    assert cached_times(*request) == {"ms": 2.0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"models": ("gcn",)}, r"models: 'gcn' \(entry 1\) is unknown; choose from rgcn, rgat, hgt"),
        ({"modes": ("infer", "test")}, r"mode: 'test' \(entry 2\)"),
        ({"against": ()}, "against: name at least one of pyg, dgl, torch"),
        ({"data": ()}, "data: name at least one data set"),
        ({"repeat": 0}, "repeat is 0; it must be at least 1"),
    ],
)
def test_settings_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DacergnnError, match=message):
        BenchSettings(**options)


def test_command_prints_tables_and_writes_json(data_folder: Path, without_compiler: list[str]) -> None:
    path = data_folder / "out.json"
    options = "--models rgat --data aifb --mode train --against torch --hidden 16 --repeat 3 --budget 1 --all"
    result = CliRunner().invoke(relational, [*options.split(), "--json", str(path)])
    assert result.exit_code == 0, result.output
    assert "rgat on aifb, train" in result.output
    told = " ".join(result.stderr.split())
    assert told.startswith("1 case: rgat on aifb; train. Timing takes at most 1 s each (--budget), 1 s in all. On top ")
    assert "rgat on aifb, train: building and validating torch edges" in told
    assert "1 of 1 cases done after" in told
    assert "Geometric means" in result.output
    assert load(path)[1]["model"] == "rgat"


def test_several_widths_stand_side_by_side(data_folder: Path, without_compiler: list[str], tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    options = "--models rgcn --data aifb --mode infer --against torch --repeat 3 --budget 1 --no-memory --hidden 8,16"
    result = CliRunner().invoke(relational, [*options.split(), "--json", str(path)])
    assert result.exit_code == 0, result.output
    about, *rows = load(path)
    assert [row["hidden"] for row in rows] == about["settings"]["hidden"] == [8, 16]
    assert list(geometric_means(rows)) == ["rgcn 8", "rgcn 16"]
    assert "rgcn 16" in result.output
    assert len(about["rates"]) == 2
    assert "1 of 2 cases done after" in result.stderr


@pytest.mark.parametrize("wide", [False, True])
def test_all_numbers_fit_eighty_columns(
    data_folder: Path, without_compiler: list[str], monkeypatch: pytest.MonkeyPatch, wide: bool
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    options = [
        "--models",
        "rgcn",
        "--data",
        "aifb",
        "--mode",
        "infer",
        "--against",
        "torch",
        "--hidden",
        "16",
        "--repeat",
        "3",
        "--budget",
        "1",
    ]
    result = CliRunner().invoke(relational, [*options, *["--wide"] * wide])
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "…" not in result.stdout
    assert ("Left out for want of room: level, layer" in result.stdout) is not wide
    assert ("leanest" in result.stdout.partition("Left out")[0]) is wide


@pytest.mark.parametrize("wrong", ["", "0", "8,x", "-1"])
def test_widths_are_positive_numbers(wrong: str) -> None:
    result = CliRunner().invoke(relational, ["--data", "am~0.0005", "--hidden", wrong])
    assert result.exit_code != 0
    assert "is no list of numbers" in result.output or "it must be at least 1" in str(result.exception)


def test_command_fails_when_ours_fails(
    data_folder: Path, without_compiler: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ours, "candidate", lambda *_: replace(stand_in("rgat"), model="rgcn"))
    options = "--models rgcn --data aifb --mode infer --against torch --hidden 16 --repeat 3 --no-memory"
    result = CliRunner().invoke(relational, options.split())
    assert result.exit_code == 1
    assert "rgcn on aifb, infer: failed KeyError" in result.output


def test_overhead_is_the_call_less_its_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = (lambda: sum(range(300)), lambda: None)
    monkeypatch.setattr(overhead, "kernel_calls", lambda layer: calls)
    monkeypatch.setattr(ours, "candidate", stand_in)
    cost = overhead.measure_overhead("rgcn", hidden=16, repeat=50)
    assert cost.call_us > cost.kernels_us > 0
    assert cost.overhead_us == pytest.approx(cost.call_us - cost.kernels_us)
    result = CliRunner().invoke(relational, ["--models", "rgcn", "--overhead", "--hidden", "16"])
    assert "overhead" in result.output


def test_overhead_needs_a_compiled_layer() -> None:
    with pytest.raises(DacergnnError, match="Linear is no compiled layer"):
        overhead.kernel_calls(torch.nn.Linear(2, 2))


@pytest.mark.parametrize("model", ["rgcn", "hgt"])  # hgt's arrays come in parts
def test_kernels_of_a_compiled_layer_run_alone(model: str) -> None:
    pytest.importorskip("torch_geometric")
    problem = tiny_problem(16)
    built = ours.candidate(model).build(problem, make_parameters(model, problem), unwrapped)
    with torch.no_grad():
        built.forward()
    for call in overhead.kernel_calls(built.layer):
        call()


def test_our_layer_agrees_with_the_reference(problem: Problem) -> None:
    pytest.importorskip("torch_geometric")
    shared = make_parameters("rgcn", problem)
    built = ours.candidate("rgcn").build(problem, shared, unwrapped)
    out = make_step(built, problem, train=True)()
    assert max_error(compute_reference("rgcn", problem, shared), built, problem, out, train=True) < 1e-5

"""A whole run on a small graph: rows, JSON, tables, command line, worker processes."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
import torch
from click.testing import CliRunner

from benchmarks.named import Named
from benchmarks.relational import experiment, ours, overhead, plain_torch, runner
from benchmarks.relational.candidate import Built, Candidate, make_layer_step, make_step, unwrapped
from benchmarks.relational.command import relational
from benchmarks.relational.experiment import Layers
from benchmarks.relational.parameters import make_parameters
from benchmarks.relational.problem import Problem, tiny_problem
from benchmarks.relational.record import fields_of
from benchmarks.relational.reference import compute_reference, max_error
from benchmarks.relational.report import geometric_means, row_table
from benchmarks.relational.runner import cases_of, run
from benchmarks.relational.settings import BenchSettings
from benchmarks.rows import Group, grouped
from benchmarks.suite import quickly
from dacergnn.bench import runner as bench
from dacergnn.bench.environment import write_run
from dacergnn.bench.runner import Limits, times, weigh
from dacergnn.cli.options import names
from dacergnn.config import Config, Rates
from dacergnn.errors import DacergnnError
from dacergnn.json_lines import Row, load

KEYS = {
    *("model", "data", "mode", "hidden", "bound_ms", "bound_plan", "bound_limit", "edges", "machine_flops", "group"),
    *("load_before", "load_after"),
}


SMALL = BenchSettings(models=("rgcn",), data=("aifb",), modes=("infer",), against=("torch",), hidden=16, repeat=3)


def stand_in(model: str, name: str = "O2", config: Config | None = None) -> Candidate:
    """A plain layer in place of the compiled one."""
    return replace(plain_torch.candidates(model)[-1], name=name, library="ours", config=config)


@pytest.fixture
def without_compiler(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stands in for our layer, and answers in place of worker processes; lists what was asked of them."""
    asked: list[str] = []

    def answer(function: str, *arguments: Any, limit_s: float, **_: Any) -> dict[str, Any]:
        case, candidates, *_ = pickle.loads(pickle.dumps(arguments))
        if function.endswith("peak"):
            asked.append("memory")
            return {"peak_mb": 7.0 if candidates.library == "ours" else 8.0 + len(candidates.name)}
        if not candidates[-1].compiled:
            asked.append("times")
            return times(*arguments)
        asked.append("compiled")
        if "Hetero" in candidates[-1].name:
            return {"error": f"not done after {limit_s:.0f} s"}
        return {"rows": {name: {"status": "ok", "note": "", f"{case.mode}_ms": 2.0 + n, f"{case.mode}_samples": 9}
                         for n, name in enumerate(candidates)}}  # fmt: skip

    monkeypatch.setattr(ours, "candidate", stand_in)
    monkeypatch.setattr(runner, "measure_rates", lambda *_: Rates(150e9, 25e9, 40e9, 5e8))
    monkeypatch.setattr(bench, "ask", answer)
    return asked


def test_rows_and_json(data_folder: Path, steady: None, without_compiler: list[str]) -> None:
    pytest.importorskip("torch_geometric")
    told: list[str] = []
    rows = run(
        BenchSettings(
            models=("rgcn",), data=("aifb",), against=("pyg", "torch"), hidden=16, repeat=3, budget_s=1.0
        ),
        tell=told.append,
    )  # fmt: skip
    cases = grouped(rows)
    assert [case["mode"] for case in cases] == ["infer", "train"]
    for case in cases:
        assert all(set(row) >= KEYS for row in case.rows)
        own = case.rows[0]
        assert ("layer_ms" in own) == (case["mode"] == "train")
        assert own["max_error"] < 1e-5
        peaks = {c["name"]: c["peak_mb"] for c in case.rows}
        assert (peaks["O2"], peaks["RGCNConv"]) == (7.0, 8.0 + len("RGCNConv"))
        notes = {c["name"]: c["note"] for c in case.rows}
        assert {"edges", "pairs", "sources", "destinations", "O2", "FastRGCNConv"} <= set(notes)
        compiled = {c["name"]: c for c in case.rows if c["compiled"]}
        assert compiled
        assert {c["note"] for c in compiled.values()} <= {"measured apart", "not done after 300 s"}
        times = {c["name"]: c["ms"] for c in case.rows}
        for name in (name for name, row in compiled.items() if row["ms"] is not None):
            assert times[name] == pytest.approx(1.5 * times[name.removesuffix(" compiled")])  # 3 ms beside 2 ms, scaled
    path = data_folder / "out.json"
    write_run(path, rows)
    about, *again = load(path)
    assert {"cpu", "cores", "threads", "governor"} <= set(about["environment"])
    _, plain, _ = geometric_means(again)["rgcn", "train"]
    found = cases[1].speedup(cases[1].named("O2"), "ms", "torch")
    assert found is not None
    assert plain.mean == pytest.approx(found.value)
    assert "rgcn on aifb, train: memory of pyg RGCNConv" in told
    assert set(without_compiler) == {"memory", "times", "compiled"}


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
    rows = run(BenchSettings(**options, layers=("FastRGCN",), compiled=False, memory=False, hidden=16, repeat=3))
    assert {row["name"] for row in rows if row["library"] == "pyg"} == {"FastRGCNConv"}
    assert Group(tuple(rows)).peers("torch")


def test_results_are_not_compared_with_what_takes_too_much_memory(
    data_folder: Path, without_compiler: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiment, "reference_memory", lambda function, problem: 1 << 50)
    monkeypatch.setattr(experiment, "compute_reference", lambda *_: pytest.fail("it is computed all the same"))
    own, *others = run(SMALL)
    assert own["max_error"] is None
    assert own["ms"] > 0
    assert all(row["note"].startswith("not compared") for row in (own, *others) if row["status"] == "ok")


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
    monkeypatch.setattr(plain_torch, "candidates", lambda *_: [edges, broken, large, odd])
    monkeypatch.setattr(
        ours, "candidate", lambda _, name, config: replace(broken, library="ours", name=name, config=config)
    )
    case = Group(tuple(run(SMALL)))
    assert case.failed["torch large"] == "MemoryError: estimated at 9895.6 GB"
    found = {row["name"]: row["status"] for row in case.rows}
    assert found == {"O2": "failed", "edges": "ok", "broken": "failed", "large": "out of memory",
                     "wrong": "wrong"}  # fmt: skip
    own = case.rows[0]
    assert (own["note"], own["ms"]) == ("RuntimeError: no kernel", None)
    assert (case.peers("pyg", "dgl"), case.speedup(own, "ms", "torch")) == ([], None)
    assert [row["name"] for row in case.peers("torch")] == ["edges"]


def test_geometric_means_by_model_mode_and_level() -> None:
    def rows(group: int, library: float | None, **levels: float) -> list[Row]:
        own = [{"library": "ours", "name": name, "ms": ms} for name, ms in levels.items()]
        peers = [{"library": "pyg", "name": "x", "ms": library}, {"library": "torch", "name": "y", "ms": 3.0}]
        shared = {"model": "hgt", "mode": "train", "hidden": 8, "status": "ok", "group": group}
        return [shared | row for row in (*own, *peers)]

    cases = rows(0, 2.0, O2=1.0), rows(1, 8.0, O2=1.0), rows(2, None, O2=1.0), rows(3, 5.0, O2=1.0, other=0.5)
    means = geometric_means([row for case in cases for row in case])
    library, plain, count = means["hgt", "train"]
    assert library.mean == pytest.approx(80 ** (1 / 3))
    assert min(library.values) == 2.0
    assert (plain.mean, count) == (pytest.approx(3.0), 4)
    assert means["hgt", "train@other"][0].mean == pytest.approx(10.0)


def test_records_of_before_are_read_and_not_measured_again(data_folder: Path, without_compiler: list[str]) -> None:
    path = data_folder / "out.jsonl"
    rows = run(SMALL, path=path)
    identity = fields_of(*cases_of(SMALL)[0], Named("", ""))
    later = ("bound", "machine", "tried", "load", "group")
    own = [
        {n: v for n, v in row.items() if n == "library" or not (n in identity or n.startswith(later))} for row in rows
    ]
    line = {name: rows[0][name] for name in ("model", "data", "mode", "hidden", "bound_ms")}
    line |= {"case": identity, "compiled": True, "memory": True, "candidates": own}
    path.write_text(path.read_text().partition("\n")[0] + "\n" + json.dumps(line) + "\n")
    asked = len(without_compiler)
    assert row_table(run(SMALL, path=path)).rows == row_table(rows).rows
    assert len(without_compiler) == asked


def test_a_process_weighs_a_candidate(data_folder: Path) -> None:
    """In the mode of the case."""
    case, limits = Layers("rgcn", "aifb", "infer", hidden=16), Limits(trial_limit_s=60.0)
    name = Named("torch", "sources")
    assert 0.0 <= weigh(case, name, limits)["peak_mb"] < 50.0
    assert case.weighs() == "infer"
    assert replace(case, mode="train").weighs() == "train"
    lost = weigh(replace(case, data="no_such_graph"), name, limits)
    assert lost["peak_mb"] is None
    assert "no_such_graph" in lost["note"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"models": ("gcn",)}, r"models: 'gcn' \(entry 1\) is unknown; choose from rgcn, rgat, hgt"),
        ({"modes": ("infer", "test")}, r"mode: 'test' \(entry 2\)"),
        ({"against": ("jax",)}, r"against: 'jax' \(entry 1\) is unknown; choose from pyg, dgl, torch"),
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
    assert "rgat on aifb, train: memory of ours O2" in told
    assert "1 of 1 cases done after" in told
    assert "Geometric means" in result.output
    assert load(path)[1]["model"] == "rgat"


def test_several_widths_stand_side_by_side(data_folder: Path, without_compiler: list[str], tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    options = "--models rgcn --data aifb --mode infer --against torch --repeat 3 --budget 1 --no-memory --hidden 8,16"
    result = CliRunner().invoke(relational, [*options.split(), "--json", str(path)])
    assert result.exit_code == 0, result.output
    about, *rows = load(path)
    assert {"environment", "settings", "command", "commit", "date"} == set(about)
    assert [*dict.fromkeys(row["hidden"] for row in rows)] == about["settings"]["hidden"] == [8, 16]
    assert [model for model, _ in geometric_means(rows)] == ["rgcn 8", "rgcn 16"]
    assert "rgcn 16" in result.output
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
    monkeypatch.setattr(ours, "candidate", lambda _, *own: stand_in("rgat", *own))
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


def test_little_is_measured_quickly() -> None:
    """The first of each list, and fixed numbers."""
    found: list[Any] = []

    @click.command()
    @click.option("--data", default="a,b", callback=names)
    @click.option("--sizes", default="", callback=names)
    @click.option("--repeat", default=30)
    @quickly(data=(), sizes=("8",), repeat=3)
    def measure(data: tuple[str, ...], sizes: tuple[str, ...], repeat: int) -> None:
        found.append((data, sizes, repeat))

    for options in ([], ["--quick"], ["--quick", "--data", "c,d", "--repeat", "9"]):
        assert CliRunner().invoke(measure, options).exit_code == 0
    assert found == [(("a", "b"), (), 30), (("a",), ("8",), 3), (("c",), ("8",), 3)]

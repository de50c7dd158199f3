"""The suite of relational layers on a CUDA device, without one: what runs there, what is left out, and what is left."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from benchmarks import suite
from benchmarks.named import Named
from benchmarks.relational import builds, peers, plain_torch, runner
from benchmarks.relational.bound import bound, plans
from benchmarks.relational.candidate import make_step, unwrapped
from benchmarks.relational.command import relational
from benchmarks.relational.experiment import Layers
from benchmarks.relational.parameters import make_parameters
from benchmarks.relational.problem import Problem, kept_problem, load_problem
from benchmarks.relational.record import is_complete
from benchmarks.relational.reference import compute_reference, max_error
from benchmarks.relational.report import geometric_means, row_table
from benchmarks.relational.settings import BenchSettings
from benchmarks.rows import grouped
from dacergnn.bench import process
from dacergnn.bench import runner as bench
from dacergnn.bench.process import OUT_OF_MEMORY
from dacergnn.bench.rates import precision
from dacergnn.bench.runner import Limits, Turns
from dacergnn.config import Config, Rates
from dacergnn.errors import DacergnnError
from dacergnn.json_lines import Row, load

SETTINGS = BenchSettings(("rgcn",), ("am~",), ("train",), ("torch", "grouped"), compiled=False, device="cuda")
CASE = Layers("rgcn", "am~", "train", device="cuda")
OURS, PLAIN, LAYER = Named("ours", "O2", Config()), Named("torch", "sources"), Named("pyg", "RGCNConv")


@pytest.mark.parametrize("model", ["rgcn", "rgat", "hgt"])
def test_plain_layers_for_devices_agree_with_the_reference(model: str, problem: Problem) -> None:
    usual = {c.name for c in plain_torch.candidates(model)}
    more = [c for c in plain_torch.candidates(model, device="cuda") if c.name not in usual]
    grouped = plain_torch.candidates(model, "grouped")
    rows = ("sources", "destinations")
    assert {c.name for c in more} == {f"{row} {kind}" for kind in ("scatter", "padded scatter") for row in rows}
    assert [c.name for c in grouped] == [f"{row}{kind}" for row in rows for kind in ("", " scatter")]
    shared = make_parameters(model, problem)
    reference = compute_reference(model, problem, shared)
    for candidate in more + grouped:
        built = candidate.build(problem, shared, unwrapped)
        out = make_step(built, problem, train=True)()
        assert max_error(reference, built, problem, out, train=True) < 2e-6, candidate.name


def test_grouped_products_in_bfloat16(problem: Problem) -> None:
    short = problem.to("cpu", torch.bfloat16)
    shared = make_parameters("rgcn", problem)
    reference = compute_reference("rgcn", problem, shared)
    found = plain_torch.candidates("rgcn", "grouped")
    assert len(found) == 4
    for candidate in (c for c in found if "scatter" in c.name):  # MKL has no sparse products in bfloat16
        built = candidate.build(short, shared, unwrapped)
        out = make_step(built, short, train=True)()
        assert out.dtype == torch.bfloat16
        assert max_error(reference, built, short, out, train=True) < 0.05, candidate.name


@pytest.mark.parametrize("name", ["bfloat16", "float64"])
def test_a_precision_counts_for_all_candidates(name: str, data_folder: Path) -> None:
    case = Layers("rgcn", "aifb", "train", 16, precision=name)
    row = Turns(case, ("train",), "cpu").add(Named("torch", "edges"))
    assert row["status"] == "ok"
    assert (row["max_error"] < 1e-9) == (name == "float64")


def answers(ms: dict[str, float]) -> Any:
    """Stands in for measurements: milliseconds by the name of a candidate, twice as many if it is asked again."""
    asked: list[list[Named]] = []

    def measure(case: Layers, names: list[Named], **_: Any) -> dict[Named, Row]:
        times = 1 + any(names[0] in earlier for earlier in asked)
        asked.append(names)
        return {n: {"status": "ok", "note": "", "train_ms": times * ms[n.name], "peak_mb": 1.0} for n in names}

    return measure, asked


def test_quick_steps_are_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one process with what they replay, whose first times count; layers of libraries cannot be."""
    measure, asked = answers({"O2": 1.5, "sources": 8.0, "RGCNConv": 1.0, "O2 replayed": 0.5})
    monkeypatch.setattr(runner, "measure", measure)
    candidates: Any = [SimpleNamespace(named=named, function="rgcn") for named in (OURS, PLAIN, LAYER)]
    rows = runner.measured(CASE, candidates, SETTINGS, math.inf, str)
    assert [[n.name for n in names] for names in asked] == [["O2", "sources", "RGCNConv"], ["O2", "O2 replayed"]]
    assert {row["name"]: (row["ms"], row["replayed"]) for row in rows.values()} == {
        "O2": (1.5, False), "sources": (8.0, False), "RGCNConv": (1.0, False), "O2 replayed": (0.5, True),
    }  # fmt: skip
    assert [row["note"] for row in rows.values()][-1] == "measured apart"
    assert not any("replayed" in n.name for n in asked[0])


def case(*rows: Row) -> list[Row]:
    shared = {"model": "rgcn", "data": "am~", "mode": "train", "hidden": 64, "bound_ms": 1.0, "library": "ours"}
    shared |= {"status": "ok", "note": "", "tried_compiled": False, "tried_memory": True, "replayed": False}
    return [shared | row for row in rows]


def test_replayed_steps_are_compared_with_replayed_ones() -> None:
    found = case({"name": "O2", "ms": 4.0}, {"name": "O2 replayed", "ms": 0.5, "replayed": True},
                 {"library": "torch", "name": "sources", "ms": 8.0},
                 {"library": "grouped", "name": "sources replayed", "ms": 2.0, "replayed": True})  # fmt: skip
    (group,) = grouped(found)
    ratios = [group.speedup(group.named(level), "ms", "torch", "grouped") for level in ("O2", "O2 replayed")]
    assert [ratio and ratio.value for ratio in ratios] == [2.0, 4.0]
    assert [plain.mean for _, plain, _ in geometric_means(found).values()] == pytest.approx([2.0, 4.0])
    assert [row[10] for row in row_table(found).rows] == ["8", "2"]


def test_complete_rows() -> None:
    (row,) = case({"name": "O2", "ms": 2.0})
    assert is_complete(SETTINGS, row)
    assert not is_complete(replace(SETTINGS, compiled=True), row)
    assert not is_complete(SETTINGS, row | {"ms": None})
    assert is_complete(SETTINGS, row | {"ms": None, "library": "pyg"})


def test_what_has_no_room_beside_others_is_measured_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(function: str, case: Layers, names: list[Named], *_: Any, **limits: Any) -> Row:
        status = "ok" if len(names) == 1 else OUT_OF_MEMORY
        return {"rows": {n: {"status": "ok", "note": ""} if n == OURS else {"status": status, "note": status}
                         for n in names}}  # fmt: skip

    monkeypatch.setattr(bench, "ask", ask)
    rows = bench.measure(CASE, [OURS, PLAIN], Limits(device="cuda"))
    assert [row["note"] for row in rows.values()] == ["", "ok measured apart"]
    here = bench.measure(CASE, [OURS, PLAIN], Limits())  # on the processor, others hold little
    assert here[PLAIN]["status"] == OUT_OF_MEMORY


def test_a_lost_device_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: Any) -> None:
        raise RuntimeError("the allocator is capturing")

    monkeypatch.setattr(torch.cuda, "synchronize", lost)
    turns = Turns(replace(CASE, tiny=True), ("train",), "cuda")
    with pytest.raises(RuntimeError, match="the allocator is capturing"):
        turns.add(PLAIN)


def test_no_process_is_started_when_the_time_is_over() -> None:
    rows = bench.measure(CASE, [OURS, PLAIN], Limits(deadline=time.monotonic() - 1))
    assert {row["note"] for row in rows.values()} == {"no time is left"}


def test_peers_that_cannot_run_here_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    device, wanted = torch.device("meta"), ("pyg", "dgl", "torch", "grouped")
    graph = SimpleNamespace(to=lambda place: graph if place == device else None)
    monkeypatch.setattr(peers, "library_module", lambda name: None)
    monkeypatch.setitem(sys.modules, "dgl", SimpleNamespace(graph=lambda edges: graph))
    assert not any(peers.absence(name, device) for name in wanted)

    def refuse(edges: Any) -> Any:
        raise RuntimeError("Device API cuda is not enabled.\nPlease install the cuda version of dgl.")

    def absent(name: str) -> None:
        if name == "pyg":
            raise DacergnnError("against: 'pyg' needs torch_geometric")

    monkeypatch.setitem(sys.modules, "dgl", SimpleNamespace(graph=refuse))
    monkeypatch.setattr(peers, "library_module", absent)
    monkeypatch.delattr(torch, "_grouped_mm")
    assert [peers.absence(name, device) for name in wanted] == [
        "against: 'pyg' needs torch_geometric",
        "Device API cuda is not enabled. Please install the cuda version of dgl.",
        "",
        f"torch {torch.__version__} has no _grouped_mm",
    ]


def test_kernels_are_built_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaving the context ends what still runs."""
    cases = [(SETTINGS, replace(CASE, data=name)) for name in ("a", "b")]
    monkeypatch.setattr(builds, "ask", lambda _, settings, case, **limits: {"seconds": 2.0, "data": case.data})
    with builds.built_ahead(cases) as jobs:
        assert [job.result()["data"] for job in jobs.values()] == ["a", "b"]
    monkeypatch.setattr(builds, "ask", lambda *_, **limits: process.ask("time.sleep", 60, **limits))
    with builds.built_ahead(cases[:1]) as jobs:
        while not process._RUNNING:  # pyright: ignore[reportPrivateUsage]
            time.sleep(0.01)
    assert jobs[cases[0][1]].result() == {"error": "the process ended with code -9"}


def test_all_cases_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([{"seconds": 2.0}, {"error": "no nvcc"}])
    monkeypatch.setattr(builds, "ask", lambda *_, **limits: next(answers))
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    options = ["--build", "--arch", "90", "--data", "bgs", "--models", "hgt"]
    result = CliRunner().invoke(relational, options)
    assert result.exit_code == 1
    assert result.output.splitlines() == ["hgt on bgs, infer: built in 2 s", "hgt on bgs, train: no nvcc"]


def test_graphs_are_kept_for_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DACERGNN_CACHE_DIR", str(tmp_path))
    expected = load_problem("aifb~0.01", 8)
    for _ in range(2):
        found = kept_problem("aifb~0.01", 8, 0)
        assert torch.equal(found.src, expected.src)
        assert torch.equal(found.x, expected.x)
        assert found.relations == expected.relations


def test_bounds_of_short_types() -> None:
    sizes = {"N": 10**6, "E": 10**7, "U": 10**6, "V": 10**6, "R": 4}
    slow_memory = Rates(1e18, 1e9, 1e18, 1e18)
    whole, half = (bound("rgcn", "infer", sizes, 64, slow_memory, size) for size in (4, 2))
    assert 0.5 < half.ms / whole.ms < 0.6
    assert plans("hgt", sizes, 64)[0].flop == plans("hgt", sizes, 64, 2)[0].flop


def test_tf32_is_left_as_it_was() -> None:
    with precision("tf32"):
        pass
    with precision("float32"):
        pass


@pytest.fixture
def quick_answers(monkeypatch: pytest.MonkeyPatch) -> list[list[Named]]:
    """There is a device by name, on which all candidates take a second."""
    measure, asked = answers({"O2": 1e3, "hector": 1e3, "sources": 1e3})
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.empty_cache", lambda: None)
    monkeypatch.setattr(suite, "about_run", lambda **_: {"environment": {}})
    monkeypatch.setattr(suite, "environment", dict)
    monkeypatch.setattr(runner, "measure_rates", lambda *_: Rates(150e9, 25e9, 40e9, 5e8))
    monkeypatch.setattr(runner, "_sizes", lambda *_: dict.fromkeys("NEUVRT", 9))
    monkeypatch.setattr(runner, "measure", measure)
    plain = replace(plain_torch.candidates("rgcn")[0], name="sources")
    ours = partial(replace, plain, library="ours")
    monkeypatch.setattr(runner, "wanted", lambda _, settings: [*(ours(name=n) for n in settings.levels), plain])
    return asked


def test_what_is_measured_already_is_left_out(
    quick_answers: list[list[Named]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, table = tmp_path / "lines.jsonl", tmp_path / "table.md"
    options = ["--data", "am~", "--models", "rgcn", "--mode", "train", "--device", "cuda", "--json", str(path)]
    options += ["--against", "torch", "--markdown", str(table)]
    for _ in range(2):
        result = CliRunner().invoke(relational, options)
        assert result.exit_code == 0, result.output
        assert len(quick_answers) == 1
        assert "| 1e+03 |" in table.read_text()
    assert "1 of 1 cases were in" in result.stderr
    assert len(load(path)) == 3
    monkeypatch.setattr(suite, "environment", lambda: {"cpu": "another"})
    CliRunner().invoke(relational, options)
    assert len(quick_answers) == 2
    monkeypatch.setattr(suite, "environment", dict)
    for more in (["--dtype", "bfloat16"], ["--hidden", "32"], ["--level", "O2,hector"]):
        CliRunner().invoke(relational, [*options, *more])
    assert len(quick_answers) == 5


@pytest.mark.usefixtures("quick_answers")
def test_cases_that_are_left_show_in_the_exit_status(tmp_path: Path) -> None:
    options = ["--data", "am~", "--models", "hgt", "--device", "cuda", "--against", "torch"]
    options += ["--time-limit", "0", "--json", str(tmp_path / "lines.jsonl")]
    result = CliRunner().invoke(relational, options)
    assert result.exit_code == 75, result.output
    assert "2 cases are left; call again with the same --json." in result.output

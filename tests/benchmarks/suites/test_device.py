"""The benchmark for CUDA devices, run on the processor with a plain layer in place of ours: cases, lines, tables."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from benchmarks.relational import device_case, peers, plain_torch
from benchmarks.relational import device_run as gpu
from benchmarks.relational.ahead import Background
from benchmarks.relational.bound import bound, plans
from benchmarks.relational.candidate import Candidate, make_step, unwrapped
from benchmarks.relational.command import relational
from benchmarks.relational.device_case import DeviceCase
from benchmarks.relational.parameters import make_parameters
from benchmarks.relational.problem import Problem
from benchmarks.relational.record import (
    append_line,
    label_of,
    read_lines,
)
from benchmarks.relational.reference import compute_reference, max_error
from benchmarks.relational.settings import BenchSettings
from dacergnn.bench.rates import precision
from dacergnn.config import Rates
from dacergnn.errors import DacergnnError
from dacergnn.json_lines import Row
from tests.benchmarks.suites.test_device_lines import entry, line

SETTINGS = BenchSettings(data=("am~",), levels=("O2", "hector"), against=("torch", "grouped"), repeat=1, budget_s=0.1)
NOTHING: Any = SimpleNamespace(wait=lambda name, seconds: True)
"""Builds nothing ahead."""


def stand_in(model: str, level: str, settings: BenchSettings) -> Candidate:
    return replace(plain_torch.candidates(model)[-1], name=level, library="ours")


@pytest.fixture
def plain_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_case, "own_candidate", stand_in)
    monkeypatch.setattr(device_case, "ALONE_S", 0.0)


@pytest.mark.parametrize("model", ["rgcn", "rgat", "hgt"])
def test_plain_layers_for_devices_agree_with_the_reference(model: str, problem: Problem) -> None:
    found = plain_torch.device_candidates(model) + plain_torch.grouped_candidates(model)
    rows = ("sources", "destinations")
    assert [(c.library, c.name) for c in found] == [
        *(("torch", f"{row} {kind}") for kind in ("scatter", "padded scatter") for row in rows),
        *(("grouped", f"{row}{kind}") for row in rows for kind in ("", " scatter")),
    ]
    shared = make_parameters(model, problem)
    reference = compute_reference(model, problem, shared)
    for candidate in found:
        built = candidate.build(problem, shared, unwrapped)
        out = make_step(built, problem, train=True)()
        assert max_error(reference, built, problem, out, train=True) < 2e-6, candidate.name


def test_grouped_products_in_bfloat16(problem: Problem) -> None:
    short = problem.to("cpu", torch.bfloat16)
    shared = make_parameters("rgcn", problem)
    reference = compute_reference("rgcn", problem, shared)
    found = plain_torch.grouped_candidates("rgcn")
    assert len(found) == 4
    for candidate in (c for c in found if "scatter" in c.name):  # MKL has no sparse products in bfloat16
        built = candidate.build(short, shared, unwrapped)
        out = make_step(built, short, train=True)()
        assert out.dtype == torch.bfloat16
        assert max_error(reference, built, short, out, train=True) < 0.05, candidate.name


def test_a_case_validates_every_candidate_and_times_the_best_in_turns(problem: Problem, plain_ours: None) -> None:
    case = DeviceCase("rgcn", problem, SETTINGS)
    for mode in ("infer", "train"):
        rows = case.measure(mode)
        assert [label_of(row) for row in rows[:2]] == ["ours O2", "ours hector"]
        assert len(rows) == 2 + 6 + 4 + 4
        assert all(row["status"] == "ok" and row["ms"] > 0 and row["max_error"] < 1e-5 for row in rows)


def test_a_wrong_candidate_has_no_time(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(model: str, level: str, settings: BenchSettings) -> Candidate:
        good = stand_in(model, level, settings)

        def build(*arguments: Any) -> Any:
            if level == "hector":
                raise ValueError("cannot be built")
            if level == "O0":
                raise torch.OutOfMemoryError("full")
            built = good.build(*arguments)
            return replace(built, forward=lambda: built.forward() * 1.01)

        return replace(good, build=build)

    monkeypatch.setattr(device_case, "own_candidate", broken)
    settings = replace(SETTINGS, levels=("O2", "hector", "O0"), against=())
    wrong, failed, full = DeviceCase("rgcn", problem, settings).measure("infer")
    assert (wrong["status"], wrong["ms"]) == ("wrong", None)
    assert "differs from the reference by 1.0e-02" in wrong["note"]
    assert (failed["status"], failed["note"]) == ("failed", "ValueError: cannot be built")
    assert full["status"] == "out of memory"
    late = DeviceCase("rgcn", problem, settings, deadline=-math.inf).measure("infer")
    assert {row["status"] for row in late} == {"skipped"}


def test_a_lost_device_costs_no_result(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """What raises when memory is given back, too."""
    broken = False

    def own(model: str, level: str, settings: BenchSettings) -> Candidate:
        good = stand_in(model, level, settings)

        def build(*arguments: Any) -> Any:
            nonlocal broken
            broken = level == "hector"
            if broken:
                raise RuntimeError("capture failed")
            return good.build(*arguments)

        return replace(good, build=build)

    def settle(self: DeviceCase) -> int:
        if broken:
            raise RuntimeError("the allocator is capturing")
        return 0

    monkeypatch.setattr(device_case, "own_candidate", own)
    monkeypatch.setattr(DeviceCase, "_settle", settle)
    case = DeviceCase("rgcn", problem, replace(SETTINGS, levels=("O2", "hector", "O0"), against=()))
    first, failed, behind = case.measure("infer")
    assert first["ms"] is not None
    assert first["note"] == "timed by itself: RuntimeError: the allocator is capturing"
    assert (failed["status"], failed["note"]) == ("failed", "RuntimeError: capture failed")
    assert (behind["status"], behind["note"]) == ("skipped", "the device was lost to this process before")
    assert case.lost


def test_peers_that_cannot_run_here_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = replace(SETTINGS, against=("pyg", "dgl", "torch", "grouped", "compiled"))
    device = torch.device("meta")
    graph = SimpleNamespace(to=lambda place: graph if place == device else None)
    monkeypatch.setattr(peers, "library_module", lambda name: None)
    monkeypatch.setitem(sys.modules, "dgl", SimpleNamespace(graph=lambda edges: graph))
    assert gpu.with_present(wanted, device) == (wanted, [])

    def refuse(edges: Any) -> Any:
        raise RuntimeError("Device API cuda is not enabled.\nPlease install the cuda version of dgl.")

    def absent(name: str) -> None:
        if name == "pyg":
            raise DacergnnError("against: 'pyg' needs torch_geometric")

    monkeypatch.setitem(sys.modules, "dgl", SimpleNamespace(graph=refuse))
    monkeypatch.setattr(peers, "library_module", absent)
    monkeypatch.delattr(torch, "_grouped_mm")
    settings, lines = gpu.with_present(wanted, device)
    assert settings.against == ("torch",)
    assert lines == [
        "pyg is left out: against: 'pyg' needs torch_geometric",
        "dgl is left out: Device API cuda is not enabled. Please install the cuda version of dgl.",
        f"grouped is left out: torch {torch.__version__} has no _grouped_mm",
        "compiled is left out: against: 'pyg' needs torch_geometric",
    ]
    with pytest.raises(DacergnnError, match="against: 'jax' is unknown; choose from pyg, dgl, torch"):
        peers.absence("jax", device)


@pytest.mark.parametrize("model", ["rgcn", "rgat", "hgt"])
def test_dgl_is_a_peer(model: str, problem: Problem, plain_ours: None) -> None:
    pytest.importorskip("dgl")
    assert peers.absence("dgl", problem.x.device) == ""
    rows = DeviceCase(model, problem, replace(SETTINGS, against=("dgl",))).measure("train")
    assert {row["library"] for row in rows} == {"ours", "dgl"}
    assert all(row["status"] == "ok" and row["ms"] is not None for row in rows), [row["note"] for row in rows]


def test_kernels_are_built_ahead(tmp_path: Path) -> None:
    def writes(name: str, seconds: float = 0) -> list[str]:
        return ["sh", "-c", f"sleep {seconds}; echo {name} >> {tmp_path}/order"]

    with Background({"a": [writes("a1"), writes("a2")], "b": [["false"]], "c": [writes("c", 60)]}, 1) as builds:
        assert builds.wait("a")
        assert (tmp_path / "order").read_text().split() == ["a1", "a2"]
        assert not builds.wait("b")
        assert not builds.wait("c", 0.01)
        assert builds.wait("d")  # nothing to wait for
    assert (tmp_path / "order").read_text().split() == ["a1", "a2"]


def test_commands_that_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", "relational", "--build-ahead"])
    found = gpu.build_commands({"am": [], "bgs": [("rgcn", "infer"), ("hgt", "train")]}, 32)
    assert found["am"] == []
    given = ["relational", "--build-ahead", "--build", "--hidden", "32", "--data", "bgs", "--models"]
    cases = [[*given, *case] for case in (("rgcn", "--mode", "infer"), ("hgt", "--mode", "train"))]
    assert [words[3:] for words in found["bgs"]] == cases


def test_a_single_case_is_built_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Any] = []
    monkeypatch.setattr(gpu, "build", lambda *case: built.append(case[:3]))
    options = ["--build", "--arch", "90", "--data", "bgs", "--models", "hgt", "--mode", "train"]
    result = CliRunner().invoke(relational, options)
    assert result.exit_code == 0, result.output
    assert built == [("bgs", "hgt", "train")]


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


def test_one_graph_on_the_processor(tmp_path: Path, plain_ours: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "measure_rates", lambda *arguments: Rates(150e9, 25e9, 40e9, 5e8))
    monkeypatch.setenv("DACERGNN_CACHE_DIR", str(tmp_path))
    path = tmp_path / "lines.jsonl"
    settings = BenchSettings(data=("aifb~0.01",), against=(), hidden=8, repeat=1, budget_s=0.1)
    cases = [("rgcn", "infer"), ("rgat", "infer")]
    for _ in range(2):  # the second time with the kept graph
        gpu.measure("aifb~0.01", cases, settings, path, math.inf)
    lines = read_lines(path)
    assert [(x["model"], x["data"]) for x in lines] == [("rgcn", "aifb~0.01"), ("rgat", "aifb~0.01")] * 2
    assert lines[0]["edges"] == lines[0]["sizes"]["E"] == 488
    assert lines[0]["bound_ms"] > 0


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a device by name."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr(gpu, "machine", lambda device: {"rates": {}, "environment": {}, "command": ""})


@pytest.mark.usefixtures("named")
def test_a_process_that_ends_costs_one_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, asked = tmp_path / "lines.jsonl", []

    def ask(function: str, data: str, cases: list[gpu.Case], *_: Any, **limits: Any) -> Row:
        asked.append((data, [*cases]))
        if cases[0] != ("rgcn", "train"):
            append_line(path, line("", entry("ours", "O2", 1.0)) | {"data": data, "mode": "infer"})
            return {"error": "the process ended with code -6"}
        return {"error": "not done after 3 s"}

    monkeypatch.setattr(gpu, "ask", ask)
    table = tmp_path / "table.md"
    monkeypatch.setattr(sys, "argv", ["benchmarks", "relational"])
    options = [
        "--data",
        "am~,bgs~",
        "--models",
        "rgcn,hgt",
        "--device",
        "cuda",
        "--arch",
        "90",
        "--json",
        str(path),
        "--markdown",
        str(table),
    ]
    result = CliRunner().invoke(relational, [*options, "--time-limit", "100"])
    assert result.exit_code == 0, result.output
    assert asked[0] == ("am~", [(model, how) for model in ("rgcn", "hgt") for how in ("infer", "train")])
    assert next(x["note"] for x in read_lines(path) if "note" in x) == "the process ended with code -6"
    assert "failed" in table.read_text()


def test_what_is_measured_already_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that gives its device up leaves the others to the next one."""
    path, asked = tmp_path / "lines.jsonl", []
    settings = replace(SETTINGS, levels=("O2",), against=("torch",))
    facts = {"against": ["torch"], "precision": "float32"}

    def ask(function: str, data: str, cases: list[gpu.Case], *_: Any, **limits: Any) -> Row:
        asked.append([*cases])
        model, mode = cases[0]
        append_line(path, line("am~", entry("ours", "O2", 1.0)) | facts | {"model": model, "mode": mode})
        return {}

    monkeypatch.setattr(gpu, "ask", ask)
    cases = [("rgcn", "infer"), ("rgcn", "train"), ("hgt", "infer")]
    append_line(path, line("am~", entry("ours", "O2", 1.0)) | facts)  # rgcn, train
    missing = partial(gpu.incomplete, cases, path=path)
    again = partial(gpu.run_all, settings=settings, path=path, case_limit=math.inf, builds=NOTHING)
    assert missing(settings) == {"am~": [("rgcn", "infer"), ("hgt", "infer")]}
    assert again(missing(settings), deadline=math.inf) == 0
    assert asked == [[("rgcn", "infer"), ("hgt", "infer")], [("hgt", "infer")]]
    assert again(missing(settings), deadline=math.inf) == 0
    assert len(asked) == 2
    assert again(missing(replace(settings, data=("am~", "bgs~"))), deadline=-math.inf) == 3  # those of bgs
    assert missing(replace(settings, hidden=32)) == {"am~": cases}


@pytest.mark.usefixtures("named")
def test_cases_that_are_left_show_in_the_exit_status(tmp_path: Path) -> None:
    options = ["--data", "am~", "--models", "hgt", "--device", "cuda", "--arch", "90", "--against", "torch"]
    options += ["--time-limit", "0", "--json", str(tmp_path / "lines.jsonl")]
    result = CliRunner().invoke(relational, options)
    assert result.exit_code == 75, result.output
    assert "2 cases are left; call again with the same --json." in result.output

"""Commands that take --device cuda: refused without a device, handed on with one."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from benchmarks.caching import candidates, records
from benchmarks.caching.experiment import TaskExperiment
from benchmarks.caching.task import Limits, Task
from benchmarks.caching.workload import Workload
from benchmarks.named import Named
from benchmarks.papers.command import papers
from benchmarks.relational import runner
from benchmarks.relational.command import relational
from benchmarks.relational.problem import Problem
from dacergnn.bench import memory
from dacergnn.bench import runner as measures
from dacergnn.bench.measure import ON_DEVICE, ON_PROCESSOR
from dacergnn.config import Config, Rates

RATES = Rates(4e13, 3e12, 6e12, 1e11)
COMMANDS = {
    "dacergnn.cli.env:env": (),
    "dacergnn.cli.tune:run": (),
    "benchmarks.learned_model.command:collect": ("--out", "samples.jsonl"),
    "benchmarks.relational.command:relational": (),
    "dacergnn.cli.bench:bench": (),
    "benchmarks.caching.command:caching": (),
    "benchmarks.papers.command:papers": ("ablation",),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_without_a_device_they_say_so(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    module, name = command.split(":")
    result = CliRunner().invoke(getattr(import_module(module), name), [*COMMANDS[command], "--device", "cuda"])
    assert result.exit_code == 2, result.output
    assert "--device cuda: torch finds no CUDA device here; name cpu to run on the processor." in result.output


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A device in name alone: what is moved there stays where it is. Lists what was moved, and where rates are of."""
    places: list[str] = []

    def stay(self: Any, device: torch.device | str, *_: Any) -> Any:
        places.append(f"{type(self).__name__} to {torch.device(device).type}")
        return self

    def rates(rows: int = 0, width: int = 0, device: torch.device | str = "cpu") -> Rates:
        places.append(f"rates of {device}")
        return RATES

    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr(Problem, "to", stay)
    monkeypatch.setattr(Workload, "on", stay)
    monkeypatch.setattr(runner, "measure_rates", rates)
    return places


def test_overhead_is_of_the_processor(moved: list[str]) -> None:
    refused = CliRunner().invoke(relational, ["--overhead", "--device", "cuda"])
    assert "--overhead measures calls on the processor; leave --device out." in refused.output


def test_peaks_of_a_device_are_those_of_its_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    for name, result in (
        ("synchronize", None), ("empty_cache", None), ("reset_peak_memory_stats", None), ("memory_allocated", 30),
        ("max_memory_allocated", 100),
    ):  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, lambda *_, name=name, result=result: events.append(name) or result)
    assert memory.peak_growth(lambda: events.append("call"), torch.device("cuda")) == (70, "torch.cuda")
    assert events == [
        *("synchronize", "empty_cache", "reset_peak_memory_stats", "memory_allocated"),
        *("call", "synchronize", "max_memory_allocated"),
    ]


def test_the_caching_suite(moved: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch_geometric")
    used: list[Rates | None] = []
    weighed: list[str] = []
    limits = Limits(("infer",), torch.get_num_threads(), repeat=1, budget_s=0.01, device="cuda", rates=RATES)
    ours = Named("ours", "cache_all", Config())
    task = Task("gcn", "arxiv~0.0005", "layer", 8, 8)
    monkeypatch.setattr(candidates, "optimize", lambda net, *_, config, **__: used.append(config.rates) or net)
    monkeypatch.setattr(memory, "peak_growth", lambda call, device: weighed.append(device.type) or (1, ""))
    monkeypatch.setattr(memory, "return_freed", lambda: None)
    monkeypatch.setattr(measures, "clock_of", lambda device: ON_PROCESSOR)  # where the stand-in for the device is
    row = measures.times(TaskExperiment(task, limits), [ours], limits)["rows"][ours]
    assert row["status"] == "ok", row
    assert "infer_ms" in row
    measures.peak(TaskExperiment(task, limits), ours, "cuda")
    assert moved == ["Workload to cuda"] * 2
    assert set(used) == {RATES}
    assert weighed == ["cuda"]
    assert records.settings_of(task, ours, limits) != records.settings_of(task, ours, replace(limits, device="cpu"))


def test_devices_have_a_clock_of_their_own() -> None:
    here: Any = TaskExperiment(Task("gcn", "cora", "layer", 8, 8), Limits())
    assert measures.Turns(here, (), "cpu").clock is ON_PROCESSOR
    assert measures.Turns(here, (), "cuda").clock is ON_DEVICE


def test_a_file_without_rates_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(papers, ["ablation", "--rates", str(tmp_path / "none.json")])
    assert result.exit_code == 2
    assert "none.json holds none; name a file" in " ".join(result.output.split())

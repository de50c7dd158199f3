"""Tuning for a CUDA device, in emulation: plans are built for it, measured on it and ranked by its rates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from dacergnn import Config, Plan, parse
from dacergnn.cli import main
from dacergnn.cli import tune as command
from dacergnn.config import TYPICAL_RATES, Rates
from dacergnn.graph import HeteroGraph
from dacergnn.graph.profile import TYPICAL, Profile
from dacergnn.modules import RGCN
from dacergnn.program import Program
from dacergnn.runtime.cuda_executable import CUDAExecutable
from dacergnn.sdfg_passes import compile_program
from dacergnn.tuning import collect, graphs, measure, programs
from dacergnn.tuning.collect import INDEX, Collector, CollectSettings
from dacergnn.tuning.features import RATES
from dacergnn.tuning.graph_facts import GraphFacts
from dacergnn.tuning.graphs import random_graph
from dacergnn.tuning.measure import RandomArrays, Runnable, TimedStep
from dacergnn.tuning.predictor import Analytic
from dacergnn.tuning.programs import random_layer
from dacergnn.tuning.search import predicted
from tests.support.emulated_device import emulated_device

__all__ = ["emulated_device"]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "EDGES", (100, 200))
    monkeypatch.setattr(programs, "WIDTHS", (4, 8))
    monkeypatch.setattr(collect, "_ELEMENTS", 1 << 12)


@pytest.fixture
def _named(emulated_device: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands find a device; graphs that they move there stay where they are."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr(HeteroGraph, "to", lambda self, device: self)
    for module in (command, collect):
        monkeypatch.setattr(module, "architectures", lambda chosen: (80,))


def test_steps_run_on_the_device(emulated_device: Config) -> None:
    layer, graph = random_layer(1), random_graph(5)
    sdfg = parse(layer.text)
    found = compile_program(sdfg, layer.learned, emulated_device, INDEX, Profile.of(graph), keep=False)
    runnable = Runnable(found, len(Program(sdfg).outputs), (80,))
    assert all(isinstance(part, CUDAExecutable) and part.architectures == (80,) for part in runnable.loaded)
    forward, backward = TimedStep(runnable, graph, RandomArrays(1 << 12))()
    assert forward > 0
    assert backward is not None
    assert backward > 0


def test_times_are_of_work_that_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[torch.device] = []

    class Stream:
        def __init__(self, device: torch.device) -> None:
            self.device = device

        def synchronize(self) -> None:
            waited.append(self.device)

    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    measure.now(torch.device("cpu"))
    assert waited == []
    measure.now(torch.device("cuda"))
    assert waited == [torch.device("cuda")]


def test_predictions_are_by_the_rates_of_the_device() -> None:
    layer, graph = random_layer(1), random_graph(5)
    found = compile_program(parse(layer.text), [], Config(), INDEX, TYPICAL, keep=False)
    facts = GraphFacts.of(graph)
    slow = Rates(*(value / 1e6 for value in vars(RATES).values()))
    own, slower = (predicted(found, facts, Analytic(), rates) for rates in (RATES, slow))
    assert predicted(found, facts, Analytic()) == own
    assert slower > 2 * own
    assert predicted(found, facts, Analytic(), TYPICAL_RATES["cuda"]) < own


@pytest.mark.usefixtures("_named")
def test_a_run_on_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, path = random_graph(5), tmp_path / "plan.json"
    layer = RGCN(4, 4, graph.size("R"))
    layer(torch.randn(graph.size("NS"), 4, requires_grad=True), graph).sum().backward()
    monkeypatch.setattr(command, "compiled_layer", lambda *_, device: layer if device == "cuda" else None)
    monkeypatch.setattr(command, "FINAL_REPEAT", 1)
    options = ["--layer", "rgcn", "--width", "1", "--depth", "1", "--evaluations", "3", "--top", "1"]
    result = CliRunner().invoke(main, ["tune", "run", *options, "--device", "cuda", "--out", str(path)])
    assert result.exit_code == 0, (result.output, result.exception)
    assert "plan 1" in result.output
    plan = Plan.from_json(path.read_text())
    assert any(question.endswith(("/split_hubs", "/row_tile", "/schedule_by")) for question in plan.by_question)


@pytest.mark.usefixtures("_named")
def test_samples_of_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places: list[str] = []

    def arrays(elements: int, device: str) -> RandomArrays:
        places.append(device)
        return RandomArrays(elements)

    def reference(device: str) -> Any:
        places.append(device)
        return lambda: 1.0

    monkeypatch.setattr(collect, "RandomArrays", arrays)
    monkeypatch.setattr(collect, "Reference", reference)
    settings = CollectSettings(graphs=1, pool=1, builds=1, variants=0, repeat=1, limit=1e9, device="cuda")
    (found,) = Collector(settings).sampled(0)
    assert len(found.times) == 1
    assert places == ["cuda", "cuda"]
    answers = dict(found.plans[0].plan.answers)
    assert any(question.endswith(("/split_hubs", "/row_tile", "/schedule_by")) for question in answers)

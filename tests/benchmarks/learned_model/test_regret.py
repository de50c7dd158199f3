"""Regret: chosen plans are found among those that were measured, and cases are measured once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from benchmarks import programs
from benchmarks.commands import main
from benchmarks.learned_model import choices as command
from benchmarks.learned_model import regret as module
from benchmarks.learned_model.regret import regret
from benchmarks.learned_model.searches import SEARCHES, Searched, compare
from dacergnn import HeteroGraph
from dacergnn.modules import RGAT
from dacergnn.plan import Plan
from dacergnn.tuning.features import RATES, THREADS, Described
from dacergnn.tuning.measure import Times
from tests.tuning.test_search import INDIFFERENT, SMALL_TILES, Likes, compiler
from tests.tuning.test_search import graph as graph  # a fixture


@pytest.fixture(autouse=True)
def _few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    for searching in ("benchmarks.learned_model.searches", "dacergnn.tuning.tuned"):
        monkeypatch.setattr(f"{searching}.EVALUATIONS", 6)


def timed(monkeypatch: pytest.MonkeyPatch, first: float, step: float) -> None:
    """Programs take longer by ``step`` seconds, one after the other."""

    def measure(
        steps: Mapping[int, Any], repeat: int, limit: float = 0, budget: float = 0
    ) -> dict[int, tuple[Times, None]]:
        assert all(seconds > 0 for given in steps.values() for seconds in given() if seconds is not None)
        return {n: (Times(first + step * n, 1e-3, repeat), None) for n in steps}

    for used in ("benchmarks.learned_model.regret", "dacergnn.tuning.measure"):
        monkeypatch.setattr(f"{used}.measure", measure)


@pytest.mark.interpreted
def test_choices_are_among_what_was_measured(graph: HeteroGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    _, run = compiler(3, graph)
    timed(monkeypatch, 1.0, 1.0)
    found = regret(run, 1, graph, SMALL_TILES, builds=3, evaluations=6)
    assert (found.default, found.model, found.measure, found.best) == (1, 2, 1, 1)
    assert found.deviations == {}
    assert found.plans > 8
    assert found.scores.pairs == found.plans * (found.plans - 1) // 2
    assert 0 < found.choosing < 10
    timed(monkeypatch, 100.0, -1.0)
    again = regret(run, 1, graph, SMALL_TILES, builds=3, evaluations=6)
    assert again.best < again.measure < again.model == 99 < again.default
    fastest = run(Plan.of(again.deviations)).plan.by_question
    assert again.deviations
    assert again.deviations.items() <= fastest.items()
    assert again.scores.ranked == pytest.approx(1 - found.scores.ranked, abs=0.2)


@pytest.mark.interpreted
def test_the_default_may_be_what_is_chosen(graph: HeteroGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    _, run = compiler(3, graph)
    timed(monkeypatch, 1.0, 1.0)
    found = regret(run, 1, graph, INDIFFERENT, builds=1, evaluations=2)
    assert found.default == found.model == found.measure == 1


def test_command(graph: HeteroGraph, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    layer = RGAT(4, 4, 3)
    layer(torch.randn(20, 4), graph).sum().backward()
    monkeypatch.setattr(programs, "compiled_layer", lambda *given: layer)
    monkeypatch.setattr(command, "shipped", lambda: SMALL_TILES)
    options = ["model", "regret", "--json", str(tmp_path / "regret.jsonl"), "--data", "aifb", "--builds", "1"]
    options += ["--evaluations", "2", "--mode", "infer", "--models", "rgat"]
    result = CliRunner().invoke(main, options)
    assert result.exit_code == 0, result.output
    assert "largest" in result.output
    refused = CliRunner().invoke(main, [*options, "--mode", "both"])
    assert refused.exit_code != 0
    assert "mode: 'both' (entry 1) is unknown; choose from infer, train" in f"{refused.output} {refused.exception}"
    monkeypatch.setattr(module, "regret", lambda *given, **more: pytest.fail("measured again"))
    again = CliRunner().invoke(main, options)
    assert again.exit_code == 0, again.output
    assert again.output[-400:] == result.output[-400:]
    drawn = CliRunner().invoke(main, [*options, "--plots", str(tmp_path)])
    assert drawn.exit_code == 0, drawn.output
    assert (tmp_path / "regret.png").stat().st_size > 1000


def test_searches_are_not_repeated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []

    def found(*_: Any) -> dict[str, Searched]:
        asked.append("")
        return {name: Searched(0.9, 0.8, 3) for name in SEARCHES}

    monkeypatch.setattr(command, "program_of", lambda *_: (None, 1, None))
    monkeypatch.setattr(command, "shipped", lambda: SMALL_TILES)
    monkeypatch.setattr(command, "compare", found)
    options = ["model", "searches", "--data", "aifb", "--models", "rgcn,hgt", "--mode", "infer"]
    first, again = (CliRunner().invoke(main, [*options, "--json", str(tmp_path / "rows.jsonl")]) for _ in range(2))
    assert first.exit_code == 0, first.output
    assert "0.800 (0.900; 3)" in first.stdout
    assert again.stdout == first.stdout
    assert len(asked) == 2


@pytest.mark.interpreted
@pytest.mark.parametrize("model", ["gcn", "gatv2"])
def test_layers_of_libraries_are_judged_too(model: str) -> None:
    """The program of a homogeneous layer takes all edges of a graph, and compiles by plans."""
    pytest.importorskip("torch_geometric")
    run, results, graph = programs.program_of(model, "am~0.0005", 8, 2, "train")
    assert results == 1
    assert graph.size("R") == 1
    assert graph.size("E") > 1000
    found = run(Plan())
    assert found.backward is not None
    assert "x" not in found.wrt
    assert programs.program_of(model, "am~0.0005", 8, 2, "infer")[0](Plan()).backward is None


@pytest.mark.interpreted
def test_searches_are_compared_in_equal_time(graph: HeteroGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    _, run = compiler(3, graph)
    timed(monkeypatch, 1.0, 1.0)
    monkeypatch.setattr("benchmarks.learned_model.searches.seconds", lambda steps, repeat: {n: 1.0 + n for n in steps})
    clock = chain([0], count(4))  # the first search takes four seconds, and each look at the clock one
    monkeypatch.setattr("benchmarks.learned_model.searches.time", SimpleNamespace(perf_counter=clock.__next__))
    fewest = Likes(lambda program: float(len(program.seconds)))
    found = compare(run, 1, graph, fewest)
    assert list(found) == [*SEARCHES]
    assert all(0 < one.predicted <= 1 for one in found.values())
    assert [one.measured for one in found.values()] == [2.0, 3.0, 4.0]
    assert all(one.programs > 1 for one in found.values())


@pytest.mark.interpreted
def test_features_are_for_the_threads_of_the_model(graph: HeteroGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    used: set[int] = set()
    original = Described.on

    def on(self: Described, facts: Any, rates: Any = RATES, threads: int = THREADS) -> Any:
        used.add(threads)
        return original(self, facts, rates, threads)

    monkeypatch.setattr(Described, "on", on)
    _, run = compiler(3, graph)
    timed(monkeypatch, 1.0, 1.0)
    regret(run, 1, graph, replace(INDIFFERENT, threads=7), builds=1, evaluations=2)
    assert used == {7}

"""Builds that race in the calls of the user: which one wins, what is kept of it, and when there is no race."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from dacergnn import Config, HeteroGraph
from dacergnn.modules import RGCN
from dacergnn.modules.compiled import CompiledProgram
from dacergnn.modules.programs import compiled_program
from dacergnn.modules.variant import Variant
from dacergnn.modules.ways import contest
from dacergnn.modules.ways.contest import EARLY, LEAST, MOST, UNTIMED, Contest, gain
from dacergnn.modules.ways.race import Race
from dacergnn.tuning import tuned


def build(name: str) -> Any:
    return SimpleNamespace(name=name)


def graph() -> HeteroGraph:
    generator = torch.Generator().manual_seed(0)
    ends, types = torch.randint(30, (2, 200), generator=generator), torch.randint(3, (200,), generator=generator)
    return HeteroGraph.from_arrays(ends, types, num_nodes=30, num_edge_types=3)


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


class Calls:
    """Makes calls whose builds take the given seconds, with some noise."""

    def __init__(self, seconds: dict[str, float], noise: float = 0.01) -> None:
        self.seconds, self.noise, self.random = seconds, noise, random.Random(0)
        self.ended: list[str] = []
        self.order: list[str] = []
        self.graph = graph()
        default, *others = map(build, seconds)
        self.contest = Contest("layer", default, lambda graph: others, lambda winner: self.ended.append(winner.name))

    def call(self, on: HeteroGraph | None = None) -> str:
        own = on or self.graph
        variant, runner = self.contest.take(own)
        name: str = variant.name  # type: ignore[attr-defined]
        self.order.append(name)
        self.contest.note(runner, self.seconds[name] * self.random.gauss(1, self.noise), own)
        return name

    def until_the_race(self) -> None:
        self.call()
        self.call()  # more than a second in all
        wait_for(lambda: "dacergnn-search" not in [thread.name for thread in threading.enumerate()])


def test_a_clearly_faster_build_wins() -> None:
    calls = Calls({"default": 1.0, "better": 0.95, "best": 0.9})
    calls.until_the_race()
    while not calls.ended:
        calls.call()
    assert calls.ended == ["best"]
    assert calls.order.count("better") == calls.order.count("best") == LEAST + UNTIMED


def test_slow_builds_leave_early() -> None:
    calls = Calls({"default": 1.0, "slow": 1.3, "slower": 2.0})
    calls.until_the_race()
    while not calls.ended:
        calls.call()
    assert calls.ended == ["default"]
    assert calls.order.count("slower") <= EARLY + UNTIMED


def test_the_default_stays_if_nothing_is_clear() -> None:
    calls = Calls({"default": 1.0, "same": 0.999}, noise=0.2)
    calls.until_the_race()
    while not calls.ended:
        calls.call()
    assert calls.ended == ["default"]
    assert calls.order.count("same") == MOST + UNTIMED


def test_builds_run_in_turns() -> None:
    calls = Calls({"default": 1.0, "a": 1.0, "b": 1.0}, noise=0.3)
    calls.until_the_race()
    assert calls.contest.take(calls.graph)[1] is not None
    rounds = [calls.call() for _ in range(18)]
    assert {rounds.count(name) for name in ("default", "a", "b")} <= {5, 6, 7}


def test_other_graphs_take_no_part() -> None:
    calls, other = Calls({"default": 1.0, "better": 0.5}), graph()
    calls.until_the_race()
    assert [calls.call(other) for _ in range(20)] == ["default"] * 20
    assert not calls.ended


def test_a_race_stops_where_torch_is_to_be_deterministic() -> None:
    calls = Calls({"default": 1.0, "better": 0.5})
    calls.until_the_race()
    torch.use_deterministic_algorithms(True)
    try:
        assert [calls.call() for _ in range(50)] == ["default"] * 50
    finally:
        torch.use_deterministic_algorithms(False)
    assert not calls.ended


def test_nothing_is_searched_for_what_takes_no_time() -> None:
    calls = Calls({"default": contest.WORTH_S / 200, "better": 0.1})
    for _ in range(100):
        calls.call()
    assert not calls.contest._searching  # pyright: ignore[reportPrivateUsage]


def test_a_search_that_fails_leaves_the_default(caplog: pytest.LogCaptureFixture) -> None:
    ended: list[Any] = []

    def fail(graph: HeteroGraph) -> list[Any]:
        raise RuntimeError("no room")

    own, default = graph(), build("default")
    race = Contest("layer", default, fail, ended.append)
    race.note(None, 2 * contest.WORTH_S, own)
    wait_for(lambda: bool(ended))
    assert ended == [default]
    assert "no other plans for layer: no room" in caplog.text


def test_a_race_ends_with_its_graph_and_another_may_follow() -> None:
    calls = Calls({"default": 1.0, "better": 0.5})
    calls.until_the_race()
    assert calls.contest.take(calls.graph)[1] is not None
    calls.graph = graph()
    gc.collect()
    assert not calls.contest._runners  # pyright: ignore[reportPrivateUsage]
    calls.until_the_race()
    while not calls.ended:
        calls.call()
    assert calls.ended == ["better"]


def test_batches_start_no_race() -> None:
    calls = Calls({"default": contest.WORTH_S / 2, "better": 0.1})
    for _ in range(20):
        calls.call(graph())
    assert not calls.contest._searching  # pyright: ignore[reportPrivateUsage]


def test_an_exit_waits_for_a_step_of_a_search() -> None:
    code = """
import threading, time
from dacergnn import HeteroGraph
from dacergnn.modules.ways.contest import WORTH_S, Contest, searching
import torch

loop = torch.zeros(2, 1, dtype=torch.int64)
graph, begun = HeteroGraph.from_arrays(loop, loop[0], num_nodes=1), threading.Event()

def search(graph):
    for step in range(3):
        with searching():
            begun.set()
            time.sleep(0.5)
            print("step", step, flush=True)
    return []

Contest("layer", None, search, print).note(None, 2 * WORTH_S, graph)
begun.wait()
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (told.returncode, told.stdout, told.stderr) == (0, "step 0\n", "")


def test_interruptions_do_not_count() -> None:
    default, other = [1.0, 1.1] * 10, [0.9, 1.0] * 10
    other[3] = 50.0
    mean, error = gain(default, other)
    assert mean > 2 * error


@pytest.fixture
def raced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[CompiledProgram]:
    """While it lasts, races begin at once, whatever the model says; returns the programs so far."""
    monkeypatch.setenv("DACERGNN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(contest, "WORTH_S", 0.0)
    monkeypatch.setattr(tuned, "LEAST_GAIN", -100.0)
    compiled_program.cache_clear()
    made: list[CompiledProgram] = []
    initialize = CompiledProgram.__init__

    def noted(self: CompiledProgram, *args: Any, **kwargs: Any) -> None:
        initialize(self, *args, **kwargs)
        made.append(self)

    monkeypatch.setattr(CompiledProgram, "__init__", noted)
    return made


def results(layer: torch.nn.Module, own: HeteroGraph, x: Tensor) -> list[Tensor]:
    out = layer(x, own)
    return [out.detach(), *torch.autograd.grad(out.square().sum(), [x, *layer.parameters()])]


def running(program: CompiledProgram) -> list[Contest[Variant]]:
    race = program.way(Race)
    return [] if race is None else [contest for contest in race.contests.values() if contest is not None]


def test_values_stay_while_builds_race_and_the_winner_is_kept(raced: list[CompiledProgram]) -> None:
    torch.manual_seed(0)
    own, x = graph(), torch.randn(30, 8, requires_grad=True)
    layer = RGCN(8, 8, 3, config=Config(tune="fast"))
    first = results(layer, own, x)
    (program,) = raced
    assert len(running(program)) == 1
    variants: set[int] = set()
    for _ in range(2000):
        for a, b in zip(results(layer, own, x), first, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
        for race in running(program):
            variants |= {id(runner.build) for runner in race._runners}  # pyright: ignore[reportPrivateUsage]
        if not running(program):
            break
        time.sleep(0.001 if variants else 0.05)
    assert not running(program)
    assert len(variants) > 1
    compiled_program.cache_clear()
    again = RGCN(8, 8, 3, config=Config(tune="fast"))
    results(again, own, x)
    assert raced[-1] is not program
    assert not running(raced[-1])


@pytest.mark.interpreted
@pytest.mark.parametrize("how", ["config", "torch"])
def test_who_asks_for_the_same_values_gets_no_race(how: str, raced: list[CompiledProgram]) -> None:
    own, x = graph(), torch.randn(30, 8)
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(how == "torch")
    try:
        layer = RGCN(8, 8, 3, config=Config(tune="fast", deterministic=how == "config"))
        with torch.no_grad():
            layer(x, own)
    finally:
        torch.use_deterministic_algorithms(before)
    assert not running(raced[-1])

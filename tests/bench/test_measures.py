"""Timing, memory, rates and bounds."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest
import torch

from benchmarks.relational.bound import bound, plans
from dacergnn.bench import measure, memory
from dacergnn.bench.measure import Timing, interleave
from dacergnn.bench.rates import measure_rates
from dacergnn.config import Rates
from dacergnn.errors import DacergnnError

MB = 1_000_000
FB15K = {"N": 14_541, "E": 620_232, "U": 161_922, "V": 161_922, "R": 474}


def test_interleaving_takes_turns_and_drops_the_hopeless() -> None:
    order: list[str] = []

    def call(name: str, seconds: float) -> None:
        order.append(name)
        time.sleep(seconds)

    calls = {"a": lambda: call("a", 0.003), "b": lambda: call("b", 0.003), "slow": lambda: call("slow", 0.06)}
    timings = interleave(calls, repeat=6, budget_s=5.0)
    assert order[3:9] == ["a", "b", "slow"] * 2
    assert len(timings["a"].samples) == len(timings["b"].samples) == 6
    assert len(timings["slow"].samples) == 3
    assert 3.0 <= timings["a"].percentile(0.2) <= timings["a"].ms <= timings["a"].percentile(0.99)


def test_a_call_beyond_the_budget_keeps_one_sample() -> None:
    timings = interleave({"slow": lambda: time.sleep(0.02)}, repeat=5, budget_s=0.1)
    assert len(timings["slow"].samples) == 1
    assert Timing([0.003, 0.001, 0.002]).ms == pytest.approx(2.0)


@pytest.mark.parametrize("budget", [0.05, 1.0, 4.0, 30.0])
def test_the_budget_is_kept_unless_one_try_of_each_takes_longer(monkeypatch: pytest.MonkeyPatch, budget: float) -> None:
    now = [0.0]

    def spend(seconds: float) -> float:
        now[0] += seconds
        return seconds

    monkeypatch.setattr(measure.time, "perf_counter", lambda: now[0])
    clock = measure.Clock(lambda call: call(), lambda call, timing: timing.samples.append(call()))
    calls = {str(seconds): partial(spend, seconds) for seconds in (0.3, 0.01, 0.02, 0.25, 0.28, 0.05)}
    timings = interleave(calls, repeat=1000, budget_s=budget, clock=clock)
    assert now[0] <= max(budget, sum(map(float, calls)))
    assert all(timing.samples for timing in timings.values())
    assert len(timings["0.01"].samples) >= (3 if budget >= 1.0 else 1)


def allocate() -> None:
    torch.ones(16 * MB // 4)  # freed at once: only the peak shows it
    torch.ones(64 * MB // 4)


@pytest.mark.parametrize("mark", [True, False])
def test_peak_growth_sees_what_was_freed_again(mark: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.ones(MB)
    if not mark:
        write = Path.write_text

        def refuse(path: Path, text: str) -> int:
            if path.name == "clear_refs":
                raise PermissionError(str(path))
            return write(path, text)

        monkeypatch.setattr(Path, "write_text", refuse)
    grown, method = memory.peak_growth(allocate)
    assert method == ("VmHWM" if mark else "sampled")
    assert 50 * MB < grown < 90 * MB
    assert memory.peak_growth(lambda: None)[0] < 10 * MB


def test_rates_are_plausible() -> None:
    rates = measure_rates(1000, 16)
    assert 1e8 < rates.streamed < 5e12
    assert 1e8 < rates.gathered < 5e13
    assert 1e6 < rates.rows < 5e12
    assert 5e8 < rates.flops < 5e13


def test_bounds_agree_with_figures_worked_out_by_hand() -> None:
    """RGAT forward on FB15k-237 at 150 GFLOP/s and 25 GB/s: 69 ms with a row an edge, 9.6 at best."""
    rates = Rates(flops=150e9, streamed=25e9, gathered=1e15, rows=1e15)
    by_name = {p.name: p for p in plans("rgat", FB15K, 64)}
    assert by_name["vanilla"].flop / 150e9 == pytest.approx(0.069, rel=0.02)
    best = bound("rgat", "infer", FB15K, 64, rates)
    assert best.ms == pytest.approx(9.6, rel=0.03)
    assert best.limit == "FLOP"
    assert bound("rgat", "train", FB15K, 64, rates).ms == pytest.approx(3 * best.ms, rel=0.03)
    slow_memory = Rates(flops=150e9, streamed=25e9, gathered=1e9, rows=1e15)
    assert bound("rgcn", "infer", FB15K, 64, slow_memory).limit == "gather bandwidth"


@pytest.mark.parametrize("model", ["rgcn", "rgat", "hgt"])
def test_training_costs_more_than_inference(model: str) -> None:
    rates = Rates(150e9, 25e9, 40e9, 5e8)
    assert bound(model, "train", FB15K, 64, rates).ms >= 2 * bound(model, "infer", FB15K, 64, rates).ms
    assert len({p.name for p in plans(model, FB15K, 64)}) == 3


def test_unknown_model_has_no_bound() -> None:
    with pytest.raises(DacergnnError, match="'gat' is unknown"):
        plans("gat", FB15K, 64)

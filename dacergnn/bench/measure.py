"""Times several callables in turns, in one process."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any, TypeVar

import torch

from dacergnn.bench.scatter import scatters

K = TypeVar("K")
MODES = ("infer", "train")
"""Names what is timed: a forward without gradients, or a forward and a backward."""
TURN_S = 0.002
"""A turn lasts at least this long, so that short calls are not all measured with cold caches."""
REST_S = 0.001
"""Pause between turns: idle threads of one OpenMP pool spin for a moment and would slow the next."""
LEAST_ROUNDS = 3
HOPELESS = 6.0
"""A candidate this many times slower than the fastest is left out of the rounds after the third."""


@dataclass
class Timing:
    """Holds the seconds of the timed calls, without the warm-up (unless it was the only call)."""

    samples: list[float] = field(default_factory=list)

    @property
    def ms(self) -> float:
        """Returns the median in milliseconds."""
        return 1e3 * median(self.samples)

    def percentile(self, share: float) -> float:
        """Returns the milliseconds below which a share of the samples lies."""
        ordered = sorted(self.samples)
        return 1e3 * ordered[min(int(share * len(ordered)), len(ordered) - 1)]

    @property
    def scatters(self) -> bool:
        """Tells whether the samples lie too far apart for comparisons."""
        return bool(self.samples) and scatters(self.as_json())

    def as_json(self, prefix: str = "") -> dict[str, float | int]:
        """Returns the median, percentiles and number of samples."""
        return {
            f"{prefix}ms": self.ms,
            f"{prefix}p20_ms": self.percentile(0.2),
            f"{prefix}p80_ms": self.percentile(0.8),
            f"{prefix}samples": len(self.samples),
        }


def time_call(call: Callable[[], Any]) -> float:
    """Returns the seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def time_of_processor(call: Callable[[], Any]) -> float:
    """Returns the seconds that one call takes of all processors."""
    start = time.process_time()
    call()
    return time.process_time() - start


def time_on_device(call: Callable[[], Any], times: int = 1) -> float:
    """Returns the mean seconds of calls in a row on the current CUDA device, by events of its stream; waits for all."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(times):
        call()
    end.record()
    end.synchronize()
    return 1e-3 * start.elapsed_time(end) / times


def interleave(
    calls: Mapping[K, Callable[[], Any]],
    repeat: int = 30,
    budget_s: float = 20.0,
    clock: Clock | None = None,
) -> dict[K, Timing]:
    """Times every call in turns, one after the other, for `repeat` rounds or until the budget is spent.

    Every call has run once before, and each is tried first, the slow ones twice while there is time. The fastest go
    into the rounds, as many as have time for three; the others keep the better of their tries.
    """
    clock = clock or ON_PROCESSOR
    deadline = time.perf_counter() + budget_s
    tries = {name: clock.time(call) for name, call in calls.items()}
    for name in sorted(tries, key=tries.__getitem__):
        if tries[name] > budget_s / 10 and time.perf_counter() + tries[name] < deadline:
            tries[name] = min(tries[name], clock.time(calls[name]))
    active = _with_time_for_rounds(tries, deadline - time.perf_counter())
    timings = {name: Timing([] if name in active else [tries[name]]) for name in calls}
    start = time.perf_counter()
    enabled = gc.isenabled()
    gc.disable()
    try:
        for turn in range(repeat):
            for name in active:
                clock.take_turn(calls[name], timings[name])
            if turn + 1 == LEAST_ROUNDS:
                best = min((timings[name].ms for name in active), default=0.0)
                active = [name for name in active if timings[name].ms <= HOPELESS * best]
            now = time.perf_counter()
            if now + (now - start) / (turn + 1) > deadline and (turn + 1 >= LEAST_ROUNDS or now > deadline):
                break
    finally:
        if enabled:
            gc.enable()
    return timings


def _with_time_for_rounds(tries: Mapping[K, float], left_s: float) -> list[K]:
    """Returns the names of the fastest calls of which `LEAST_ROUNDS` rounds take no longer, in their order."""
    chosen: set[K] = set()
    for name in sorted(tries, key=tries.__getitem__):
        left_s -= LEAST_ROUNDS * (max(tries[name], TURN_S) + REST_S)
        if left_s < 0:
            break
        chosen.add(name)
    return [name for name in tries if name in chosen]


def _take_turn(call: Callable[[], Any], timing: Timing, timed: Callable[[Callable[[], Any]], float]) -> None:
    time.sleep(REST_S)
    end = time.perf_counter() + TURN_S
    while True:
        timing.samples.append(timed(call))
        if time.perf_counter() >= end:
            return


def _take_turn_on_device(call: Callable[[], Any], timing: Timing) -> None:
    """Takes one sample: the mean of as many calls in a row as fill a turn, since calls are in a row in training."""
    seconds = time_on_device(call)
    times = min(max(round(TURN_S / max(seconds, 1e-6)), 1), 100)
    timing.samples.append(time_on_device(call, times))


@dataclass(frozen=True)
class Clock:
    """Describes how one call is timed, and how the samples of a turn are taken."""

    time: Callable[[Callable[[], Any]], float]
    take_turn: Callable[[Callable[[], Any], Timing], None]


def turns_by(timed: Callable[[Callable[[], Any]], float]) -> Clock:
    """Returns the clock that times one call after the other, until a turn is filled.

    Args:
        timed: Returns the seconds of a call.
    """
    return Clock(timed, partial(_take_turn, timed=timed))


ON_PROCESSOR = turns_by(time_call)
OF_PROCESSOR = turns_by(time_of_processor)
"""Measures what all threads of this process spend, whatever else the machine does."""
ON_DEVICE = Clock(time_on_device, _take_turn_on_device)


def clock_of(device: torch.device) -> Clock:
    """Returns the clock for calls that compute on a device."""
    return ON_DEVICE if device.type == "cuda" else ON_PROCESSOR

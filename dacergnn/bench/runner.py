"""Runs experiments: candidates are validated, and timed in turns in one process; peaks of memory have one each."""

from __future__ import annotations

import math
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import torch

from dacergnn.bench import memory
from dacergnn.bench.measure import MODES, Clock, Timing, clock_of, interleave
from dacergnn.bench.process import OUT_OF_MEMORY, ask, failure
from dacergnn.json_lines import Row
from dacergnn.runtime.pool import POOL

TOLERANCE = 1e-3
"""A result is wrong if it is farther from that in float64, unless the original in float32 is about as far off. A ReLU
whose input is close to zero may be on in one result and off in the other."""
C = TypeVar("C", bound=Hashable)
Step = Callable[[], Any]


@dataclass(frozen=True)
class Limits:
    """Describes the modes of measurements, and their limits of threads, rounds, seconds and bytes."""

    modes: tuple[str, ...] = MODES
    threads: int = 2
    repeat: int = 30
    budget_s: float = 10.0
    """Seconds for the rounds of one candidate."""
    trial_limit_s: float = 600.0
    """Seconds of a process for each candidate that it measures."""
    limit_bytes: int = 64 << 30
    device: str = "cpu"
    """Type of torch's device that everything runs on: "cpu" or "cuda"."""
    deadline: float = math.inf
    """A value of time.monotonic() at which processes are ended; none is started later."""


@dataclass(frozen=True)
class Ready:
    """Holds a candidate that is ready to run.

    Args:
        steps: What is timed, by mode.
        check: Runs a step, and returns how far its results are from those in float64, or why that is not known.
        facts: Returns what else is known of the candidate, once all its steps have run. Of candidates with the same
            "program", the first alone is timed.
        tolerance: The largest error that is not wrong.
        measured: Returns what is known of the candidate once it has been timed.
    """

    steps: Mapping[str, Step]
    check: Callable[[], float | str]
    facts: Callable[[], Row] = dict[str, Any]
    tolerance: float = TOLERANCE
    measured: Callable[[], Row] = dict[str, Any]


class Experiment(ABC, Generic[C]):
    """Describes candidates that compute the same from the same data. What is sent to a process is pickled."""

    def original(self) -> C | None:
        """Returns the candidate whose error in float32 is usual, if there is one."""
        return None

    @abstractmethod
    def ready(self, candidate: C) -> Ready:
        """Makes a candidate ready to run."""

    def weighs(self) -> str:
        """Returns the mode whose peak of memory is measured."""
        return "train"

    def like(self) -> Experiment[C]:
        """Returns an experiment of the same code, on a graph that no candidate of this one has seen."""
        return self

    def during(self) -> AbstractContextManager[None]:
        """Returns the context in which candidates are validated and timed."""
        return nullcontext()

    def clock(self, device: str) -> Clock:
        """Returns the clock that times steps on a device."""
        return clock_of(torch.device(device))


class Turns(Generic[C]):
    """Holds candidates that are validated one after the other, to be timed in turns.

    Attributes:
        rows: The status of each candidate, "ok", "wrong", "failed" or "out of memory", a note, its error and facts.
        steps: The candidates that are right and have a program of their own, by mode.
        timings: The times of these, at first of a single run.
    """

    def __init__(self, experiment: Experiment[C], modes: Sequence[str], device: str) -> None:
        self.experiment, self.device, self.clock = experiment, device, experiment.clock(device)
        self.rows: dict[C, Row] = {}
        self.steps: dict[str, dict[C, Step]] = {mode: {} for mode in modes}
        self.timings: dict[str, dict[C, Timing]] = {mode: {} for mode in modes}
        self.measured: dict[C, Callable[[], Row]] = {}

    def add(self, candidate: C) -> Row:
        """Validates a candidate and returns its row; what fails or is wrong takes no turns."""
        row: Row = {"status": "ok", "note": ""}
        try:
            ready = self.experiment.ready(candidate)
            row |= self._judged(ready)
            if row["status"] == "ok":
                steps = {mode: ready.steps[mode] for mode in self.steps if mode in ready.steps}
                first = {mode: Timing([self.clock.time(step)]) for mode, step in steps.items()}
                row |= ready.facts()
                program = row.get("program")
                known = (other for other, its in self.rows.items() if program and its.get("program") == program)
                same = next(known, None)
                if same is None:
                    for mode, step in steps.items():
                        self.steps[mode][candidate], self.timings[mode][candidate] = step, first[mode]
                    self.measured[candidate] = ready.measured
                else:
                    row["same_as"] = same
        except Exception as error:  # a candidate's failure is a result
            row |= failure(error)
            memory.settle_device(torch.device(self.device))  # raises where the device is lost to this process
        self.rows[candidate] = row
        return row

    def _judged(self, ready: Ready) -> Row:
        error = ready.check()
        if isinstance(error, str):
            return {"note": error}
        row: Row = {"max_error": error}
        if not error <= ready.tolerance:
            row["note"] = f"differs from the reference by {error:.1e}, the original by {self._usual:.1e}"
            row["status"] = "ok" if error <= 2 * self._usual else "wrong"
        return row

    @cached_property
    def _usual(self) -> float:
        """Returns the error of the original."""
        original = self.experiment.original()
        error = 0.0 if original is None else self.experiment.ready(original).check()
        return 0.0 if isinstance(error, str) else error

    def time(self, repeat: int, budget_s: float) -> None:
        """Times the candidates of each mode in turns, within a budget for all."""
        count = sum(map(len, self.steps.values()))
        for mode, calls in self.steps.items():
            if calls:
                self.timings[mode] |= interleave(calls, repeat, budget_s * len(calls) / count, clock=self.clock)


def times(experiment: Experiment[C], candidates: Sequence[C], limits: Limits) -> dict[str, Any]:
    """Validates all candidates, then times those that are right, and returns their rows as {"rows": ...}."""
    turns = Turns(experiment, limits.modes, limits.device)
    # The libraries warn about their own internals.
    with warnings.catch_warnings(action="ignore"), experiment.during():
        for candidate in candidates:
            turns.add(candidate)
        turns.time(limits.repeat, limits.budget_s * max(map(len, turns.steps.values()), default=0))
    for mode, timings in turns.timings.items():
        for candidate, timing in timings.items():
            turns.rows[candidate] |= timing.as_json(f"{mode}_")
    for candidate, measured in turns.measured.items():
        turns.rows[candidate] |= measured()
    for candidate, row in turns.rows.items():
        if "same_as" in row:
            turns.rows[candidate] = turns.rows[row["same_as"]] | row
    return {"rows": turns.rows}


def peak(experiment: Experiment[C], candidate: C, device: str) -> dict[str, Any]:
    """Returns the most MB that two steps take beside what is in use before, with encodings of the graph.

    An earlier step, on another graph, has loaded and compiled all code.
    """
    memory.return_freed()
    with warnings.catch_warnings(action="ignore"):
        experiment.like().ready(candidate).steps[experiment.weighs()]()
        step = experiment.ready(candidate).steps[experiment.weighs()]
        POOL.clear()

        def twice() -> None:
            step()
            step()

        grown, _ = memory.peak_growth(twice, torch.device(device))
    return {"peak_mb": grown / 1e6}


def measure(
    experiment: Experiment[C],
    candidates: Sequence[C],
    limits: Limits,
    *,
    weighed: Collection[C] = (),
    progress: Callable[[str], None] = lambda line: None,
) -> dict[C, Row]:
    """Measures candidates in processes of their own, and returns a row for each.

    Args:
        weighed: Candidates whose peaks of memory are measured, too, if they are right.
        progress: Called with a line that says what is being done.
    """
    progress(f"{experiment}: times")
    rows = _timed(experiment, candidates, limits, progress)
    for candidate, row in rows.items():
        if candidate not in weighed or row["status"] != "ok":
            continue
        if "same_as" in row:
            row["peak_mb"] = rows[row["same_as"]].get("peak_mb")
        else:
            progress(f"{experiment}: memory of {candidate}")
            row |= weigh(experiment, candidate, limits)
    return rows


def weigh(experiment: Experiment[C], candidate: C, limits: Limits) -> Row:
    """Returns the peak of a candidate in a process of its own; without one, a note says why."""
    answer = _asked(peak, experiment, candidate, limits.device, limits=limits)
    return answer if "peak_mb" in answer else {"peak_mb": None, "note": f"memory: {answer['error']}"}


def _timed(
    experiment: Experiment[C], candidates: Sequence[C], limits: Limits, progress: Callable[[str], None]
) -> dict[C, Row]:
    answer = _asked(times, experiment, candidates, limits, limits=limits, count=len(candidates))
    rows: dict[C, Row] = answer.get("rows", {})
    if len(candidates) == 1:
        return rows or {candidates[0]: {"status": "failed", "note": answer["error"]}}
    for candidate in candidates:
        # One has ended the process, or a device has no room for all.
        if not rows.get(candidate) or (limits.device != "cpu" and rows[candidate]["note"] == OUT_OF_MEMORY):
            progress(f"{experiment}: times of {candidate} alone")
            row = rows[candidate] = _timed(experiment, [candidate], limits, progress)[candidate]
            if row["status"] == "ok":
                row["note"] = f"{row['note']} measured apart".strip()
    return rows


def _asked(function: Callable[..., Any], *arguments: Any, limits: Limits, count: int = 1) -> dict[str, Any]:
    seconds = min(limits.trial_limit_s * count, limits.deadline - time.monotonic())
    if seconds <= 0:
        return {"error": "no time is left"}
    return ask(
        f"{__name__}.{function.__name__}", *arguments, limit_s=seconds, threads=limits.threads,
        limit_bytes=limits.limit_bytes, device=limits.device,
    )  # fmt: skip

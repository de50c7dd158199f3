"""Runs one case on a CUDA device: measures each candidate by itself, then times the best ones in turns."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch

from benchmarks.relational import ours, peers, plain_torch
from benchmarks.relational.candidate import Built, Candidate, make_step, unwrapped
from benchmarks.relational.parameters import make_parameters
from benchmarks.relational.problem import Problem
from benchmarks.relational.record import about
from benchmarks.relational.reference import UNCOMPARED, Reference, compute_reference, max_error
from benchmarks.relational.replay import replayed
from benchmarks.relational.settings import BenchSettings
from dacergnn.bench.measure import Timing, clock_of, interleave
from dacergnn.bench.memory import settle_device
from dacergnn.config import Config
from dacergnn.json_lines import Row
from dacergnn.plan import Plan

PEERS = (*peers.LIBRARIES, "torch", "grouped")
"""Names of the kinds of peers, as candidates have them."""
Step = Callable[[], Any]
ALONE_S = 0.1
"""Seconds for the samples of a candidate that is timed by itself."""


def own_candidate(model: str, level: str, settings: BenchSettings) -> Candidate:
    """Returns our layer at a level, built for the architectures of the settings; no device is needed."""
    plan = Plan.from_json(settings.plan) if settings.plan else None
    config = Config(
        level=level, implementation="cuda", cuda_arch=settings.architectures, rates=settings.rates, plan=plan
    )
    return ours.configured(model, level, config)


class DeviceCase:
    """Runs the candidates of one model on one problem, whose tensors are on the device and have the wanted type.

    Args:
        deadline: A value of time.monotonic(); candidates whose turn comes later are skipped.
    """

    def __init__(self, model: str, problem: Problem, settings: BenchSettings, deadline: float = math.inf) -> None:
        self.model, self.problem, self.settings, self.deadline = model, problem, settings, deadline
        self.cuda = problem.x.is_cuda
        self.clock = clock_of(problem.x.device)
        shared = make_parameters(model, problem, settings.seed)
        self.shared = {name: value.to(settings.dtype).float() for name, value in shared.items()}
        self.references: dict[str, Reference | None] = {}
        self.lost = False
        """Tells whether this process can no longer use the device, so that no other candidate can run in it."""

    def measure(self, mode: str) -> list[Row]:
        """Returns the rows of all candidates in a mode ("infer" or "train"), ours first."""
        rows = {candidate: self._alone(candidate, mode) for candidate in self._candidates()}
        quick = [c for c in self._best(rows) if rows[c]["ms"] < self.settings.replay_below_ms]
        captured = [c for c in quick if c.library not in peers.LIBRARIES] if self.cuda else []
        replays = [replace(c, name=f"{c.name} replayed", replayed=True) for c in captured]
        rows |= {candidate: self._alone(candidate, mode) for candidate in replays}
        self._interleave({c: rows[c] for c in (*self._best(rows), *replays)}, mode)
        return [*rows.values()]

    def _candidates(self) -> list[Candidate]:
        settings, model = self.settings, self.model
        levels = settings.levels if settings.ours else ()
        candidates = [own_candidate(model, level, settings) for level in levels]
        for name in settings.against:
            if name == "torch":
                candidates += plain_torch.candidates(model) + plain_torch.device_candidates(model)
            elif name == "grouped":
                candidates += plain_torch.grouped_candidates(model)
            elif name == "compiled":
                candidates += map(peers.through_compiler, peers.candidates(model, ("pyg",), compiled=False))
            else:
                candidates += peers.candidates(model, (name,), compiled=False)
        return [c for c in candidates if c.library == "ours" or settings.wants(c.library, c.name)]

    def _best(self, rows: Mapping[Candidate, Row]) -> list[Candidate]:
        """Returns ours and the fastest others, without replayed ones."""
        timed = [c for c, row in rows.items() if row["ms"] is not None and not c.replayed]
        timed.sort(key=lambda c: rows[c]["ms"])
        chosen = [c for c in timed if c.library == "ours"]
        for library in PEERS:
            chosen += [c for c in timed if c.library == library][: self.settings.finalists]
        return chosen

    def _alone(self, candidate: Candidate, mode: str) -> Row:
        """Measures time, peak memory and error of one candidate while no other holds memory."""
        row, train = about(candidate), mode == "train"
        if self.lost or time.monotonic() > self.deadline:
            note = "the device was lost to this process before" if self.lost else ""
            return row | {"status": "skipped", "note": note}
        need = candidate.memory(self.problem, train) * self.problem.x.itemsize / 4
        if candidate.library in peers.LIBRARIES and need > self._memory():
            return row | {"status": "out of memory", "note": f"estimated at {need / 1e9:.0f} GB"}
        try:
            before = self._settle()
            step, built = self._step(candidate, train)
            step()
            out = step()
            row["peak_mb"] = self._peak(before)
            row |= self._validated(candidate, built, out, train)
            if row["status"] == "ok":
                row |= self._samples(step).as_json()
        except torch.OutOfMemoryError:
            row["status"] = "out of memory"
        except Exception as error:  # a candidate's failure is a result, shown in the table
            row |= {"status": "failed", "note": _text(error)}
        self.lost = row["status"] == "failed" and not self._usable()
        return row

    def _step(self, candidate: Candidate, train: bool) -> tuple[Step, Built]:
        built = candidate.build(self.problem, self.shared, unwrapped)
        step = make_step(built, self.problem, train)
        return (replayed(step) if candidate.replayed else step), built

    def _validated(self, candidate: Candidate, built: Built, out: Any, train: bool) -> Row:
        reference = self._reference(candidate.function) if candidate.function else None
        if reference is None:
            return {"note": UNCOMPARED if candidate.function else ""}
        row: Row = {"max_error": max_error(reference, built, self.problem, out, train)}
        if not row["max_error"] <= self.settings.tolerance:
            row["note"] = f"differs from the float64 reference by {row['max_error']:.1e}"
            # In short types, libraries may round long sums as they like, so a deviation is no error of theirs.
            short = self.settings.dtype.itemsize < 4 and candidate.library in peers.LIBRARIES
            row["status"] = "ok" if short else "wrong"
        return row

    def _reference(self, function: str) -> Reference | None:
        if function not in self.references:
            self.references[function] = None
            with suppress(torch.OutOfMemoryError):
                self.references[function] = compute_reference(function, self.problem, self.shared)
            self._settle()
        return self.references[function]

    def _samples(self, step: Step) -> Timing:
        timing, end = Timing(), time.monotonic() + ALONE_S
        while len(timing.samples) < 3 or (time.monotonic() < end and len(timing.samples) < self.settings.repeat):
            self.clock.take_turn(step, timing)
        return timing

    def _interleave(self, rows: Mapping[Candidate, Row], mode: str) -> None:
        """Times candidates again, in turns; if this fails or memory is too small for all, their first times stay."""
        steps: dict[Candidate, Step] = {}
        timings: dict[Candidate, Timing] = {}
        reason = ""
        try:
            self._settle()
            for candidate in rows:
                steps[candidate] = self._step(candidate, mode == "train")[0]
                steps[candidate]()
            timings = interleave(steps, self.settings.repeat, self.settings.budget_s, clock=self.clock)
        except torch.OutOfMemoryError:
            reason = ": no memory for all"
        except Exception as error:
            reason = f": {_text(error)}"
        for candidate, row in rows.items():
            if candidate in timings:
                row |= timings[candidate].as_json()
            else:
                row["note"] = f"{row['note']} timed by itself{reason}".strip()
        steps.clear()
        self.lost = self.lost or not self._usable()

    def _memory(self) -> float:
        return torch.cuda.mem_get_info()[1] if self.cuda else math.inf

    def _usable(self) -> bool:
        """Tells whether other candidates can run: torch or the device may refuse after a failed capture or kernel."""
        try:
            self._settle()
        except Exception:
            return False
        return True

    def _settle(self) -> int:
        """Frees unused memory, and returns the bytes that are still in use."""
        return settle_device(self.problem.x.device) if self.cuda else 0

    def _peak(self, before: int) -> float | None:
        """Returns the most MB that a candidate took: its parameters, encodings, results and all in between."""
        return (torch.cuda.max_memory_allocated() - before) / 1e6 if self.cuda else None


def _text(error: Exception) -> str:
    """Returns an error in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]

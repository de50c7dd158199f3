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
from benchmarks.relational.candidate import Candidate, make_step, unwrapped
from benchmarks.relational.parameters import make_parameters
from benchmarks.relational.problem import Problem
from benchmarks.relational.record import about
from benchmarks.relational.reference import UNCOMPARED, Reference, compute_reference, max_error
from benchmarks.relational.replay import replayed
from benchmarks.relational.settings import BenchSettings
from dacergnn.bench.measure import Clock, Timing
from dacergnn.bench.memory import settle_device
from dacergnn.bench.process import failure, reason
from dacergnn.bench.runner import Experiment, Ready, Turns
from dacergnn.config import Config
from dacergnn.json_lines import Row
from dacergnn.plan import Plan

PEERS = (*peers.LIBRARIES, "torch", "grouped")
"""Names of the kinds of peers, as candidates have them."""
ALONE_S = 0.1
"""Seconds for the samples of a candidate that is timed by itself."""


def own_candidate(model: str, level: str, settings: BenchSettings) -> Candidate:
    """Returns our layer at a level, built for the architectures of the settings; no device is needed."""
    plan = Plan.from_json(settings.plan) if settings.plan else None
    config = Config(
        level=level, implementation="cuda", cuda_arch=settings.architectures, rates=settings.rates, plan=plan
    )
    return ours.configured(model, level, config)


class DeviceCase(Experiment[Candidate]):
    """Runs the candidates of one model on one problem, whose tensors are on the device and have the wanted type.

    Args:
        deadline: A value of time.monotonic(); candidates whose turn comes later are skipped.
    """

    def __init__(self, model: str, problem: Problem, settings: BenchSettings, deadline: float = math.inf) -> None:
        self.model, self.problem, self.settings, self.deadline = model, problem, settings, deadline
        self.cuda = problem.x.is_cuda
        shared = make_parameters(model, problem, settings.seed)
        self.shared = {name: value.to(settings.dtype).float() for name, value in shared.items()}
        self.references: dict[str, Reference | None] = {}
        self.peaks: dict[Candidate, float | None] = {}
        """The most MB that a candidate took: its parameters, encodings, results and all in between."""
        self.lost = False
        """Tells whether this process can no longer use the device, so that no other candidate can run in it."""

    def ready(self, candidate: Candidate) -> Ready:
        """Builds a candidate.

        Raises:
            MemoryError: It is estimated to need too much memory.
        """
        need = candidate.memory(self.problem, self.mode == "train") * self.problem.x.itemsize / 4
        if candidate.library in peers.LIBRARIES and need > self._memory():
            raise MemoryError(f"estimated at {need / 1e9:.0f} GB")
        before = self._settle()
        built = candidate.build(self.problem, self.shared, unwrapped)
        step = make_step(built, self.problem, self.mode == "train")
        step = replayed(step) if candidate.replayed else step

        def check() -> float | str:
            step()
            out = step()
            if candidate not in self.peaks:  # when it takes turns, others hold memory as well
                self.peaks[candidate] = (torch.cuda.max_memory_allocated() - before) / 1e6 if self.cuda else None
            reference = self._reference(candidate.function) if candidate.function else None
            if reference is None:
                return UNCOMPARED if candidate.function else ""
            return max_error(reference, built, self.problem, out, self.mode == "train")

        # In short types, libraries may round long sums as they like, so a deviation is no error of theirs.
        free = self.settings.dtype.itemsize < 4 and candidate.library in peers.LIBRARIES
        return Ready({self.mode: step}, check, tolerance=math.inf if free else self.settings.tolerance)

    def measure(self, mode: str) -> list[Row]:
        """Returns the rows of all candidates in a mode ("infer" or "train"), ours first."""
        self.mode = mode
        self.peaks.clear()
        rows = {candidate: self._alone(candidate) for candidate in self._candidates()}
        quick = [c for c in self._best(rows) if rows[c]["ms"] < self.settings.replay_below_ms]
        captured = [c for c in quick if c.library not in peers.LIBRARIES] if self.cuda else []
        replays = [replace(c, name=f"{c.name} replayed", replayed=True) for c in captured]
        rows |= {candidate: self._alone(candidate) for candidate in replays}
        self._take_turns({c: rows[c] for c in (*self._best(rows), *replays) if rows[c]["ms"] is not None})
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

    def _alone(self, candidate: Candidate) -> Row:
        """Measures time, peak memory and error of one candidate while no other holds memory."""
        row = about(candidate)
        if self.lost or time.monotonic() > self.deadline:
            note = "the device was lost to this process before" if self.lost else ""
            return row | {"status": "skipped", "note": note}
        turns = self._turns()
        row |= turns.add(candidate) | {"peak_mb": self.peaks.get(candidate)}
        try:
            for step in turns.steps[self.mode].values():
                row |= self._samples(turns.clock, step).as_json()
        except Exception as error:  # a candidate's failure is a result, shown in the table
            row |= failure(error)
        turns.steps.clear()
        self.lost = row["status"] == "failed" and not self._usable()
        return row

    def _turns(self) -> Turns[Candidate]:
        return Turns(self, (self.mode,), self.problem.x.device.type)

    def _reference(self, function: str) -> Reference | None:
        if function not in self.references:
            self.references[function] = None
            with suppress(torch.OutOfMemoryError):
                self.references[function] = compute_reference(function, self.problem, self.shared)
            self._settle()
        return self.references[function]

    def _samples(self, clock: Clock, step: Callable[[], Any]) -> Timing:
        timing, end = Timing(), time.monotonic() + ALONE_S
        while len(timing.samples) < 3 or (time.monotonic() < end and len(timing.samples) < self.settings.repeat):
            clock.take_turn(step, timing)
        return timing

    def _take_turns(self, rows: Mapping[Candidate, Row]) -> None:
        """Times candidates again, in turns; where this fails or memory is too small for all, first times stay."""
        turns, why = self._turns(), ""
        for candidate in rows:
            turns.add(candidate)
        try:
            turns.time(self.settings.repeat, self.settings.budget_s)
        except Exception as error:
            why = reason(error)
        for candidate, row in rows.items():
            if candidate in turns.steps[self.mode] and not why:
                row |= turns.timings[self.mode][candidate].as_json()
            else:
                told = why or turns.rows[candidate]["note"]
                row["note"] = f"{row['note']} timed by itself: {told}".strip()
        turns.steps.clear()
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

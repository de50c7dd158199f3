"""Runs one case, a model on a graph in one mode: validates and times all candidates, and measures their memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from benchmarks.relational import ours, peers
from benchmarks.relational.candidate import Candidate, make_layer_step, make_step, unwrapped
from benchmarks.relational.entry import Entry, fastest
from benchmarks.relational.parameters import make_parameters
from benchmarks.relational.problem import Problem
from benchmarks.relational.reference import UNCOMPARED, Reference, compute_reference, max_error, reference_memory
from benchmarks.relational.settings import BenchSettings
from benchmarks.relational.trial import Request, cached_trial, run_trial
from dacergnn.bench.measure import HOPELESS, Timing, clock_of, interleave

TOLERANCE = 1e-3
"""A float32 result with a larger relative error is wrong, or is that of another function."""

Progress = Callable[[str], None]


class Case:
    """Runs the candidates of one model on one problem; references are computed once for both modes."""

    def __init__(self, model: str, problem: Problem, settings: BenchSettings, progress: Progress) -> None:
        self.model, self.problem, self.settings, self.progress = model, problem, settings, progress
        self.shared = make_parameters(model, problem, settings.seed)
        self.references: dict[str, Reference] = {}
        self.clock = clock_of(problem.x.device)
        self.limit = torch.cuda.mem_get_info()[1] if problem.x.is_cuda else settings.memory_limit
        """Bytes that a candidate may need."""

    def measure(self, mode: str) -> list[Entry]:
        """Returns the entries of all candidates in a mode ("infer" or "train"), ours first."""
        settings = self.settings
        levels = settings.levels if settings.ours else ()
        candidates = [ours.candidate(self.model, level, settings.plan) for level in levels]
        candidates += [c for c in peers.candidates(self.model, settings.against, compiled=False) if self._is_wanted(c)]
        steps: dict[str, Callable[[], Any]] = {}
        entries = [self._prepare(candidate, mode, steps) for candidate in candidates]
        if settings.compiled:
            entries += self._compile(entries, mode, steps)
        self.progress(f"timing {len(steps)} candidates, {settings.budget_s:g} s at most")
        timings = interleave(steps, settings.repeat, settings.budget_s, clock=self.clock)
        for entry in entries:
            entry.timing = timings.get(entry.label, entry.timing)
            entry.layer = timings.get(_alone(entry), entry.layer)
        steps.clear()
        if settings.memory:
            self._weigh(entries, mode)
        return entries

    def _is_wanted(self, peer: Candidate) -> bool:
        names = self.settings.layers
        return not names or peer.library == "torch" or any(name in peer.name for name in names)

    def _prepare(self, candidate: Candidate, mode: str, steps: dict[str, Callable[[], Any]]) -> Entry:
        """Builds and validates a candidate; adds its step to `steps`, to be interleaved, unless a peer is too slow."""
        entry, settings, train = Entry(candidate), self.settings, mode == "train"
        self.progress(f"building and validating {entry.label}")
        need = candidate.memory(self.problem, train)
        if need > self.limit:
            entry.status, entry.note = "out of memory", f"estimated at {need / 1e9:.1f} GB"
            return entry
        try:
            built = candidate.build(self.problem, self.shared, unwrapped)
            step = make_step(built, self.problem, train)
            out = step()
            if reference_memory(candidate.function, self.problem) > self.limit:
                entry.note = UNCOMPARED
            elif candidate.function:
                entry.error = max_error(self._reference(candidate.function), built, self.problem, out, train)
        except Exception as error:  # a candidate's failure is a result, shown in the table
            entry.status, entry.note = "failed", " ".join(f"{type(error).__name__}: {error}".split())[:300]
            return entry
        seconds = self.clock.time(step)  # the first call may have compiled something
        if entry.error is not None and (math.isnan(entry.error) or entry.error > TOLERANCE):
            entry.status = "wrong"
            entry.note = f"differs from the float64 reference by {entry.error:.1e}"
        elif seconds > min(settings.call_limit_s, settings.budget_s) and candidate.library != "ours":
            entry.timing, entry.note = Timing([seconds]), "too slow to repeat"
        else:
            steps[entry.label] = step
            if train and candidate.library == "ours":
                steps[_alone(entry)] = make_layer_step(built, out)
            entry.timing = Timing([seconds])
        return entry

    def _reference(self, function: str) -> Reference:
        if function not in self.references:
            self.references[function] = compute_reference(function, self.problem, self.shared)
        return self.references[function]

    def _compile(self, entries: list[Entry], mode: str, steps: dict[str, Callable[[], Any]]) -> list[Entry]:
        """Tries promising library layers with torch.compile in their own processes; interleaves the fast ones."""
        libraries = [e for e in entries if e.candidate.library in peers.LIBRARIES]
        best = fastest(libraries)
        results: list[Entry] = []
        for eager in libraries:
            if best is None or eager.ms is None or eager.ms > HOPELESS * best.timing.ms:
                continue
            candidate = peers.through_compiler(eager.candidate)
            self.progress(f"trying {eager.label} with torch.compile")
            answer = cached_trial(self._request(candidate, mode, "time"), self.settings.trial_limit_s)
            if "error" in answer:
                results.append(Entry(candidate, status="failed", note=answer["error"]))
                continue
            # Scaled, because a cached answer may be from a day when the machine was busier.
            expected = eager.timing.ms * answer["ms"] / answer["eager_ms"]
            if expected > best.timing.ms * 1.3:
                results.append(Entry(candidate, Timing([expected / 1e3]), note="measured apart"))
            else:
                results.append(self._prepare(candidate, mode, steps))
        return results

    def _weigh(self, entries: list[Entry], mode: str) -> None:
        """Measures the peak memory of ours and of the library layers that finish."""
        for entry in entries:
            if entry.candidate.library == "torch" or entry.candidate.compiled or entry.ms is None:
                continue
            self.progress(f"measuring the memory of {entry.label}")
            answer = run_trial(self._request(entry.candidate, mode, "memory"), self.settings.trial_limit_s)
            entry.peak_mb = answer.get("peak_mb")
            if "error" in answer:
                entry.note = f"memory: {answer['error']}"

    def _request(self, candidate: Candidate, mode: str, what: str) -> Request:
        settings = self.settings
        request = Request(
            self.model, candidate.library, candidate.name, self.problem.name, mode, what,
            hidden=settings.hidden, seed=settings.seed, threads=settings.threads, device=settings.device,
        )  # fmt: skip
        return replace(request, level=candidate.name, plan=settings.plan) if candidate.library == "ours" else request


def _alone(entry: Entry) -> str:
    return f"{entry.label}, without its loss"

"""Runs one case, a model on a graph in one mode: validates and times all candidates, and measures their memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from benchmarks.relational import ours, peers
from benchmarks.relational.candidate import Candidate, make_layer_step, make_step, unwrapped
from benchmarks.relational.entry import Entry, fastest
from benchmarks.relational.parameters import make_parameters
from benchmarks.relational.problem import Problem
from benchmarks.relational.reference import UNCOMPARED, Reference, compute_reference, max_error, reference_memory
from benchmarks.relational.settings import BenchSettings
from benchmarks.relational.trial import Trial, cached_times
from dacergnn.bench.measure import HOPELESS, Timing
from dacergnn.bench.runner import Experiment, Limits, Ready, Step, Turns, weigh

TRIAL_BYTES = 12 << 30
"""Bytes that the process of one candidate may take."""
Progress = Callable[[str], None]


class Case(Experiment[Candidate]):
    """Runs the candidates of one model on one problem in one mode."""

    def __init__(self, model: str, mode: str, problem: Problem, settings: BenchSettings, progress: Progress) -> None:
        self.model, self.mode, self.problem, self.settings, self.progress = model, mode, problem, settings, progress
        self.shared = make_parameters(model, problem, settings.seed)
        self.references: dict[str, Reference] = {}
        self.alone: dict[Candidate, Step] = {}
        """Training steps of ours without their loss, which take turns, too."""
        self.trial = Trial(model, problem.name, mode, settings.hidden, settings.seed, settings.plan, settings.device)
        self.limits = Limits(
            (mode,), settings.threads, settings.repeat, settings.budget_s,
            settings.trial_limit_s, TRIAL_BYTES, settings.device,
        )  # fmt: skip
        self.limit = torch.cuda.mem_get_info()[1] if problem.x.is_cuda else settings.memory_limit
        """Bytes that a candidate may need."""

    def measure(self) -> list[Entry]:
        """Returns the entries of all candidates, ours first."""
        settings = self.settings
        levels = settings.levels if settings.ours else ()
        candidates = [ours.candidate(self.model, level, settings.plan) for level in levels]
        candidates += [c for c in peers.candidates(self.model, settings.against, compiled=False) if self._is_wanted(c)]
        turns = Turns(self, self.limits.modes, str(self.problem.x.device))
        entries = [self._prepare(candidate, turns) for candidate in candidates]
        if settings.compiled:
            entries += self._compile(entries, turns)
        self.progress(f"timing {len(turns.steps[self.mode])} candidates, {settings.budget_s:g} s at most")
        turns.time(settings.repeat, settings.budget_s)
        for entry in entries:
            entry.timing = turns.timings[self.mode].get(entry.candidate, entry.timing)
            entry.layer = turns.timings[self.mode].get(_alone(entry.candidate), entry.layer)
        turns.steps.clear()
        self.alone.clear()
        if settings.memory:
            self._weigh(entries)
        return entries

    def _is_wanted(self, peer: Candidate) -> bool:
        names = self.settings.layers
        return not names or peer.library == "torch" or any(name in peer.name for name in names)

    def ready(self, candidate: Candidate) -> Ready:
        """Builds a candidate."""
        train, function = self.mode == "train", candidate.function
        built = candidate.build(self.problem, self.shared, unwrapped)
        step = make_step(built, self.problem, train)

        def check() -> float | str:
            out = step()
            if reference_memory(function, self.problem) > self.limit:
                return UNCOMPARED
            return max_error(self._reference(function), built, self.problem, out, train) if function else ""

        if train and candidate.library == "ours":
            self.alone[candidate] = make_layer_step(built, built.forward())
        return Ready({self.mode: step}, check)

    def _prepare(self, candidate: Candidate, turns: Turns[Candidate]) -> Entry:
        """Validates a candidate, which takes turns unless it is a peer that is too slow."""
        entry, settings = Entry(candidate), self.settings
        self.progress(f"building and validating {entry.label}")
        need = candidate.memory(self.problem, self.mode == "train")
        if need > self.limit:
            entry.status, entry.note = "out of memory", f"estimated at {need / 1e9:.1f} GB"
            return entry
        row = turns.add(candidate)
        entry.status, entry.note, entry.error = row["status"], row["note"], row.get("max_error")
        entry.timing = turns.timings[self.mode].get(candidate, entry.timing)
        slow = entry.ms is not None and entry.ms > 1e3 * min(settings.call_limit_s, settings.budget_s)
        if slow and candidate.library != "ours":
            turns.steps[self.mode].pop(candidate)
            entry.note = "too slow to repeat"
        if candidate in self.alone and candidate in turns.steps[self.mode]:
            self.alone[candidate]()
            turns.steps[self.mode][_alone(candidate)] = self.alone[candidate]
        return entry

    def _reference(self, function: str) -> Reference:
        if function not in self.references:
            self.references[function] = compute_reference(function, self.problem, self.shared)
        return self.references[function]

    def _compile(self, entries: list[Entry], turns: Turns[Candidate]) -> list[Entry]:
        """Tries promising library layers with torch.compile in their own processes; interleaves the fast ones."""
        libraries = [e for e in entries if e.candidate.library in peers.LIBRARIES]
        best = fastest(libraries)
        results: list[Entry] = []
        for eager in libraries:
            if best is None or eager.ms is None or eager.ms > HOPELESS * best.timing.ms:
                continue
            candidate = peers.through_compiler(eager.candidate)
            self.progress(f"trying {eager.label} with torch.compile")
            answer = cached_times(self.trial, candidate.named, self.limits)
            if "error" in answer:
                results.append(Entry(candidate, status="failed", note=answer["error"]))
                continue
            # Scaled, because a cached answer may be from a day when the machine was busier.
            expected = eager.timing.ms * answer["ms"] / answer["eager_ms"]
            if expected > best.timing.ms * 1.3:
                results.append(Entry(candidate, Timing([expected / 1e3]), note="measured apart"))
            else:
                results.append(self._prepare(candidate, turns))
        return results

    def _weigh(self, entries: list[Entry]) -> None:
        """Measures the peak memory of ours and of the library layers that finish."""
        for entry in entries:
            if entry.candidate.library == "torch" or entry.candidate.compiled or entry.ms is None:
                continue
            self.progress(f"measuring the memory of {entry.label}")
            found = weigh(self.trial, entry.candidate.named, self.limits, self.mode)
            entry.peak_mb, entry.note = found["peak_mb"], found.get("note", entry.note)


def _alone(candidate: Candidate) -> Candidate:
    return replace(candidate, name=f"{candidate.name}, without its loss")

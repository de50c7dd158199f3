"""Runs one case, a model on a graph in one mode: validates and times all candidates, and measures their memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from benchmarks.relational import ours, peers
from benchmarks.relational.candidate import Candidate, make_layer_step, make_step, unwrapped
from benchmarks.relational.parameters import make_parameters
from benchmarks.relational.problem import Problem
from benchmarks.relational.record import about, fastest, label_of
from benchmarks.relational.reference import UNCOMPARED, Reference, compute_reference, max_error, reference_memory
from benchmarks.relational.settings import BenchSettings
from benchmarks.relational.trial import Trial, cached_times
from dacergnn.bench.measure import HOPELESS, Timing
from dacergnn.bench.runner import Experiment, Limits, Ready, Step, Turns, weigh
from dacergnn.json_lines import Row

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
        self.trial = Trial(model, problem.name, mode, settings.hidden, settings.seed, settings.plan)
        self.limits = Limits(
            (mode,), settings.threads, settings.repeat, settings.budget_s,
            settings.trial_limit_s, TRIAL_BYTES,
        )  # fmt: skip

    def measure(self) -> list[Row]:
        """Returns the rows of all candidates, ours first."""
        settings = self.settings
        levels = settings.levels if settings.ours else ()
        candidates = [ours.candidate(self.model, level, settings.plan) for level in levels]
        others = peers.candidates(self.model, settings.against, compiled=False)
        candidates += [c for c in others if settings.wants(c.library, c.name)]
        turns = Turns(self, self.limits.modes, self.limits.device)
        rows = {candidate: self._prepare(candidate, turns) for candidate in candidates}
        if settings.compiled:
            rows |= self._compile(rows, turns)
        self.progress(f"timing {len(turns.steps[self.mode])} candidates, {settings.budget_s:g} s at most")
        turns.time(settings.repeat, settings.budget_s)
        timings = turns.timings[self.mode]
        for candidate, row in rows.items():
            if candidate in timings:
                row |= timings[candidate].as_json()
            if _alone(candidate) in timings:
                row |= timings[_alone(candidate)].as_json("layer_")
        turns.steps.clear()
        self.alone.clear()
        if settings.memory:
            self._weigh(rows)
        return [*rows.values()]

    def ready(self, candidate: Candidate) -> Ready:
        """Builds a candidate."""
        train, function = self.mode == "train", candidate.function
        built = candidate.build(self.problem, self.shared, unwrapped)
        step = make_step(built, self.problem, train)

        def check() -> float | str:
            out = step()
            if reference_memory(function, self.problem) > self.settings.memory_limit:
                return UNCOMPARED
            return max_error(self._reference(function), built, self.problem, out, train) if function else ""

        if train and candidate.library == "ours":
            self.alone[candidate] = make_layer_step(built, built.forward())
        return Ready({self.mode: step}, check)

    def _prepare(self, candidate: Candidate, turns: Turns[Candidate]) -> Row:
        """Validates a candidate, which takes turns unless it is a peer that is too slow."""
        row, settings = about(candidate), self.settings
        self.progress(f"building and validating {label_of(row)}")
        need = candidate.memory(self.problem, self.mode == "train")
        if need > self.settings.memory_limit:
            return row | {"status": "out of memory", "note": f"estimated at {need / 1e9:.1f} GB"}
        row |= turns.add(candidate)
        if candidate not in turns.steps[self.mode]:
            return row
        row |= turns.timings[self.mode][candidate].as_json()
        if row["ms"] > 1e3 * min(settings.call_limit_s, settings.budget_s) and candidate.library != "ours":
            turns.steps[self.mode].pop(candidate)
            row["note"] = "too slow to repeat"
        elif candidate in self.alone:
            self.alone[candidate]()
            turns.steps[self.mode][_alone(candidate)] = self.alone[candidate]
        return row

    def _reference(self, function: str) -> Reference:
        if function not in self.references:
            self.references[function] = compute_reference(function, self.problem, self.shared)
        return self.references[function]

    def _compile(self, rows: Mapping[Candidate, Row], turns: Turns[Candidate]) -> dict[Candidate, Row]:
        """Tries promising library layers with torch.compile in their own processes; interleaves the fast ones."""
        libraries = {candidate: row for candidate, row in rows.items() if candidate.library in peers.LIBRARIES}
        best = fastest(libraries.values())
        results: dict[Candidate, Row] = {}
        for eager, row in libraries.items():
            if best is None or row["ms"] is None or row["ms"] > HOPELESS * best["ms"]:
                continue
            candidate = peers.through_compiler(eager)
            self.progress(f"trying {label_of(row)} with torch.compile")
            answer = cached_times(self.trial, candidate.named, self.limits)
            if "error" in answer:
                results[candidate] = about(candidate) | {"status": "failed", "note": answer["error"]}
                continue
            # Scaled, because a cached answer may be from a day when the machine was busier.
            expected = row["ms"] * answer["ms"] / answer["eager_ms"]
            if expected > best["ms"] * 1.3:
                results[candidate] = about(candidate) | Timing([expected / 1e3]).as_json() | {"note": "measured apart"}
            else:
                results[candidate] = self._prepare(candidate, turns)
        return results

    def _weigh(self, rows: Mapping[Candidate, Row]) -> None:
        """Measures the peak memory of ours and of the library layers that finish."""
        for candidate, row in rows.items():
            if candidate.library == "torch" or candidate.compiled or row["ms"] is None:
                continue
            self.progress(f"measuring the memory of {label_of(row)}")
            row |= weigh(self.trial, candidate.named, self.limits, self.mode)


def _alone(candidate: Candidate) -> Candidate:
    return replace(candidate, name=f"{candidate.name}, without its loss")

"""Runs candidates in processes of their own, where they are known by name: their peak memory, or times if compiled.

Answers about compiled layers are kept in the build cache, since some take minutes to fail.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from benchmarks.relational import ours, peers
from benchmarks.relational.candidate import Candidate, make_step, unwrapped
from benchmarks.relational.parameters import make_parameters
from benchmarks.relational.problem import Problem, load_problem, make_problem
from dacergnn.bench.measure import interleave, time_call
from dacergnn.bench.process import ask
from dacergnn.bench.runner import Experiment, Limits, Ready, Step
from dacergnn.native.cache import lookup_plan, store_plan

_NAME = "benchmark_trial"
Named = tuple[str, str]
"""The library and the name of a candidate."""


@dataclass(frozen=True)
class Trial(Experiment[Named]):
    """Describes a model on a graph in one mode."""

    model: str
    data: str
    mode: str
    hidden: int = 64
    seed: int = 0
    plan: str = ""

    def find(self, candidate: Named) -> Candidate:
        """Returns the candidate of a name."""
        library, name = candidate
        if library == "ours":
            return ours.candidate(self.model, name, self.plan)
        return next(c for c in peers.candidates(self.model, (library,)) if c.name == name)

    @cached_property
    def problem(self) -> Problem:
        """Returns the graph with its features."""
        return load_problem(self.data, self.hidden, self.seed)

    def step(self, candidate: Named) -> Step:
        """Returns the call that is measured."""
        shared = make_parameters(self.model, self.problem, self.seed)
        built = self.find(candidate).build(self.problem, shared, unwrapped)
        return make_step(built, self.problem, self.mode == "train")

    def ready(self, candidate: Named) -> Ready:
        """Makes a candidate ready to be weighed; another process has validated it."""
        return Ready({self.mode: self.step(candidate)}, lambda: "")

    def like(self) -> Trial:
        """Returns a trial on the tiny problem."""
        other = replace(self)
        vars(other)["problem"] = tiny_problem(self.hidden)
        return other


def tiny_problem(hidden: int) -> Problem:
    """Returns a problem of two node types, three relations and ten edges; it loads all code without the real graph."""
    src = torch.tensor([0, 1, 2, 3, 0, 4, 5, 4, 5, 5])
    dst = torch.tensor([4, 5, 4, 5, 5, 0, 1, 2, 3, 3])
    etype = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 2, 2])
    return make_problem("tiny", src, dst, etype, [4, 2], 3, hidden)


def compiled_times(trial: Trial, candidate: Named) -> dict[str, Any]:
    """Returns the times of a compiled layer, and of the same layer not compiled."""
    library, name = candidate
    step = trial.step(candidate)
    first = time_call(step)
    eager = trial.step((library, name.removesuffix(peers.COMPILED)))
    eager()
    timings = interleave({"layer": step, "eager": eager}, repeat=10, budget_s=5.0)
    return {"first_s": first, "ms": timings["layer"].ms, "eager_ms": timings["eager"].ms}


def cached_times(trial: Trial, candidate: Named, limits: Limits) -> dict[str, Any]:
    """Returns what `compiled_times` answers in a process of its own, or {"error": ...} with the reason.

    Answers are remembered across runs for the same trial, limits and package versions.
    """
    facts = json.dumps([asdict(trial), candidate, asdict(limits), _versions()], sort_keys=True)
    key = hashlib.sha256(facts.encode()).hexdigest()[:24]
    known = lookup_plan(key, _NAME, dict)
    if known is not None:
        return known
    answer = ask(
        f"{__name__}.{compiled_times.__name__}", trial, candidate, limit_s=limits.trial_limit_s, threads=limits.threads,
        limit_bytes=limits.limit_bytes,
    )  # fmt: skip
    store_plan(key, _NAME, answer)
    return answer


def _versions() -> list[str]:
    versions: list[str] = []
    for name in ("torch", "torch_geometric", "dgl"):
        try:
            versions.append(version(name))
        except PackageNotFoundError:
            versions.append("")
    return versions

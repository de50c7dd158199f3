"""Compares ways to compute a layer of relations on a graph: the libraries', plain PyTorch, and ours."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import Any

import torch

from benchmarks.caching.facts import program_of
from benchmarks.named import Named
from benchmarks.relational import ours, peers
from benchmarks.relational.candidate import Candidate, make_layer_step, make_step, unwrapped
from benchmarks.relational.parameters import Parameters, make_parameters
from benchmarks.relational.problem import Problem, kept_problem, load_problem, tiny_problem
from benchmarks.relational.reference import UNCOMPARED, Reference, compute_reference, max_error, reference_memory
from benchmarks.relational.replay import replayed
from benchmarks.relational.settings import BenchSettings
from dacergnn.bench.memory import settle_device
from dacergnn.bench.rates import PRECISIONS, precision
from dacergnn.bench.runner import TOLERANCE, Experiment, Ready
from dacergnn.config import Rates
from dacergnn.json_lines import Row

LAYER = "layer"
"""Names the training step of ours without its loss, which is timed apart."""
TOLERANCES = {"float64": 1e-9, "float32": TOLERANCE, "tf32": 2e-2}
"""The largest deviation from the reference that is not wrong, by precision; `OF_SHORT` for the others."""
OF_SHORT = 0.1


@dataclass(frozen=True)
class Layers(Experiment[Named]):
    """Compares steps of a model's layer on a graph, forward alone ("infer") or with loss and backward ("train").

    Args:
        rates: Rates that our layers are compiled by; None for typical ones.
        memory_limit: A candidate that is estimated to need more bytes is not run; on a device, its memory counts.
        precision: One of `PRECISIONS`.
        tiny: Whether a tiny graph stands in for ``data``: it loads all code without the real one.
    """

    model: str
    data: str
    mode: str
    hidden: int = 64
    seed: int = 0
    device: str = "cpu"
    rates: Rates | None = None
    memory_limit: int = BenchSettings.memory_limit
    precision: str = "float32"
    tiny: bool = False

    def __str__(self) -> str:
        return f"{self.model} on {self.data}, {self.mode}"

    def weighs(self) -> str:
        """Returns the mode of the steps."""
        return self.mode

    def like(self) -> Layers:
        """Returns an experiment on the tiny graph."""
        return replace(self, tiny=True)

    def during(self) -> AbstractContextManager[None]:
        """Returns the context in which products are as precise as they are to be."""
        return precision(self.precision)

    @property
    def dtype(self) -> torch.dtype:
        """Returns the type of features and parameters."""
        return PRECISIONS[self.precision]

    @property
    def problem(self) -> Problem:
        """Returns the graph with its features."""
        if self.tiny:
            return tiny_problem(self.hidden).to("cpu", self.dtype)
        return kept(self.data, self.hidden, self.seed, self.device, self.dtype)

    @cached_property
    def shared(self) -> Parameters:
        """Returns the parameters that all candidates have."""
        made = make_parameters(self.model, self.problem, self.seed)
        return {name: value.to(self.dtype).float() for name, value in made.items()}

    def find(self, named: Named) -> Candidate:
        """Returns the candidate of a name."""
        base = named.base
        if base.library == "ours":
            assert base.config is not None
            return ours.candidate(self.model, base.name, replace(base.config, rates=self.rates))
        found = peers.candidates(self.model, (base.library,), self.device)
        eager = next(c for c in found if c.name == base.name)
        return peers.through_compiler(eager) if named.compiled else eager

    def ready(self, candidate: Named) -> Ready:
        """Builds a candidate.

        Raises:
            MemoryError: It is estimated to need too much memory.
        """
        found, problem, train = self.find(candidate), self.problem, self.mode == "train"
        need = found.memory(problem, train) * problem.x.itemsize / 4
        if need > self._room:
            raise MemoryError(f"estimated at {need / 1e9:.1f} GB")
        before = settle_device(problem.x.device)
        built = found.build(problem, self.shared, unwrapped)
        step = make_step(built, problem, train)
        step = replayed(step) if candidate.replayed else step
        facts: Row = {}

        @cache
        def alone() -> Callable[[], Any]:
            return make_layer_step(built, built.forward())

        def check() -> float | str:
            out = step()
            if self.device == "cuda":
                out = step()
                facts["peak_mb"] = (torch.cuda.max_memory_allocated() - before) / 1e6
            reference = self._reference(found.function) if found.function else None
            if reference is None:
                return UNCOMPARED if found.function else ""
            return max_error(reference, built, problem, out, train)

        own = candidate.library == "ours" and not candidate.replayed
        steps = {self.mode: step} | ({LAYER: lambda: alone()()} if own and train else {})
        # In short types, libraries may round long sums as they like, so a deviation is no error of theirs.
        free = self.dtype.itemsize < 4 and candidate.library in peers.LIBRARIES
        tolerance = math.inf if free else TOLERANCES.get(self.precision, OF_SHORT)
        return Ready(steps, check, lambda: facts | ({"program": program_of(built)} if own else {}), tolerance)

    @property
    def _room(self) -> int:
        """Returns the bytes that a candidate may need."""
        return torch.cuda.mem_get_info()[1] if self.device == "cuda" else self.memory_limit

    def _reference(self, function: str) -> Reference | None:
        """Returns the reference of a function; None if it takes too much memory."""
        if function not in self._references:
            self._references[function] = None
            if reference_memory(function, self.problem) <= self._room:
                with suppress(torch.OutOfMemoryError):
                    self._references[function] = compute_reference(function, self.problem, self.shared)
        return self._references[function]

    @cached_property
    def _references(self) -> dict[str, Reference | None]:
        return {}


@lru_cache(maxsize=4)
def kept(data: str, hidden: int, seed: int, device: str, dtype: torch.dtype) -> Problem:
    """Returns a graph with its features, which the experiments of a process share."""
    return loaded(data, hidden, seed, device).to(device, dtype)


def loaded(data: str, hidden: int, seed: int, device: str) -> Problem:
    """Returns a graph with its features on the processor; for devices, whose time is short, synthetic ones are kept."""
    return (kept_problem if device == "cuda" and "~" in data else load_problem)(data, hidden, seed)


def wanted(model: str, settings: BenchSettings) -> list[Candidate]:
    """Returns the candidates of a model that settings ask for, ours first, without variants."""
    levels = settings.levels if settings.ours else ()
    own = [ours.candidate(model, level, settings.config(level)) for level in levels]
    others = peers.candidates(model, settings.against, settings.device)
    return [*own, *(peer for peer in others if settings.wants(peer.library, peer.name))]

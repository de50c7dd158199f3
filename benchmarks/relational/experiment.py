"""Compares ways to compute a layer of relations on a graph: the libraries', plain PyTorch, and ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import Any

from benchmarks.caching.facts import program_of
from benchmarks.named import Named
from benchmarks.relational import ours, peers
from benchmarks.relational.candidate import Candidate, make_layer_step, make_step, unwrapped
from benchmarks.relational.parameters import Parameters, make_parameters
from benchmarks.relational.problem import Problem, load_problem, tiny_problem
from benchmarks.relational.reference import UNCOMPARED, Reference, compute_reference, max_error, reference_memory
from benchmarks.relational.settings import BenchSettings
from dacergnn.bench.runner import Experiment, Ready
from dacergnn.config import Rates

LAYER = "layer"
"""Names the training step of ours without its loss, which is timed apart."""


@dataclass(frozen=True)
class Layers(Experiment[Named]):
    """Compares steps of a model's layer on a graph, forward alone ("infer") or with loss and backward ("train").

    Args:
        rates: Rates that our layers are compiled by; None for typical ones.
        memory_limit: A candidate that is estimated to need more bytes is not run.
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
    tiny: bool = False

    def __str__(self) -> str:
        return f"{self.model} on {self.data}, {self.mode}"

    def weighs(self) -> str:
        """Returns the mode of the steps."""
        return self.mode

    def like(self) -> Layers:
        """Returns an experiment on the tiny graph."""
        return replace(self, tiny=True)

    @property
    def problem(self) -> Problem:
        """Returns the graph with its features."""
        return tiny_problem(self.hidden) if self.tiny else kept(self.data, self.hidden, self.seed, self.device)

    @cached_property
    def shared(self) -> Parameters:
        """Returns the parameters that all candidates have."""
        return make_parameters(self.model, self.problem, self.seed)

    def find(self, named: Named) -> Candidate:
        """Returns the candidate of a name."""
        if named.library == "ours":
            assert named.config is not None
            return ours.configured(self.model, named.name, replace(named.config, rates=self.rates))
        return next(c for c in peers.candidates(self.model, (named.library,)) if c.name == named.name)

    def ready(self, candidate: Named) -> Ready:
        """Builds a candidate.

        Raises:
            MemoryError: It is estimated to need too much memory.
        """
        found, problem, train = self.find(candidate), self.problem, self.mode == "train"
        need = found.memory(problem, train)
        if need > self.memory_limit:
            raise MemoryError(f"estimated at {need / 1e9:.1f} GB")
        built = found.build(problem, self.shared, unwrapped)
        step = make_step(built, problem, train)

        @cache
        def alone() -> Callable[[], Any]:
            return make_layer_step(built, built.forward())

        def check() -> float | str:
            out = step()
            if reference_memory(found.function, problem) > self.memory_limit:
                return UNCOMPARED
            return max_error(self._reference(found.function), built, problem, out, train) if found.function else ""

        own = candidate.library == "ours"
        steps = {self.mode: step} | ({LAYER: lambda: alone()()} if own and train else {})
        return Ready(steps, check, lambda: {"program": program_of(built)} if own else {})

    def _reference(self, function: str) -> Reference:
        if function not in self._references:
            self._references[function] = compute_reference(function, self.problem, self.shared)
        return self._references[function]

    @cached_property
    def _references(self) -> dict[str, Reference]:
        return {}


@lru_cache(maxsize=4)
def kept(data: str, hidden: int, seed: int, device: str) -> Problem:
    """Returns a graph with its features, which the experiments of a process share."""
    return load_problem(data, hidden, seed).to(device)


def wanted(model: str, settings: BenchSettings) -> list[Candidate]:
    """Returns the candidates of a model that settings ask for, ours first, without those through torch.compile."""
    own = [ours.candidate(model, level, settings.plan) for level in (settings.levels if settings.ours else ())]
    others = peers.candidates(model, settings.against, compiled=False)
    return [*own, *(peer for peer in others if settings.wants(peer.library, peer.name))]

"""Measures random plans of random layers on random graphs, as samples for performance models (Singh et al., III-A)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any

import dace
import torch

from dacergnn.config import Config
from dacergnn.errors import DacergnnError
from dacergnn.graph import HeteroGraph
from dacergnn.graph.profile import Profile
from dacergnn.plan import Plan
from dacergnn.program import Program
from dacergnn.program.parser import parse
from dacergnn.runtime.cuda_device import architectures
from dacergnn.runtime.executable import Executable
from dacergnn.runtime.pool import POOL
from dacergnn.sdfg_passes import Compilation, compile_program
from dacergnn.tuning.disturbance import Reference, Undisturbed
from dacergnn.tuning.features import describe
from dacergnn.tuning.graph_facts import GraphFacts
from dacergnn.tuning.graphs import LARGE, SMALL, random_graph
from dacergnn.tuning.measure import RandomArrays, Runnable, TimedStep, Times, build_runnables, measure
from dacergnn.tuning.predictor import Predictor
from dacergnn.tuning.programs import RandomLayer, random_layer
from dacergnn.tuning.space import needs_build, random_plans, random_variant

INDEX: Any = dace.int32
PADDING = 4
"""The most slots of an ELLPACK matrix for each edge; plans also run on graphs with hubs that they were not made for."""
DEVIATIONS = 8
"""The most answers that need a build of their own by which a plan deviates from the default."""
TRAINED = 0.5
"""Share of the layers that are measured with their gradients."""
SIZES = {"": None, "small ": SMALL, "large ": LARGE}
"""Numbers of edges by the first word of a graph's name; None for the usual ones."""
LARGE_POOL = 3
"""Large graphs with relations, and as many without; all stay in memory."""
MOST_BYTES = 6e9
"""The most bytes of the arrays of a program on a graph."""
_ELEMENTS = 1 << 26
_LARGE_BUDGET_S = 10.0
_MAY_BE_ZERO = ("variants", "small", "large")


@dataclass(frozen=True)
class CollectSettings:
    """Describes what is measured.

    Args:
        draw: Returns the layer of a seed.
        graphs: Random graphs for each layer.
        pool: Graphs with relations to draw them from, and as many without.
        builds: Plans of a layer that lead to different code; the first is the plan that costs least on the first of
            its graphs.
        variants: Further plans for each of these that need no build of their own.
        small: Share of graphs with fewer edges than most, as small as batches.
        large: Share of graphs of millions of edges; for these, all runs of a layer take about ten seconds, and so may
            be fewer than those of others.
        repeat: Runs of each sample.
        limit: Seconds that a run may take; layers on graphs that take longer are left out, but large graphs are not.
        threads: Threads of all programs.
        device: Type of torch's device that runs them: "cpu" or "cuda".
    """

    draw: Callable[[int], RandomLayer] = random_layer
    graphs: int = 6
    pool: int = 80
    builds: int = 3
    variants: int = 1
    small: float = 0.0
    large: float = 0.0
    repeat: int = 10
    limit: float = 0.06
    threads: int = 2
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name not in ("draw", "device") and not (value > 0 or (name in _MAY_BE_ZERO and value == 0)):
                raise DacergnnError(f"{name}={value}: pass a positive number.")
        if self.small + self.large > 1:
            raise DacergnnError(f"small={self.small} and large={self.large} are shares of the graphs; pass at most 1 "
                                "together.")  # fmt: skip
        if self.graphs > self.pool:
            raise DacergnnError(f"graphs={self.graphs}: there are only {self.pool} in the pool; make it larger.")


@dataclass(frozen=True)
class Sampled:
    """Holds what was measured of a layer on a graph.

    Attributes:
        plans: The programs of the layer.
        times: The times of the parts of plans, by the number of the plan; none if they took too long.
        slowdown: How slow other work made the machine meanwhile.
    """

    seed: int
    layer: RandomLayer
    plans: Sequence[Compilation]
    graph: str
    facts: GraphFacts
    times: Mapping[int, Sequence[Times | None]]
    slowdown: float


@dataclass
class Collector:
    """Measures layers by their seeds."""

    settings: CollectSettings
    _graphs: dict[str, HeteroGraph] = field(default_factory=dict[str, HeteroGraph])

    @cached_property
    def _arrays(self) -> RandomArrays:
        return RandomArrays(_ELEMENTS, device=self.settings.device)

    @cached_property
    def _undisturbed(self) -> Undisturbed:
        return Undisturbed(Reference(self.settings.device))

    @cached_property
    def _config(self) -> Config:
        return Config().on(self.settings.device)

    def sampled(self, seed: int) -> Iterator[Sampled]:
        """Yields what it measures of a layer on each of its graphs."""
        torch.set_num_threads(self.settings.threads)
        names = self._names(seed)
        layer, plans = self._plans(seed, names[0])
        runnables = self._built(layer, plans)
        for name in names:
            yield self._measured(
                Sampled(seed, layer, plans, name, GraphFacts.of(self._graph(name)), {}, 0.0), runnables
            )

    def build(self, seed: int) -> None:
        """Builds the programs of a layer into the cache; the machine may do other work meanwhile."""
        self._built(*self._plans(seed, self._names(seed)[0]))

    def disagreement(self, seed: int, model: Predictor) -> float:
        """Returns how far the networks of a model disagree on the plans of a layer.

        That is the standard deviation over networks of the logarithm of a plan's time, less its mean over the plans of
        the layer: what ranks plans. It is the mean over the plans.
        """
        name = self._names(seed)[0]
        facts = GraphFacts.of(self._graph(name))
        _, plans = self._plans(seed, name)
        logs = model.logarithms([describe(*plan.parts).on(facts, threads=self.settings.threads) for plan in plans])
        return float((logs - logs.mean(axis=1, keepdims=True)).std(axis=0).mean())

    def _names(self, seed: int) -> list[str]:
        """Returns the names of a layer's graphs; graphs without relations are for layers without weights by type."""
        rng, settings = random.Random(f"graphs of {seed}"), self.settings
        kind = "typed" if "type" in self._layer(seed).text or rng.random() < 0.3 else "plain"
        numbers = rng.sample(range(settings.pool), settings.graphs)
        names: list[str] = []
        for number in numbers:
            share = rng.random()
            large = share >= 1 - settings.large
            size = "large " if large else "small " if share < settings.small else ""
            names.append(f"{size}{kind}/{number % LARGE_POOL if large else number}")
        return [*dict.fromkeys(names)]

    def _layer(self, seed: int) -> RandomLayer:
        return self.settings.draw(seed)

    def _graph(self, name: str) -> HeteroGraph:
        if name not in self._graphs:
            kind, _, number = name.partition("/")
            size = kind.removesuffix("typed").removesuffix("plain")
            graph = random_graph(int(number), kind.endswith("plain"), SIZES[size])
            self._graphs[name] = graph.to(self.settings.device)
        return self._graphs[name]

    def _plans(self, seed: int, first: str) -> tuple[RandomLayer, list[Compilation]]:
        """Returns the layer of a seed, compiled by several plans for the graph ``first``."""
        rng, layer = random.Random(f"plans of {seed}"), self._layer(seed)
        sdfg, profile = _parsed(layer), Profile.of(self._graph(first))
        wrt = list(layer.learned) if rng.random() < TRAINED else []

        def run(plan: Plan) -> Compilation:
            return compile_program(sdfg, wrt, self._config, INDEX, profile, tuned=plan, keep=False)

        compilations: list[Compilation] = []
        for plan, compilation in random_plans(run, rng, self.settings.builds, DEVIATIONS, needs_build):
            variants = [run(random_variant(plan, compilation, rng)) for _ in range(self.settings.variants)]
            compilations += [compilation, *variants]
        return layer, compilations

    def _built(self, layer: RandomLayer, plans: Sequence[Compilation]) -> list[Runnable]:
        results = len(Program(_parsed(layer)).outputs)
        built_for = architectures(None) if self.settings.device == "cuda" else ()
        runnables = [Runnable(compilation, results, built_for) for compilation in plans]
        build_runnables(runnables)
        return runnables

    def _measured(self, found: Sampled, runnables: Sequence[Runnable]) -> Sampled:
        """Adds the times of a layer's plans on its graph."""
        graph = self._graph(found.graph)
        fitting = {n: r for n, r in enumerate(runnables) if _fits(found.plans[n], found.facts)}
        self._arrays.start_over()
        steps = {n: TimedStep(runnable, graph, self._arrays) for n, runnable in fitting.items()}
        large = found.graph.startswith("large")
        ends = (float("inf"), _LARGE_BUDGET_S) if large else (self.settings.limit, float("inf"))
        times, slowdown = self._undisturbed.measure(lambda: measure(steps, self.settings.repeat, *ends))
        _forget(graph)
        return replace(found, times=times, slowdown=slowdown)


def _parsed(layer: RandomLayer) -> dace.SDFG:
    return parse(layer.text, dtype=getattr(dace, layer.dtype))


def _fits(compilation: Compilation, facts: GraphFacts) -> bool:
    """Tells whether a program fits into memory, and its ELLPACK matrices are not much larger than the graph."""
    programs = [Program(part) for part in compilation.parts]
    if sum(_bytes(program, facts.sizes) for program in programs) > MOST_BYTES:
        return False
    if not any(getattr(o, "adjacency", "") == "ell" for p in programs for o in p.operators):
        return True
    sizes, longest = facts.sizes, facts.longest
    groups = {"src": "NS", "dst": "ND", "srcpair": "U", "dstpair": "V"}
    return all(sizes[space] * longest.get(path, 0) <= PADDING * sizes["E"] for path, space in groups.items())


def _bytes(program: Program, sizes: Mapping[str, int]) -> int:
    """Returns the bytes of the arrays of a program, without the encodings of the graph."""
    arrays = {n: desc for n, desc in program.sdfg.arrays.items() if program.space(n) in sizes}
    return sum(sizes[program.space(n)] * prod(program.shape(n)) * int(a.dtype.bytes) for n, a in arrays.items())


def _forget(graph: HeteroGraph) -> None:
    """Frees what programs have prepared for a graph."""
    for key in [*graph.derived]:
        if isinstance(key, Executable) or (isinstance(key, tuple) and isinstance(key[0], Executable)):
            del graph.derived[key]
    POOL.clear()

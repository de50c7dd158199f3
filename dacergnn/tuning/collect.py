"""Measures random plans of random layers on random graphs, as samples for performance models (Singh et al., III-A)."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
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
from dacergnn.tuning.graphs import random_graph
from dacergnn.tuning.measure import RandomArrays, Runnable, TimedStep, build_runnables, measure
from dacergnn.tuning.predictor import Predictor
from dacergnn.tuning.programs import RandomLayer, random_layer
from dacergnn.tuning.records import DataSet, Row
from dacergnn.tuning.space import needs_build, random_plans, random_variant
from dacergnn.tuning.written import written

FORMAT = 1
INDEX: Any = dace.int32
PADDING = 4
"""The most slots of an ELLPACK matrix for each edge; plans also run on graphs with hubs that they were not made for."""
DEVIATIONS = 8
"""The most answers that need a build of their own by which a plan deviates from the default."""
TRAINED = 0.5
"""Share of the layers that are measured with their gradients."""
_ELEMENTS = 1 << 26


@dataclass(frozen=True)
class CollectSettings:
    """Describes what is measured.

    Args:
        layers: Seeds of the layers.
        graphs: Graphs for each layer, out of ``pool`` with relations and as many without.
        builds: Plans of a layer that lead to different code; the first is the plan that costs least on the first of
            its graphs.
        variants: Further plans for each of these that need no build of their own.
        repeat: Runs of each sample.
        limit: Seconds that a run may take; layers on graphs that take longer are left out.
        device: Type of torch's device that runs them: "cpu" or "cuda".
    """

    layers: Sequence[int] = range(500)
    graphs: int = 6
    pool: int = 80
    builds: int = 3
    variants: int = 1
    repeat: int = 10
    limit: float = 0.06
    threads: int = 2
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name not in ("layers", "device") and not (value > 0 or (name == "variants" and value == 0)):
                raise DacergnnError(f"{name}={value}: pass a positive number.")
        if self.graphs > self.pool:
            raise DacergnnError(f"graphs={self.graphs}: there are only {self.pool} in the pool; make it larger.")


@dataclass
class Collector:
    """Collects samples into a file, and continues where an earlier run stopped.

    Args:
        about: The first row of the file, which says how and where the samples are made.
    """

    settings: CollectSettings
    path: Path
    about: Row
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

    @cached_property
    def _architectures(self) -> tuple[int, ...]:
        return architectures(None) if self.settings.device == "cuda" else ()

    def run(self, deadline: float = float("inf"), *, measures: bool = True) -> Iterator[tuple[int, int]]:
        """Measures layer after layer until ``deadline`` (`time.monotonic`); yields each seed and its number of samples.

        Args:
            measures: False only builds the programs, into the cache; the machine may do other work meanwhile.

        Raises:
            DacergnnError: The file holds samples that were made in another way.
        """
        torch.set_num_threads(self.settings.threads)
        data = DataSet(self.path, {"format": FORMAT, **self.about})
        for seed in self.settings.layers:
            if time.monotonic() > deadline:
                return
            names = self._names(seed)
            left = [name for name in names if (seed, name) not in data.done]
            count = 0
            if left:
                layer, plans = self._plans(seed, names[0])
                runnables = _built(layer, plans, self._architectures)
                if measures:
                    data.describe(_program(seed, n, layer, compilation) for n, compilation in enumerate(plans))
                    count = sum(self._measure(data, seed, name, plans, runnables) for name in left)
            yield seed, count

    def disagreements(self, model: Predictor, deadline: float) -> Iterator[tuple[int, float]]:
        """Yields seeds of layers until ``deadline``, each with how far the networks of a model disagree on its plans.

        That is the standard deviation over networks of the logarithm of a plan's time, less its mean over the plans of
        the layer: what ranks plans. It is the mean over the plans.
        """
        for seed in self.settings.layers:
            if time.monotonic() > deadline:
                return
            name = self._names(seed)[0]
            facts = GraphFacts.of(self._graph(name))
            _, plans = self._plans(seed, name)
            described = [describe(*plan.parts).on(facts, threads=self.settings.threads) for plan in plans]
            logs = model.logarithms(described)
            yield seed, float((logs - logs.mean(axis=1, keepdims=True)).std(axis=0).mean())

    def _names(self, seed: int) -> list[str]:
        """Returns the names of a layer's graphs; graphs without relations are for layers without weights by type."""
        rng = random.Random(f"graphs of {seed}")
        kind = "typed" if "type" in random_layer(seed).text or rng.random() < 0.3 else "plain"
        return [f"{kind}/{number}" for number in rng.sample(range(self.settings.pool), self.settings.graphs)]

    def _graph(self, name: str) -> HeteroGraph:
        if name not in self._graphs:
            kind, _, number = name.partition("/")
            self._graphs[name] = random_graph(int(number), single=kind == "plain").to(self.settings.device)
        return self._graphs[name]

    def _plans(self, seed: int, first: str) -> tuple[RandomLayer, list[Compilation]]:
        """Returns the layer of a seed, compiled by several plans for the graph ``first``."""
        rng, layer = random.Random(f"plans of {seed}"), random_layer(seed)
        sdfg, profile = parse(layer.text), Profile.of(self._graph(first))
        wrt = list(layer.learned) if rng.random() < TRAINED else []

        def run(plan: Plan) -> Compilation:
            return compile_program(sdfg, wrt, self._config, INDEX, profile, tuned=plan, keep=False)

        compilations: list[Compilation] = []
        for plan, compilation in random_plans(run, rng, self.settings.builds, DEVIATIONS, needs_build):
            variants = [run(random_variant(plan, compilation, rng)) for _ in range(self.settings.variants)]
            compilations += [compilation, *variants]
        return layer, compilations

    def _measure(
        self, data: DataSet, seed: int, name: str, plans: Sequence[Compilation], runnables: Sequence[Runnable]
    ) -> int:
        """Measures plans of a layer on a graph; returns how many samples were added."""
        graph = self._graph(name)
        facts = GraphFacts.of(graph)
        data.describe([{"graph": name, "facts": json.loads(facts.to_json())}])
        fitting = {n: r for n, r in enumerate(runnables) if _fits(plans[n], facts)}
        steps = {n: TimedStep(runnable, graph, self._arrays) for n, runnable in fitting.items()}
        settings = self.settings
        times, slowdown = self._undisturbed.measure(lambda: measure(steps, settings.repeat, settings.limit))
        if times:
            data.add(seed, name, times, slowdown)
        else:
            data.leave_out(seed, name, self.settings.limit)
        _forget(graph)
        return len(times)


def _built(layer: RandomLayer, plans: Sequence[Compilation], built_for: tuple[int, ...]) -> list[Runnable]:
    results = len(Program(parse(layer.text)).outputs)
    runnables = [Runnable(compilation, results, built_for) for compilation in plans]
    build_runnables(runnables)
    return runnables


def _program(seed: int, number: int, layer: RandomLayer, compilation: Compilation) -> Row:
    return {
        "layer": seed,
        "plan": number,
        "family": layer.family,
        "answers": dict(compilation.plan.answers),
        "programs": [written(part) for part in compilation.parts],
    }


def _fits(compilation: Compilation, facts: GraphFacts) -> bool:
    """Tells whether the ELLPACK matrices of a program are not much larger than the graph."""
    if not any(getattr(o, "adjacency", "") == "ell" for part in compilation.parts for o in Program(part).operators):
        return True
    sizes, longest = facts.sizes, facts.longest
    groups = {"src": "NS", "dst": "ND", "srcpair": "U", "dstpair": "V"}
    return all(sizes[space] * longest.get(path, 0) <= PADDING * sizes["E"] for path, space in groups.items())


def _forget(graph: HeteroGraph) -> None:
    """Frees what programs have prepared for a graph."""
    for key in [*graph.derived]:
        if isinstance(key, Executable) or (isinstance(key, tuple) and isinstance(key[0], Executable)):
            del graph.derived[key]
    POOL.clear()

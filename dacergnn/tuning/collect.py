"""Measures random plans of random layers on random graphs: what performance models learn from (Singh et al., III-A)."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
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
from dacergnn.runtime.build import build_all
from dacergnn.runtime.executable import Executable
from dacergnn.runtime.pool import POOL
from dacergnn.sdfg_passes import Compilation, compile_program
from dacergnn.tuning.graph_facts import GraphFacts
from dacergnn.tuning.graphs import random_graph
from dacergnn.tuning.measure import RandomArrays, Runnable, measure
from dacergnn.tuning.programs import RandomLayer, random_layer
from dacergnn.tuning.records import Row, Writer, load
from dacergnn.tuning.space import needs_build, random_plans, random_variant
from dacergnn.tuning.written import written

FORMAT = 1
INDEX: Any = dace.int32
PADDING = 4
"""The most slots of an ELLPACK matrix for each edge: other graphs than the one that a plan is of may have hubs."""
DEVIATIONS = 4
"""The most answers in which plans deviate that need a build of their own."""
TRAINED = 0.5
"""Share of the layers that are measured with their gradients."""
_ELEMENTS = 1 << 26


@dataclass(frozen=True)
class Settings:
    """What is measured.

    Args:
        layers: Seeds of the layers.
        graphs: Graphs for each layer, out of ``pool`` with relations and as many without.
        builds: Plans of a layer that lead to different code; the first deviates in nothing from what costs least on
            the first of its graphs.
        variants: Further plans for each of these that need no build of their own.
        repeat: Runs of each sample.
        limit: Seconds that a run may take; layers on graphs that take longer are left out.
    """

    layers: range = range(256)
    graphs: int = 10
    pool: int = 80
    builds: int = 3
    variants: int = 1
    repeat: int = 10
    limit: float = 0.06
    threads: int = 2

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name != "layers" and not (value > 0 or (name == "variants" and value == 0)):
                raise DacergnnError(f"{name}={value}: pass a positive number.")
        if self.graphs > self.pool:
            raise DacergnnError(f"graphs={self.graphs}: there are only {self.pool} in the pool; make it larger.")


@dataclass
class Collector:
    """Collects samples into a file, and goes on where an earlier run stopped.

    Args:
        about: How and where the samples are made; the first row of the file.
    """

    settings: Settings
    path: Path
    about: Row
    _graphs: dict[str, HeteroGraph] = field(default_factory=dict[str, HeteroGraph])

    @cached_property
    def _rows(self) -> list[Row]:
        return load(self.path) if self.path.exists() else []

    @cached_property
    def _arrays(self) -> RandomArrays:
        return RandomArrays(_ELEMENTS)

    def run(self, deadline: float = float("inf")) -> Iterator[tuple[int, int]]:
        """Measure layer after layer until ``deadline`` (`time.monotonic`); yields each seed and its samples.

        Raises:
            DacergnnError: The file holds samples that were made in another way.
        """
        torch.set_num_threads(self.settings.threads)
        about = {"format": FORMAT, **self.about}
        known = [row for row in self._rows if "format" in row]
        if any(row != about for row in known):
            raise DacergnnError(f"{self.path}: its samples were made in another way or place; start another file.")
        writer = Writer(self.path)
        if not known:
            writer.write([about])
        done = {(row["layer"], row["graph"]) for row in self._rows if "graph" in row and "layer" in row}
        for seed in self.settings.layers:
            if time.monotonic() > deadline:
                return
            names = self._names(seed)
            left = [name for name in names if (seed, name) not in done]
            count = 0
            if left:
                for rows in self._layer(seed, names[0], left):
                    writer.write(rows)
                    count += sum("seconds" in row for row in rows)
            yield seed, count

    def _names(self, seed: int) -> list[str]:
        """The graphs of a layer; those without relations are for layers that know none."""
        rng = random.Random(f"graphs of {seed}")
        kind = "typed" if "type" in random_layer(seed).text or rng.random() < 0.3 else "plain"
        return [f"{kind}/{number}" for number in rng.sample(range(self.settings.pool), self.settings.graphs)]

    def _graph(self, name: str) -> HeteroGraph:
        if name not in self._graphs:
            kind, _, number = name.partition("/")
            self._graphs[name] = random_graph(int(number), single=kind == "plain")
        return self._graphs[name]

    def _layer(self, seed: int, first: str, left: list[str]) -> Iterator[list[Row]]:
        """Rows of its plans, then those of one graph after the other."""
        layer = random_layer(seed)
        sdfg = parse(layer.text)
        plans = [*self._plans(seed, layer, sdfg, self._graph(first))]
        results = len(Program(sdfg).outputs)
        runnables = [Runnable(found, results) for found in plans]
        build_all([*dict.fromkeys(part for runnable in runnables for part in runnable.code)])
        texts = [json.dumps(self._program(seed, n, layer, found)) for n, found in enumerate(plans)]
        known = {(row["layer"], row["plan"]): row for row in self._rows if "programs" in row}
        for n, text in enumerate(texts):
            if known.get((seed, n), json.loads(text)) != json.loads(text):
                raise DacergnnError(f"{self.path}: plan {n} of layer {seed} is another one now; start another file.")
        yield [json.loads(text) for n, text in enumerate(texts) if (seed, n) not in known]
        for name in left:
            graph = self._graph(name)
            facts = GraphFacts.of(graph)
            described = {row["graph"] for row in self._rows if "facts" in row}
            rows: list[Row] = [] if name in described else [{"graph": name, "facts": json.loads(facts.to_json())}]
            self._rows.extend(rows)
            fitting = {str(n): r for n, r in enumerate(runnables) if _fits(plans[n], facts)}
            steps = {n: runnable.step(graph, self._arrays) for n, runnable in fitting.items()}
            times = measure(steps, self.settings.repeat, self.settings.limit)
            if not times:
                rows.append({"layer": seed, "graph": name, "too_slow": self.settings.limit})
            for n, parts in times.items():
                seconds = [[part.mean, part.deviation] for part in parts if part is not None]
                rows.append({"layer": seed, "plan": int(n), "graph": name, "seconds": seconds})
            _forget(graph)
            yield rows

    def _plans(self, seed: int, layer: RandomLayer, sdfg: dace.SDFG, graph: HeteroGraph) -> Iterator[Compilation]:
        rng, settings = random.Random(f"plans of {seed}"), self.settings
        profile, wrt = Profile.of(graph), list(layer.learned) if rng.random() < TRAINED else []

        def run(plan: Plan) -> Compilation:
            return compile_program(sdfg, wrt, Config(plan=plan), INDEX, profile, keep=False)

        for plan, found in random_plans(run, rng, settings.builds, DEVIATIONS, needs_build):
            yield found
            for _ in range(settings.variants):
                yield run(random_variant(plan, found, rng))

    def _program(self, seed: int, number: int, layer: RandomLayer, found: Compilation) -> Row:
        parts = [found.forward] if found.backward is None else [found.forward, found.backward]
        return {
            "layer": seed,
            "plan": number,
            "family": layer.family,
            "answers": dict(found.plan.answers),
            "programs": [written(part) for part in parts],
        }


def _fits(found: Compilation, facts: GraphFacts) -> bool:
    """Whether its ELLPACK matrices are not much larger than the graph."""
    parts = [found.forward] if found.backward is None else [found.forward, found.backward]
    if not any(getattr(o, "adjacency", "") == "ell" for part in parts for o in Program(part).operators):
        return True
    sizes, longest = facts.sizes, facts.longest
    groups = {"src": "NS", "dst": "ND", "srcpair": "U", "dstpair": "V"}
    return all(sizes[space] * longest.get(path, 0) <= PADDING * sizes["E"] for path, space in groups.items())


def _forget(graph: HeteroGraph) -> None:
    """Let go of what programs have prepared on a graph."""
    for key in [*graph.derived]:
        if isinstance(key, Executable) or (isinstance(key, tuple) and isinstance(key[0], Executable)):
            del graph.derived[key]
    POOL.clear()

"""Rows of measured programs: one for each graph, program and sample.

The first row of a run says how and where its samples were made. A graph is stored with its facts; a program with its
layer, its plan and its SDFGs as `written` returns them. Samples name both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from benchmarks.learned_model.written import written
from dacergnn.json_lines import Row
from dacergnn.tuning.collect import Collector, Sampled

FORMAT = 1


class Rows:
    """Returns the rows of layers, in which each graph is described once, before its samples."""

    def __init__(self, collector: Collector) -> None:
        self._collector, self._graphs = collector, set[str]()

    def of(self, seed: int) -> list[Row]:
        """Measures a layer; its programs are described before its samples."""
        found = [*self._collector.sampled(seed)]
        about: Row = {"layer": seed, "family": found[0].layer.family}
        programs: Iterable[Row] = (
            {**about, "plan": n, "answers": dict(plan.plan.answers), "programs": [written(part) for part in plan.parts]}
            for n, plan in enumerate(found[0].plans)
        )
        return [*programs, *(row for one in found for row in self._samples(one))]

    def _samples(self, found: Sampled) -> Iterator[Row]:
        """Yields the samples of a layer on a graph; those of other than the usual number of runs say so."""
        if found.graph not in self._graphs:
            self._graphs.add(found.graph)
            yield {"graph": found.graph, "facts": json.loads(found.facts.to_json())}
        named: Row = {"layer": found.seed, "graph": found.graph}
        if not found.times:
            yield {**named, "too_slow": self._collector.settings.limit}
        for plan, parts in found.times.items():
            own = [part for part in parts if part is not None]
            runs = {} if own[0].runs == self._collector.settings.repeat else {"runs": own[0].runs}
            seconds = [[t.mean, t.deviation] for t in own]
            yield {**named, "slowdown": round(found.slowdown, 2), **runs, "plan": plan, "seconds": seconds}

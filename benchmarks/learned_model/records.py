"""Data sets of measured programs: files of JSON lines, one for each graph, program and sample.

The first line says how and where the set was made. A graph is stored with its facts; a program with its layer, its plan
and its SDFGs as `written` returns them. Samples name both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.learned_model.written import written
from dacergnn.errors import DacergnnError
from dacergnn.json_lines import Row, Writer, load
from dacergnn.sdfg_passes import Compilation
from dacergnn.tuning.collect import Collector, CollectSettings, MeasuredTimes
from dacergnn.tuning.graph_facts import GraphFacts
from dacergnn.tuning.programs import RandomLayer

FORMAT = 1


class DataSet:
    """Appends samples to a file, which describes each graph and program once, before its samples.

    Attributes:
        done: The pairs of layer and graph that have been measured.
    """

    def __init__(self, path: Path, settings: CollectSettings, about: Row) -> None:
        """Opens or makes a file.

        Args:
            about: Says how and where the samples are made, in the first row.

        Raises:
            DacergnnError: By ``about``, the samples in the file were made in another way.
        """
        rows = load(path) if path.exists() else []
        self.done = {(row["layer"], row["graph"]) for row in rows if "graph" in row and "layer" in row}
        self._path, self._writer = path, Writer(path)
        self._described = {_described(row): row for row in rows if not _is_result(row)}
        self._settings = settings
        self._describe([{"format": FORMAT, **about}])

    def has(self, seed: int, graph: str) -> bool:
        """Tells whether a layer has been measured on a graph."""
        return (seed, graph) in self.done

    def describe(self, seed: int, layer: RandomLayer, plans: Sequence[Compilation]) -> None:
        """Writes the programs of a layer, unless they are in the file."""
        about = {"layer": seed, "family": layer.family}
        self._describe(
            about | {"plan": n, "answers": dict(plan.plan.answers), "programs": [written(part) for part in plan.parts]}
            for n, plan in enumerate(plans)
        )

    def _describe(self, rows: Iterable[Row]) -> None:
        """Writes the descriptions that samples refer to, unless they are in the file.

        Raises:
            DacergnnError: The file has another description of the same graph, program or machine.
        """
        descriptions = {_described(row): json.loads(json.dumps(row)) for row in rows}
        for name, row in descriptions.items():
            if self._described.get(name, row) != row:
                raise DacergnnError(f"{self._path}: {name} was another one when it was made; start another file.")
        self._writer.write(row for name, row in descriptions.items() if name not in self._described)
        self._described |= descriptions

    def add(self, seed: int, graph: str, facts: GraphFacts, times: MeasuredTimes, slowdown: float) -> None:
        """Adds samples of plans of a layer on a graph, with the slowdown of the machine by other work meanwhile.

        Samples of other than the usual number of runs say so. Without any, the layer has taken too long.
        """
        self._describe([{"graph": graph, "facts": json.loads(facts.to_json())}])
        repeat = self._settings.repeat
        for_all: Row = {"layer": seed, "graph": graph}
        rows: list[Row] = [] if times else [{**for_all, "too_slow": self._settings.limit}]
        for_all["slowdown"] = round(slowdown, 2)
        for plan, parts in times.items():
            own = [part for part in parts if part is not None]
            runs = {} if own[0].runs == repeat else {"runs": own[0].runs}
            rows.append({**for_all, **runs, "plan": plan, "seconds": [[t.mean, t.deviation] for t in own]})
        self._writer.write(rows)
        self.done.add((seed, graph))


def collector(settings: CollectSettings, path: Path, about: Row) -> Collector:
    """Returns what collects samples into a file, which says ``about`` first."""
    return Collector(settings, DataSet(path, settings, about))


def _is_result(row: Row) -> bool:
    return "seconds" in row or "too_slow" in row


def _described(row: Row) -> str:
    """Returns a name for the program, graph or machine that a row describes."""
    if "programs" in row:
        return f"plan {row['plan']} of layer {row['layer']}"
    return f"graph {row['graph']}" if "facts" in row else "the machine or the number of runs"

"""Data sets of measured programs: files of JSON lines, one for each graph, program and sample.

The first line says how and where the set was made. A graph is stored with its facts; a program with its layer, its plan
and its SDFGs as `written` returns them. Samples name both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from dacergnn.errors import DacergnnError
from dacergnn.json_lines import Row, Writer, load
from dacergnn.tuning.measure import Times


class DataSet:
    """Appends samples to a file, which describes each graph and program once, before its samples.

    Attributes:
        done: The pairs of layer and graph that have been measured.
    """

    def __init__(self, path: Path, about: Row) -> None:
        """Opens or makes a file.

        Raises:
            DacergnnError: By ``about``, the samples in the file were made in another way.
        """
        rows = load(path) if path.exists() else []
        self.done = {(row["layer"], row["graph"]) for row in rows if "graph" in row and "layer" in row}
        self._path, self._writer = path, Writer(path)
        self._described = {_described(row): row for row in rows if not _is_result(row)}
        self.describe([about])

    def describe(self, rows: Iterable[Row]) -> None:
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

    def add(
        self, layer: int, graph: str, times: Mapping[int, Sequence[Times | None]], slowdown: float, repeat: int
    ) -> None:
        """Adds samples of plans of a layer on a graph, with the slowdown of the machine by other work meanwhile.

        Samples of other than ``repeat`` runs say so.
        """
        for_all = {"layer": layer, "graph": graph, "slowdown": round(slowdown, 2)}
        rows: list[Row] = []
        for plan, parts in times.items():
            own = [part for part in parts if part is not None]
            runs = {} if own[0].runs == repeat else {"runs": own[0].runs}
            rows.append({**for_all, **runs, "plan": plan, "seconds": [[t.mean, t.deviation] for t in own]})
        self._writer.write(rows)
        self.done.add((layer, graph))

    def leave_out(self, layer: int, graph: str, limit: float) -> None:
        """Notes that a layer took longer than ``limit`` seconds on a graph."""
        self._writer.write([{"layer": layer, "graph": graph, "too_slow": limit}])
        self.done.add((layer, graph))


def _is_result(row: Row) -> bool:
    return "seconds" in row or "too_slow" in row


def _described(row: Row) -> str:
    """Returns a name for the program, graph or machine that a row describes."""
    if "programs" in row:
        return f"plan {row['plan']} of layer {row['layer']}"
    return f"graph {row['graph']}" if "facts" in row else "the machine or the number of runs"

"""Tells the cases of a file of results apart."""

from __future__ import annotations

from pathlib import Path

from benchmarks.caching.task import Limits, Task
from benchmarks.named import Named
from benchmarks.suite import found_by
from dacergnn import json_lines
from dacergnn.errors import DacergnnError
from dacergnn.json_lines import Row

_TASK = ("model", "data", "network", "features", "hidden", "heads", "input_gradient")
_SCHEME = {name: name for name in ("caching", "cache", "recompute", "adjacency")} | {"order": "aggregation"}
"""Fields of rows, and of configs."""
_KEY = (*_TASK, "library", "name", *_SCHEME, "threads", "seed", "device")
"""Fields that tell cases apart; the others of a row are results."""


def settings_of(task: Task, candidate: Named, limits: Limits) -> Row:
    """Returns the fields of a case that are known before it is measured."""
    config = candidate.config
    scheme: Row = {name: None if config is None else getattr(config, own) for name, own in _SCHEME.items()}
    scheme = {name: list(v) if isinstance(v, tuple) else v for name, v in scheme.items()}
    own = {"library": candidate.library, "name": candidate.name}
    own |= {"threads": limits.threads, "seed": limits.seed, "device": limits.device}
    return {**{name: getattr(task, name) for name in _TASK}, **own, **scheme}


def load(path: Path) -> list[Row]:
    """Returns the rows of a file, each case as it was measured last.

    An incomplete last line is left out.

    Raises:
        DacergnnError: There is no such file, it is of something else, or one of its lines is no row.
    """
    rows: list[Row] = []
    for number, row in enumerate(json_lines.load(path), start=1):
        if "environment" in row:
            continue
        if not {"model", "library", "status"} <= row.keys():
            raise DacergnnError(
                f"{path}, line {number} is no result of the suite of caching strategies; "
                "name a file that `python -m benchmarks caching --json FILE` writes."
            )
        rows.append(row)
    find = found_by(rows)
    return [row for row in rows if find({name: row.get(name) for name in _KEY})[-1] is row]

"""Reads and writes the file of results: one line of JSON for each case, written as soon as it is measured."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dacergnn.bench.caching.task import CachingCandidate, Limits, Task
from dacergnn.bench.errors import BenchmarkError

Row = dict[str, Any]
Key = tuple[Any, ...]

_SCHEME = ("caching", "cache", "recompute", "adjacency", "order")
_KEY = (
    *("model", "data", "network", "features", "hidden", "heads", "input_gradient", "library", "name"),
    *_SCHEME,
    *("threads", "seed", "device"),
)
"""Fields that tell cases apart; the others of a row are results."""


def settings_of(task: Task, candidate: CachingCandidate, limits: Limits) -> Row:
    """Returns the fields of a case that are known before it is measured."""
    scheme: Row = dict.fromkeys(_SCHEME) if candidate.scheme is None else asdict(candidate.scheme)
    scheme = {name: list(v) if isinstance(v, tuple) else v for name, v in scheme.items() if name != "label"}
    own = {"library": candidate.library, "name": candidate.name}
    own |= {"threads": limits.threads, "seed": limits.seed, "device": limits.device}
    return {**asdict(task), **own, **scheme}


def key_of(row: Row) -> Key:
    """Returns the key that distinguishes a case from all others; rows without a device are of the processor."""
    row = {"device": "cpu"} | row
    return tuple(tuple(v) if isinstance(v, list) else v for v in (row.get(name) for name in _KEY))


def load(path: Path) -> list[Row]:
    """Returns the rows of a file, each case as it was measured last.

    An incomplete last line is left out.

    Raises:
        BenchmarkError: There is no such file, it is of something else, or one of its lines is no row.
    """
    try:
        text = path.read_text()
    except OSError as error:
        raise BenchmarkError(f"{path} cannot be read ({error.strerror}); name a file of a run with --json.") from error
    whole, _, _ = text.rpartition("\n")
    rows: dict[Key, Row] = {}
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            row: Row = json.loads(line)
            known = "environment" in row or {"model", "library", "status"} <= row.keys()
        except (ValueError, AttributeError):
            row, known = {}, False
        if not known and (number == 1 or "candidates" in row):  # as other suites write them
            raise BenchmarkError(
                f"{path} holds no results of the suite of caching strategies; "
                "name a file that `dacergnn bench --suite caching --json FILE` writes."
            )
        if not known:
            raise BenchmarkError(f"{path}, line {number} is no result of this suite; remove it.")
        if "environment" not in row:
            rows.pop(key_of(row), None)
            rows[key_of(row)] = row
    return list(rows.values())


class Writer:
    """Appends rows to a file, after it has removed an incomplete last line."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            file.seek(0)
            content = file.read()
            file.truncate(content.rfind(b"\n") + 1)
        self._path = path

    def write(self, rows: Iterable[Row]) -> None:
        """Appends all rows at once, and waits until they are on the disk."""
        text = "".join(json.dumps(row) + "\n" for row in rows)
        with self._path.open("a") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())

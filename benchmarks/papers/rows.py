"""Reads the rows of experiments for figures: candidates by name, what has no time, ratios and their means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import geometric_mean

from benchmarks.named import Named
from benchmarks.papers.artefact import Cell
from benchmarks.rows import label
from dacergnn.bench.scatter import Ratio
from dacergnn.errors import DacergnnError
from dacergnn.json_lines import Row


def by_name(found: Mapping[Named, Row], *allowed: str) -> dict[str, Row]:
    """Returns the rows of an experiment by the names of the candidates; those of libraries begin with the library's.

    Raises:
        DacergnnError: One of ours has another status than "ok" and those that are allowed.
    """
    for way, row in found.items():
        if way.library == "ours" and row["status"] not in ("ok", *allowed):
            raise DacergnnError(f"{way}: {row['status']} {row['note']}")
    rows = [{"library": way.library, "name": way.name, **row} for way, row in found.items()]
    return {label(row): row for row in rows}


def no_time(failed: Mapping[str, str]) -> str:
    """Returns a sentence on what has no time: reasons by what failed."""
    return f"No time: {'; '.join(f'{name}: {reason}' for name, reason in failed.items())}."


def value_of(ratio: Ratio | None) -> float | None:
    """Returns the value of a ratio, whether it scatters or not; None where there is none."""
    return None if ratio is None else ratio.value


def over(value: float | None, base: float | None) -> float | None:
    """Returns a ratio; None where one of both is not known."""
    return None if value is None or not base else value / base


def mean_and_best(key: str, cells: Iterable[Cell], best: str = "best") -> dict[str, float]:
    """Returns the geometric mean and the largest of ratios, by the keys of the facts."""
    values = [cell for cell in cells if isinstance(cell, float)]
    return {f"{key} mean": geometric_mean(values), f"{key} {best}": max(values)} if values else {}

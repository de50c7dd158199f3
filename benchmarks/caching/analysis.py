"""Compares the rows of a run; only rows of one group were measured in turns and can be compared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dacergnn.bench.scatter import Ratio, scatters
from dacergnn.json_lines import Row

SAME = 0.02
"""Relative difference of two times up to which they count as the same."""


@dataclass(frozen=True)
class NetworkRows:
    """Holds the rows of one network on one graph."""

    rows: tuple[Row, ...]

    @property
    def ours(self) -> list[Row]:
        return [row for row in self.rows if row["library"] == "ours" and row["status"] == "ok"]

    @property
    def peers(self) -> list[Row]:
        return [row for row in self.rows if row["library"] != "ours" and row["status"] == "ok"]

    @property
    def own(self) -> Row | None:
        """Returns our default: the row that "auto" chooses, else our first row."""
        return next((row for row in self.ours if _chooses(row)), next(iter(self.ours), None))

    @property
    def data(self) -> str:
        return self.rows[0]["data"]

    @property
    def hidden(self) -> int:
        return self.rows[0]["hidden"]

    def named(self, name: str) -> Row | None:
        """Returns our row by the name of its scheme."""
        return next((row for row in self.ours if row["name"] == name), None)

    def least_of_peers(self, field: str) -> Row | None:
        """Returns the row of the fastest ("train_ms", say) or leanest ("peak_mb") library."""
        return least(self.peers, field)


def groups(rows: Iterable[Row]) -> list[NetworkRows]:
    """Returns the rows by the measurement that they come from, in order."""
    by_group: dict[str, list[Row]] = {}
    for row in rows:
        by_group.setdefault(row["group"], []).append(row)
    return [NetworkRows(tuple(members)) for members in by_group.values()]


def families(row_groups: Iterable[NetworkRows]) -> dict[tuple[str, str], list[NetworkRows]]:
    """Returns the groups by model and network; a single layer with the gradient of its input is another network."""
    result: dict[tuple[str, str], list[NetworkRows]] = {}
    for group in row_groups:
        shared = group.rows[0]
        network = f"{shared['network']}{', input gradient' if shared['input_gradient'] else ''}"
        result.setdefault((shared["model"], network), []).append(group)
    return result


def least(rows: Iterable[Row], field: str) -> Row | None:
    """Returns the row with the smallest value of a field, among the rows that have one."""
    return min((row for row in rows if row.get(field) is not None), key=lambda row: row[field], default=None)


def speedup(group: NetworkRows, own: Row | None, field: str) -> Ratio | None:
    """Returns the least value of the libraries over ours, in time or memory."""
    return relative(group.least_of_peers(field), own, field)


def relative(row: Row | None, base: Row | None, field: str) -> Ratio | None:
    """Returns a row's value over another's."""
    return None if row is None or base is None else Ratio.of(row, base, field)


def _chooses(row: Row) -> bool:
    return row["caching"] == "auto" and row["order"] == "auto" and not row["cache"] and not row["recompute"]


@dataclass(frozen=True)
class Choice:
    """Describes what "auto" chose in a group, and the fastest of the fixed schemes."""

    group: NetworkRows
    own: Row
    best: Row

    @property
    def slowdown(self) -> float:
        """Returns the time of a training step over that of the best fixed scheme."""
        return self.own["train_ms"] / self.best["train_ms"]

    @property
    def scatters(self) -> bool:
        """Tells whether one of both times scatters, so that they tell nothing of the choice."""
        return scatters(self.own, "train_ms") or scatters(self.best, "train_ms")

    @property
    def right(self) -> bool:
        """Tells whether "auto" chose the best scheme, by its program or by its time."""
        same = bool(self.own.get("program")) and self.own["program"] == self.best.get("program")
        return same or self.slowdown <= 1 + SAME


def choices(row_groups: Iterable[NetworkRows]) -> list[Choice]:
    """Returns the choices of "auto" wherever it was measured together with fixed schemes.

    If a group has rows with fixed orders, only such rows count as fixed schemes.
    """
    result: list[Choice] = []
    for group in row_groups:
        ordered = any(row["order"] != "auto" for row in group.ours)
        for own in (row for row in group.ours if _chooses(row)):
            fixed = [
                row for row in group.ours
                if row["caching"] != "auto" and (row["order"] != "auto") == ordered
                and row["adjacency"] == own["adjacency"]
            ]  # fmt: skip
            best = least(fixed, "train_ms")
            if best is not None and own.get("train_ms") is not None:
                result.append(Choice(group, own, best))
    return result

"""Sorts the measurements of a run by network, and judges what "auto" chose."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.rows import Group, least
from dacergnn.bench.scatter import scatters
from dacergnn.json_lines import Row

SAME = 0.02
"""Relative difference of two times up to which they count as the same."""


def default(group: Group) -> Row | None:
    """Returns our default: the row that "auto" chooses, else our first row."""
    return next((row for row in group.ours if _chooses(row)), next(iter(group.ours), None))


def families(row_groups: Iterable[Group]) -> dict[tuple[str, str], list[Group]]:
    """Returns the groups by model and network; a single layer with the gradient of its input is another network."""
    result: dict[tuple[str, str], list[Group]] = {}
    for group in row_groups:
        network = f"{group['network']}{', input gradient' if group['input_gradient'] else ''}"
        result.setdefault((group["model"], network), []).append(group)
    return result


def _chooses(row: Row) -> bool:
    return row["caching"] == "auto" and row["order"] == "auto" and not row["cache"] and not row["recompute"]


@dataclass(frozen=True)
class Choice:
    """Describes what "auto" chose in a group, and the fastest of the fixed schemes."""

    group: Group
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


def choices(row_groups: Iterable[Group]) -> list[Choice]:
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

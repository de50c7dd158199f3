"""Tells which times scatter too much to be compared: they are shown with a mark, and left out of means."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any

from dacergnn.tables import Table

LIMIT = 0.25
"""A time scatters if the middle three fifths of its runs spread over more than this share of their median."""
LEAST = 3
"""Runs that are needed to tell; fewer do not count as scattering."""
MARK = "*"
_LEFT_OUT = " left out"
NOTE = f"{MARK} runs scatter (p20 to p80 by more than {LIMIT:.0%} of the median); not in means"
"""Explains marks below a table or a figure that has some."""


def scatters(row: Mapping[str, Any], time: str = "ms") -> bool:
    """Tells whether a time scatters, by the percentiles that stand beside it.

    Args:
        row: Fields as `Timing.as_json` names them. Where percentiles are missing, as in old files, nothing scatters.
        time: The name of the time's field; values of other fields, such as peaks of memory, do not scatter.
    """
    prefix = time.removesuffix("ms")
    middle, low, high = (row.get(name) for name in (time, f"{prefix}p20_ms", f"{prefix}p80_ms"))
    if prefix == time or not middle or low is None or high is None:
        return False
    return row.get(f"{prefix}samples", LEAST) >= LEAST and high - low > LIMIT * middle


def marked(text: str, scattering: bool) -> str:
    """Returns the text of a time or a ratio, with a mark if it scatters."""
    return f"{text}{MARK}" if scattering else text


def time_cell(row: Mapping[str, Any] | None, time: str = "ms", form: str = ".3g") -> str:
    """Returns a number of a row as text, with a mark if it is a time that scatters; "-" where there is none."""
    value = (row or {}).get(time)
    return "-" if value is None else marked(f"{value:{form}}", scatters(row or {}, time))


def ratio_cell(ratio: Ratio | None, form: str = ".2f") -> str:
    """Returns a ratio as text, with a mark if it scatters; "-" where there is none."""
    return "-" if ratio is None else marked(f"{ratio.value:{form}}", ratio.scatters)


def noted(table: Table) -> Table:
    """Explains the marks of a table below it, if it has some, or if one of its means leaves values out."""
    if any(cell.endswith((MARK, _LEFT_OUT)) for row in table.rows for cell in row):
        table.add_note(NOTE)
    return table


@dataclass(frozen=True)
class Ratio:
    """Holds a time over another, and whether one of both scatters."""

    value: float
    scatters: bool = False

    @classmethod
    def of(cls, over: Mapping[str, Any], under: Mapping[str, Any], field: str = "ms") -> Ratio | None:
        """Returns the ratio of a field of two rows; None if one of them lacks it."""
        if over.get(field) is None or not under.get(field):
            return None
        return cls(over[field] / under[field], scatters(over, field) or scatters(under, field))


@dataclass(frozen=True)
class Steady:
    """Holds the ratios of steady times, of which means are made, and how many others are left out."""

    values: Sequence[float]
    left_out: int

    @classmethod
    def of(cls, ratios: Iterable[Ratio | None]) -> Steady:
        """Sorts ratios; those that are None count for neither."""
        known = [ratio for ratio in ratios if ratio is not None]
        values = [ratio.value for ratio in known if not ratio.scatters]
        return cls(values, len(known) - len(values))

    @property
    def mean(self) -> float | None:
        """Returns the geometric mean; None if there is nothing to take it of."""
        return geometric_mean(self.values) if self.values else None

    def text(self, extreme: Callable[[Sequence[float]], float] = min, form: str = ".2f") -> str:
        """Returns the mean, the smallest or largest value, and how many are left out."""
        shown = f"{self.mean:{form}} ({extreme(self.values):{form}})" if self.values else "-"
        return with_left_out(shown, self.left_out)


def with_left_out(text: str, left_out: int) -> str:
    """Returns the text of a mean, followed by the number of ratios that it leaves out, if there are any."""
    return f"{text}, {left_out}{_LEFT_OUT}" if left_out else text

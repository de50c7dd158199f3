"""Describes the figures and tables that can be measured again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.caching.task import Limits
from dacergnn.config import Rates

Cell = str | float | None
Row = tuple[Cell, ...]


@dataclass(frozen=True)
class Scale:
    """Sets how much is measured.

    Args:
        quick: Smaller graphs and fewer runs: ten minutes for a paper.
        threads: Threads of all programs.
        seed: Of features, parameters and synthetic graphs.
        device: Type of torch's device that layers run on: "cpu" or "cuda".
        data: Graphs between commas, in place of the usual ones.
        rates: Rates that our layers are compiled by; None for typical ones.
    """

    quick: bool = False
    threads: int = 2
    seed: int = 0
    device: str = "cpu"
    data: tuple[str, ...] = ()
    rates: Rates | None = None

    def pick(self, quick: Any, full: Any) -> Any:
        """Returns the value for this scale."""
        return quick if self.quick else full

    def limits(self, modes: tuple[str, ...]) -> Limits:
        """Returns the limits of measurements."""
        return Limits(
            modes, self.threads, self.pick(9, 20), self.pick(0.6, 4.0), device=self.device, seed=self.seed,
            rates=self.rates,
        )  # fmt: skip

    def graphs(self, quick: tuple[str, ...], full: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the names of the graphs to measure."""
        return self.data or self.pick(quick, full)


@dataclass(frozen=True)
class Picture:
    """Tells how rows are drawn: a group of bars, or a point of each line, for every row.

    Args:
        values: Names of the columns to draw.
        unit: Label of the axis of values.
        labels: Number of first columns that name a row.
        logarithmic: Whether the axis of values is logarithmic.
        lines: Whether values are joined by lines, along the rows, rather than drawn as bars.
        reference: A value that a line marks, such as 1 for speed-ups.
        stacked: Whether the bars of a row are stacked.
    """

    values: tuple[str, ...]
    unit: str
    labels: int = 1
    logarithmic: bool = False
    lines: bool = False
    reference: float | None = None
    stacked: bool = False


@dataclass(frozen=True)
class Found:
    """Holds what was found on this machine.

    Args:
        columns: Names of the columns, with units.
        rows: The table; None where there is no value.
        picture: How it is drawn.
        summary: Numbers that the paper gives, too, by the keys of the paper's facts.
        notes: Sentences on what differs from the paper.
    """

    columns: tuple[str, ...]
    rows: Sequence[Row]
    picture: Picture
    summary: Mapping[str, float] = field(default_factory=dict[str, float])
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Artefact:
    """Describes a figure or a table of a paper.

    Args:
        title: What it shows, in a few words.
        measure: Measures it on this machine.
    """

    title: str
    measure: Callable[[Scale], Found]

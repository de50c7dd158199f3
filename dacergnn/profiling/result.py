"""Holds what `profile` has measured; prints, saves and draws it."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from dacergnn.config import Rates
from dacergnn.profiling.forecast import Forecast
from dacergnn.profiling.instrumentation import MeasuredProgram, write_programs
from dacergnn.profiling.operator_time import LEAST_MS, OperatorTime
from dacergnn.tables import Table, terminal_width

WIDTH = 120
"""Columns of the table at the most: longer lines are hard to read."""
_HEADINGS = ("operator", "kind", "does", "ms", "GFLOP/s", "GB/s", "roofline")


@dataclass(frozen=True)
class OperatorProfile:
    """Holds the operators of a call in the order in which they run, first all forwards, then all backwards.

    ``call_ms`` is the time of the whole call without clocks, which may scatter, too. ``rates`` are those of the
    machine. ``forecast`` tells for a CUDA device what the kernels of the operators take of it, and how fast they should
    be. ``machine`` names the processor, its threads, what sets its clock, and its load before and after. ``programs``
    are the SDFGs that ran, with the time of each call. ``print`` it.
    """

    operators: tuple[OperatorTime, ...]
    call_ms: float
    rates: Rates
    forecast: Forecast | None = None
    call_scatters: bool = False
    machine: Mapping[str, Any] = field(default_factory=dict[str, Any])
    programs: tuple[MeasuredProgram, ...] = field(default=(), repr=False)

    @property
    def ms(self) -> float:
        """Returns the time of all operators."""
        return sum(operator.ms for operator in self.operators)

    @property
    def bound_ms(self) -> float:
        """Returns the bounds of all operators, one after the other."""
        return sum(operator.bound_ms for operator in self.operators)

    @property
    def roofline(self) -> float:
        """Returns the share of the roofline of all operators."""
        return self.bound_ms / max(self.ms, LEAST_MS)

    @property
    def slowest(self) -> OperatorTime:
        """Returns the operator that takes the most time above its bound."""
        return max(self.operators, key=lambda operator: operator.excess_ms)

    @property
    def verdict(self) -> str:
        """Returns a sentence on the operator that costs the most above its bound."""
        one = self.slowest
        name = f"{one.kind} of {', '.join(one.results)} ({one.role} of {one.place})"
        if one.excess_ms <= 0:
            return f"No operator takes longer than its bound; the {name} is closest to it."
        times = f"it takes {one.ms:.3g} ms, {one.excess_ms:.3g} ms above its bound"
        return f"The {name} keeps the call from its bound: {times}."

    def to_json(self) -> str:
        """Returns everything as JSON."""
        facts = {"ms": self.ms, "bound_ms": self.bound_ms, "call_ms": self.call_ms, "verdict": self.verdict}
        facts |= {"call_scatters": self.call_scatters, "machine": dict(self.machine)}
        operators = [operator.as_json() for operator in self.operators]
        expected = {} if self.forecast is None else {"forecast": self.forecast.as_json()}
        return json.dumps({**facts, "rates": asdict(self.rates), "operators": operators, **expected}, indent=2)

    def text(self, *, wide: bool = False) -> str:
        """Returns what ``print`` shows; with ``wide``, all columns on narrow terminals, too."""
        shown = _text(self, wide=wide)
        return shown if self.forecast is None else f"{shown}\n\n{self.forecast}"

    def __str__(self) -> str:
        return self.text()

    def save_sdfg(self, folder: str | Path) -> list[Path]:
        """Writes the SDFGs that ran, and their times for DaCe's extension for VS Code; returns the SDFGs' paths.

        Beside each, ``NAME.sdfg``, stands an instrumentation report of DaCe, ``NAME.report.json``. It has the time of
        each operator in each measured call.
        """
        return write_programs(self.programs, Path(folder))

    def plot(self, path: str | Path, title: str = "") -> None:
        """Draws the time of forward and backward, stacked by operator and coloured by kind.

        Args:
            path: The picture, whose ending tells its format: ``.png``, ``.svg``, ``.pdf``.

        Raises:
            DacergnnError: matplotlib is not installed, or does not know the format.
        """
        from dacergnn.profiling import figure  # imported only where something is drawn

        figure.save({title: self.operators}, Path(path))


def _text(profile: OperatorProfile, *, wide: bool = False) -> str:
    """Returns a table of operators, the sums of programs, the time of the call, and what limits it.

    Args:
        wide: Whether what operators do is told on narrow terminals, too.
    """
    from dacergnn.bench.rates import BEATEN  # imported only where something is printed
    from dacergnn.bench.scatter import NOTE, marked

    width = min(terminal_width(), WIDTH)
    table = Table("", _HEADINGS, words=("kind", "does"), extra=("does",))
    for (role, place), members in groupby(profile.operators, lambda operator: (operator.role, operator.place)):
        operators = [*members]
        runs = f", {operators[0].runs} runs" if operators[0].runs > 1 else ""
        total = sum(operator.ms for operator in operators)
        if table.rows:
            table.add_section()
        table.add_row(role, place + runs, "", f"{total:.3f}")
        for one in operators:
            figures = (
                marked(f"{one.ms:.3f}", one.scatters),
                f"{one.gflops:.1f}",
                f"{one.gbytes:.1f}",
                f"{one.roofline:.0%}",
            )
            table.add_row(", ".join(one.results), one.kind, "\n".join(one.statements), *figures)
    table.add_section()
    table.add_row("all", "", "", f"{profile.ms:.3f}", "", "", f"{profile.roofline:.0%}")
    call = marked(f"{profile.call_ms:.3f}", profile.call_scatters)
    if profile.ms <= profile.call_ms:
        share = f"its operators, {profile.ms / profile.call_ms:.1%} of that"
    else:
        share = f"its operators, measured apart with clocks between them, sum to {profile.ms:.3f} ms"
    notes = [f"The call takes {call} ms; {share}."]
    if profile.call_scatters or any(one.scatters for one in profile.operators):
        notes.append(NOTE)
    if any(one.roofline > 1 for one in profile.operators):
        notes.append(f"Above 100 %: {BEATEN}.")
    notes.append(profile.verdict)
    return "\n".join([table.text(width, wide=wide), "", *(textwrap.fill(note, width) for note in notes)])

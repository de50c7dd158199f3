"""Holds forecasts, and prints them: all groups of operators with their kernels, then those that lose the most time."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby, zip_longest
from typing import Any

from dacergnn.profiling.devices import Device
from dacergnn.profiling.operator_forecast import Kernel, OperatorForecast
from dacergnn.tables import Table, terminal_width

WORST = 10
"""Groups of operators that are named as the worst."""
WIDTH = 120
"""Columns of the tables at the most."""
_WORDS = ("operator", "kernel", "limit", "where")
_TIMES = ("forecast", "measured")
"""Columns of times, in ms; the last is left out where nothing is measured."""


@dataclass(frozen=True)
class Forecast:
    """Holds the forecasts of all groups of operators, in the order in which they run. ``print`` it."""

    device: Device
    operators: tuple[OperatorForecast, ...]

    def shares(self, operator: OperatorForecast) -> tuple[float, float]:
        """Returns the shares of the rates of copies and of products that a group reaches in the time that it takes."""
        rates, seconds = self.device.rates, max(operator.taken_ms, 1e-6) / 1e3
        moved = operator.cost.streamed + operator.cost.gathered
        return moved / rates.streamed / seconds, operator.cost.flops / rates.flops / seconds

    @property
    def ms(self) -> float:
        """Returns the forecast time of all groups."""
        return sum(operator.ms for operator in self.operators)

    @property
    def bound_ms(self) -> float:
        """Returns the bounds of all groups, one after the other."""
        return sum(operator.bound_ms for operator in self.operators)

    @property
    def worst(self) -> list[OperatorForecast]:
        """Returns the groups that lose the most time above their bounds, at most ten."""
        return sorted(self.operators, key=lambda operator: -operator.lost_ms)[:WORST]

    def as_json(self) -> dict[str, Any]:
        """Returns everything as values that JSON knows."""
        operators: list[dict[str, Any]] = []
        for one in self.operators:
            copy, product = self.shares(one)
            derived = {"roofline": one.roofline, "lost_ms": one.lost_ms, "copy_share": copy, "product_share": product}
            operators.append({**asdict(one), **derived})
        return {"device": asdict(self.device), "ms": self.ms, "bound_ms": self.bound_ms, "operators": operators}

    def to_json(self) -> str:
        """Returns everything as JSON."""
        return json.dumps(self.as_json(), indent=2)

    def __str__(self) -> str:
        return text(self)


def text(forecast: Forecast) -> str:
    """Returns a table of all groups, and one of the worst."""
    measured = any(one.measured_ms is not None for one in forecast.operators)
    taken = "measured" if measured else "forecast"
    table = _table(
        *("operator", "kernel", "regs", "shared", "occup.", "MB", "MFLOP"),
        *(*_TIMES[: 1 + measured], "roofline", "copy", "product"),
    )
    for (role, program), members in groupby(forecast.operators, lambda one: (one.role, one.program)):
        if table.rows:
            table.add_section()
        table.add_row(f"{role} of {program}")
        for one in members:
            work = f"{(one.cost.streamed + one.cost.gathered) / 1e6:.1f}", f"{one.cost.flops / 1e6:.1f}"
            shares = (f"{share:.0%}" for share in (one.roofline, *forecast.shares(one)))
            figures = (*work, *_times(one, measured=measured), *shares)
            lines = zip_longest(one.results, map(_kernel, one.kernels), fillvalue=())
            for number, (name, kernel) in enumerate(lines):  # each has a line of its own, the group has the first
                table.add_row(name or "", *(kernel or [""] * 4), *(figures if number == 0 else ()))
    table.add_section()
    total = [f"{forecast.ms:.3f}", f"{sum(one.taken_ms for one in forecast.operators):.3f}"][: 1 + measured]
    table.add_row("all", *[""] * 6, *total, f"{forecast.bound_ms / forecast.ms:.0%}" if forecast.ms else "")
    device, rates = forecast.device, forecast.device.rates
    return "\n".join(
        [
            textwrap.fill(
                f"Forecast for {device.name}: {device.multiprocessors} multiprocessors, copies of "
                f"{rates.streamed / 1e9:.0f} GB/s, products of {rates.flops / 1e12:.1f} TFLOP/s. Times are in ms; "
                f"roofline: bound over forecast; copy, product: shares of these rates in the {taken} time.",
                _width(),
            ),
            "",
            table.text(_width()),
            "",
            f"The operators that lose the most time, {taken} less bound:",
            worst_text([(f"{one.role} of {one.program}", one) for one in forecast.worst]),
        ]
    )


def worst_text(worst: Sequence[tuple[str, OperatorForecast]]) -> str:
    """Returns a table of groups, each with the name of the place where it runs, in the order given."""
    measured = any(one.measured_ms is not None for _, one in worst)
    table = _table("", "where", "operator", "kernel", "limit", "lost", *_TIMES[: 1 + measured], "bound")
    for place, (where, one) in enumerate(worst, 1):
        kernels = ", ".join(dict.fromkeys(kernel.name for kernel in one.kernels))
        times = (f"{one.lost_ms:.3f}", *_times(one, measured=measured), f"{one.bound_ms:.3f}")
        table.add_row(f"{place}.", where, ", ".join(one.results), kernels, one.limits, *times)
    return table.text(_width())


def _kernel(kernel: Kernel) -> tuple[str, str, str, str]:
    """Returns the columns of a kernel; bytes that a thread spills follow its registers."""
    spilled = f"+{kernel.spilled}B" if kernel.spilled else ""
    return kernel.name, f"{kernel.registers}{spilled}", f"{kernel.shared}", f"{kernel.occupancy:.0%}"


def _times(one: OperatorForecast, *, measured: bool) -> list[str]:
    taken = "" if one.measured_ms is None else f"{one.measured_ms:.3f}"
    return [f"{one.ms:.3f}", taken][: 1 + measured]


def _table(*headings: str) -> Table:
    return Table("", headings, words=_WORDS)


def _width() -> int:
    return min(terminal_width(), WIDTH)

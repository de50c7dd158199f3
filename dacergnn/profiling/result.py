"""Holds what `profile` has measured; prints, saves and draws it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dacergnn.config import Rates
from dacergnn.cost import Cost
from dacergnn.profiling.forecast import Forecast
from dacergnn.profiling.instrumentation import MeasuredProgram, write_programs

_LEAST_MS = 1e-6
"""Time that operators take at least, for rates: the clocks of devices do not see those without rows."""


@dataclass(frozen=True)
class OperatorTime:
    """Describes an operator in one call of a model, or a group of operators that a device starts together.

    Attributes:
        program: Name of the program that it belongs to.
        layers: Names of the layers in the model that run this program; none if the model is that layer.
        role: "forward" or "backward".
        kind: "segment GEMM", "outer product", "weight product" or "traversal".
        results: The arrays that it writes.
        statements: What it computes, in program form.
        runs: How often the call runs it: layers of one form share their program.
        ms: Time of all its runs in the call, the median of all measured calls.
        cost: Work of these runs as the compiler estimates it.
        bound_ms: The longest of the times that FLOPs, streamed and gathered bytes take at the rates of the machine.
        scatters: Whether the times of its calls lie too far apart for comparisons.
    """

    program: str
    layers: tuple[str, ...]
    role: str
    kind: str
    results: tuple[str, ...]
    statements: tuple[str, ...]
    runs: int
    ms: float
    cost: Cost
    bound_ms: float
    scatters: bool = False

    @property
    def place(self) -> str:
        """Returns its program, and the layers that run it, as text."""
        return f"{self.program} in {', '.join(self.layers)}" if self.layers else self.program

    @property
    def gflops(self) -> float:
        """Returns billions of floating-point operations in a second."""
        return self.cost.flops / max(self.ms, _LEAST_MS) / 1e6

    @property
    def gbytes(self) -> float:
        """Returns billions of bytes, streamed and gathered, in a second."""
        return (self.cost.streamed + self.cost.gathered) / max(self.ms, _LEAST_MS) / 1e6

    @property
    def roofline(self) -> float:
        """Returns the share of the roofline: 1 at the rates of the machine, more if a kernel beats them."""
        return self.bound_ms / max(self.ms, _LEAST_MS)

    @property
    def excess_ms(self) -> float:
        """Returns the time above the bound."""
        return self.ms - self.bound_ms

    def as_json(self) -> dict[str, Any]:
        """Returns all fields, and what follows from them."""
        derived = {"gflops": self.gflops, "gbytes": self.gbytes, "roofline": self.roofline}
        return {**asdict(self), **derived}


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
        return self.bound_ms / max(self.ms, _LEAST_MS)

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
        from dacergnn.profiling.table import text

        shown = text(self, wide=wide)
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
        from dacergnn.profiling.figure import save

        save({title: self}, Path(path))

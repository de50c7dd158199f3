"""Holds what `profile` has measured of an operator."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from dacergnn.cost import Cost

LEAST_MS = 1e-6
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
        return self.cost.flops / max(self.ms, LEAST_MS) / 1e6

    @property
    def gbytes(self) -> float:
        """Returns billions of bytes, streamed and gathered, in a second."""
        return (self.cost.streamed + self.cost.gathered) / max(self.ms, LEAST_MS) / 1e6

    @property
    def roofline(self) -> float:
        """Returns the share of the roofline: 1 at the rates of the machine, more if a kernel beats them."""
        return self.bound_ms / max(self.ms, LEAST_MS)

    @property
    def excess_ms(self) -> float:
        """Returns the time above the bound."""
        return self.ms - self.bound_ms

    def as_json(self) -> dict[str, Any]:
        """Returns all fields, and what follows from them."""
        derived = {"gflops": self.gflops, "gbytes": self.gbytes, "roofline": self.roofline}
        return {**asdict(self), **derived}

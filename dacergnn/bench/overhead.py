"""What one call of a compiled layer costs besides its kernels, on a graph of ten edges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from dacergnn.bench import ours
from dacergnn.bench.candidate import unwrapped
from dacergnn.bench.errors import BenchmarkError
from dacergnn.bench.measure import time_call
from dacergnn.bench.parameters import make_parameters
from dacergnn.bench.worker import tiny_problem


@dataclass(frozen=True)
class Overhead:
    """Medians in microseconds."""

    model: str
    call_us: float
    """The layer called as a module, without gradients."""
    kernels_us: float
    """The compiled function alone, on the same arrays."""

    @property
    def overhead_us(self) -> float:
        return self.call_us - self.kernels_us


def measure_overhead(model: str, hidden: int = 64, repeat: int = 2000) -> Overhead:
    """Call and kernels in alternating rounds on one thread.

    One thread, because waking others for ten edges would be counted as kernel time or overhead by chance.
    """
    problem = tiny_problem(hidden)
    built = ours.candidate(model).build(problem, make_parameters(model, problem), unwrapped)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            built.forward()
            kernels = kernel_call(built.layer)
            calls: list[float] = []
            bare: list[float] = []
            for _ in range(repeat):
                calls.append(time_call(built.forward))
                bare.append(time_call(kernels))
    finally:
        torch.set_num_threads(threads)
    return Overhead(model, 1e6 * median(calls), 1e6 * median(bare))


def kernel_call(layer: Any) -> Callable[[], Any]:
    """The layer's compiled function bound to the arrays of its last call."""
    bind = getattr(layer, "bound_kernels", None)
    if bind is None:
        raise BenchmarkError(f"overhead: {type(layer).__name__} does not expose its compiled function")
    return bind()

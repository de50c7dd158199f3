"""Measures what one call of a compiled layer costs besides its kernels, on a graph of ten edges."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from benchmarks.relational import ours
from benchmarks.relational.candidate import unwrapped
from benchmarks.relational.parameters import make_parameters
from benchmarks.relational.problem import tiny_problem
from dacergnn.bench.measure import Timing, time_call
from dacergnn.errors import DacergnnError
from dacergnn.runtime.executable import Prepared


@dataclass(frozen=True)
class Overhead:
    """Holds medians in microseconds."""

    model: str
    call_us: float
    """The layer called as a module, without gradients."""
    kernels_us: float
    """The compiled C function alone, without the cost of passing its arguments."""
    scatters: bool = False

    @property
    def overhead_us(self) -> float:
        return self.call_us - self.kernels_us


def measure_overhead(model: str, hidden: int = 64, repeat: int = 2000) -> Overhead:
    """Times the call and the kernels in alternating rounds on one thread.

    With more threads, waking them for ten edges would be counted as kernel time or as overhead by chance.
    """
    problem = tiny_problem(hidden)
    built = ours.candidate(model).build(problem, make_parameters(model, problem), unwrapped)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            built.forward()
            kernels, nothing = kernel_calls(built.layer)
            timings = [Timing(), Timing(), Timing()]
            for _ in range(repeat):
                for call, timing in zip((built.forward, kernels, nothing), timings, strict=True):
                    timing.samples.append(time_call(call))
    finally:
        torch.set_num_threads(threads)
    whole, bare, empty = (1e3 * timing.ms for timing in timings)
    return Overhead(model, whole, bare - empty, timings[0].scatters or timings[1].scatters)


def kernel_calls(layer: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Returns a call of the C function on arrays of the last call's shapes, and one of a C function that does nothing.

    The first puts parts of arrays together, as in a call. The second ignores as many arguments: it costs as much as
    passing them, which is part of the overhead, and not of the kernels.
    """
    if getattr(layer, "last_call", None) is None:
        raise DacergnnError(f"overhead: {type(layer).__name__} is no compiled layer that has been called")
    compiled, graph = layer.last_call
    executable: Any = compiled.inference()
    prepared: Any = next(p for p in graph.derived.values() if isinstance(p, Prepared) and p.inputs.fit is not None)
    arguments, packed, workspace = executable.frame(prepared)
    results = [(position, shape) for position, shape, _ in prepared.outputs]
    shapes = [*zip(prepared.inputs.positions, prepared.inputs.fit.shapes, strict=True), *results]
    arrays = [torch.zeros(shape) for _, shape in shapes]
    for (position, _), array in zip(shapes, arrays, strict=True):
        arguments[position] = array.data_ptr()
    for position, result in prepared.hosted:
        arguments[position] = arguments[result]
    arguments[executable.end] = prepared.inputs.fit.pieces_address
    workspace.zero_()
    kept = (arguments, arrays, workspace, prepared)
    function: Any = executable._function
    nothing: Any = ctypes.CDLL(None)["getppid"]  # a fresh object, so its types can be set
    nothing.argtypes, nothing.restype = function.func.argtypes, None

    def run(call: Any = function, _: Any = kept) -> None:
        call(packed)

    return run, lambda: run(partial(nothing, *function.args))

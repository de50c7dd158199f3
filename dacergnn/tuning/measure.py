"""Runs compiled programs on graphs, with arrays of random numbers, and measures their times."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import hypot, prod
from statistics import fmean, median, pstdev

import torch
from torch import Tensor

from dacergnn.graph import HeteroGraph
from dacergnn.runtime.cuda_device import allows_tf32
from dacergnn.runtime.executable import Executable
from dacergnn.runtime.lower import lower
from dacergnn.runtime.plan_cache import LoweredProgram
from dacergnn.sdfg_passes import Compilation
from dacergnn.target import find

INTERRUPTED = 2.0
"""A run that takes longer than so many times the median has been interrupted, and counts as the median."""
LEAST_RUNS = 3
"""Programs that are slow for a budget run so often at least."""
_ALIGNED = 16
"""Arrays start at multiples of so many elements."""


@dataclass(frozen=True)
class Times:
    """Holds the mean and the standard deviation of the seconds of a program's runs, and their number."""

    mean: float
    deviation: float
    runs: int

    @classmethod
    def together(cls, parts: Iterable[Times | None]) -> Times:
        """Returns the times of a forward and of its backward, if there is one, as those of one program."""
        own = [part for part in parts if part is not None]
        return cls(sum(part.mean for part in own), hypot(*(part.deviation for part in own)), own[0].runs)

    @classmethod
    def of(cls, samples: Sequence[float]) -> Times:
        """Returns mean and deviation of the seconds of single runs."""
        middle = median(samples)
        kept = [s if s <= INTERRUPTED * middle else middle for s in samples]
        return cls(fmean(kept), pstdev(kept), len(kept))


def now(device: torch.device) -> float:
    """Returns a time in seconds at which all work on the current stream of a device is done."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
    return time.perf_counter()


class RandomArrays:
    """Cuts arrays of random numbers between -1/2 and 1/2 from one array.

    Programs that are compared take the same numbers under the same names: operations on very small numbers are slow.
    """

    def __init__(self, elements: int, seed: int = 0, device: torch.device | str = "cpu") -> None:
        generator = torch.Generator().manual_seed(seed)
        self._numbers = (torch.rand(elements, generator=generator) - 0.5).to(device)
        self._next = 0
        self._taken: dict[tuple[str, tuple[int, ...]], Tensor] = {}

    def start_over(self) -> None:
        """Forgets the arrays of all names."""
        self._next = 0
        self._taken.clear()

    def take(self, name: str, *shape: int) -> Tensor:
        """Returns the array of a name and a shape.

        A new one is the next part of the numbers, from the start again where too few are left.
        """
        if (name, shape) not in self._taken:
            self._taken[name, shape] = self._cut(shape)
        return self._taken[name, shape]

    def _cut(self, shape: tuple[int, ...]) -> Tensor:
        size = prod(shape)
        if size > len(self._numbers):
            self._numbers = self._numbers.repeat(-(-size // len(self._numbers)))
        if self._next + size > len(self._numbers):
            self._next = 0
        start, self._next = self._next, self._next + -(-size // _ALIGNED) * _ALIGNED
        return self._numbers[start : start + size].view(shape)


class Runnable:
    """Holds a compiled program: a forward, and a backward that overwrites the arrays which the forward saved for it.

    Args:
        results: How many outputs of the forward are results of the program; the others are saved for the backward.
        architectures: Compute capabilities to build for; none for the processor.
    """

    def __init__(self, compilation: Compilation, results: int, architectures: tuple[int, ...] = ()) -> None:
        self.architectures = architectures
        backward = None if compilation.backward is None else lower(compilation.backward, compilation.saved)
        self.program = LoweredProgram(
            lower(compilation.forward, compilation.saved), backward, results, tuple(compilation.wrt)
        )

    @property
    def code(self) -> list[tuple[str, str]]:
        """Returns names and code for `Executable.build`; `loaded` builds what is missing."""
        return [(part.name, part.source(tf32=part.has_tf32 and allows_tf32())) for part in self.program.parts]

    @cached_property
    def loaded(self) -> tuple[Executable, Executable | None]:
        """Returns forward and backward."""
        forward, backward = self.program.forward, self.program.backward
        load = find(forward.implementation).executable_class()
        load.build(self.code, self.architectures)
        first = load(forward, self.program.results, self.architectures)
        return first, None if backward is None else load(backward, None, self.architectures)


class TimedStep:
    """Runs a program on a graph with arrays of random numbers; a call returns the seconds of its parts."""

    def __init__(self, runnable: Runnable, graph: HeteroGraph, arrays: RandomArrays) -> None:
        self._forward, self._backward = runnable.loaded
        self._device = graph.device
        self._prepared = self._forward.prepare(graph)
        taken = self._prepared.inputs.names
        spaces = self._forward.lowered.spaces
        dtype = self._forward.dtype
        made = {n: arrays.take(n, graph.size(spaces[n][0]), *spaces[n][1]).to(dtype) for n in taken}
        self._inputs = [made[name] for name in taken]
        self._backward_inputs: list[Tensor | int] = []
        """Inputs of the backward: arrays, or positions among the results of the forward."""
        if self._backward is not None:
            self._backward_prepared = self._backward.prepare(
                graph, giver=self._forward if self._forward.saved else None
            )
            spaces = self._backward.lowered.spaces
            names = self._backward_prepared.inputs.names
            for name, (kind, i) in zip(names, runnable.program.sources(taken), strict=True):
                if kind == "gradient":
                    space, shape = spaces[name]
                    made[name] = arrays.take(name, graph.size(space), *shape).to(dtype)
                self._backward_inputs.append(i if kind == "output" else made[name])

    def __call__(self) -> tuple[float, float | None]:
        """Returns the seconds of the forward, and of the backward if there is one."""
        start = now(self._device)
        outputs, lease = self._forward.run(self._prepared, self._inputs)
        forward = now(self._device) - start
        if self._backward is None:
            return forward, None
        inputs = [outputs[source] if isinstance(source, int) else source for source in self._backward_inputs]
        start = now(self._device)
        self._backward.run(self._backward_prepared, inputs, lease)
        return forward, now(self._device) - start


def build_runnables(runnables: Sequence[Runnable]) -> None:
    """Builds all missing programs in parallel, each code once; all are for the same devices."""
    parts = [*dict.fromkeys(part for runnable in runnables for part in runnable.code)]
    for first in runnables[:1]:
        find(first.program.forward.implementation).executable_class().build(parts, first.architectures)


def measure(
    steps: Mapping[int, TimedStep], repeat: int, limit: float = float("inf"), budget: float = float("inf")
) -> dict[int, tuple[Times, Times | None]]:
    """Returns the times of forward and backward of numbered programs; they run in turns, ``repeat`` times each.

    Every program runs once before. Where that took more than ``limit`` seconds in the mean, nothing is measured.

    Args:
        budget: Seconds for all runs, which are fewer than ``repeat`` where these would take longer.
    """
    samples: dict[int, list[tuple[float, float | None]]] = {number: [] for number in steps}
    first = [sum(part for part in step() if part is not None) for step in steps.values()]
    if sum(first) > limit * len(first):
        return {}
    if sum(first) * repeat > budget:
        repeat = min(max(int(budget / sum(first)), LEAST_RUNS), repeat)
    enabled = gc.isenabled()
    gc.disable()
    try:
        for _ in range(repeat):
            for number, step in steps.items():
                samples[number].append(step())
    finally:
        if enabled:
            gc.enable()

    def times(runs: list[tuple[float, float | None]]) -> tuple[Times, Times | None]:
        back = [b for _, b in runs if b is not None]
        return Times.of([f for f, _ in runs]), Times.of(back) if back else None

    return {number: times(runs) for number, runs in samples.items()}


def seconds(steps: Mapping[int, TimedStep], repeat: int, budget: float = float("inf")) -> dict[int, float]:
    """Returns the mean seconds of numbered programs, forward and backward together.

    Args:
        budget: Seconds for all runs (`measure`).
    """
    times = measure(steps, repeat, budget=budget)
    return {n: Times.together(parts).mean for n, parts in times.items()}

"""Running compiled programs on graphs, on arrays of random numbers, to see how long they take."""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from statistics import fmean, median, pstdev

import torch
from torch import Tensor

from dacergnn.graph import HeteroGraph
from dacergnn.native.build import build_all
from dacergnn.runtime.executable import Executable
from dacergnn.runtime.lower import lower
from dacergnn.runtime.plan_cache import LoweredProgram
from dacergnn.sdfg_passes import Compilation

INTERRUPTED = 2.0
"""A run that takes so many times the median has been interrupted, and counts no more than the median."""
_ALIGNED = 16
"""Elements between the starts of arrays are a multiple of this."""


@dataclass(frozen=True)
class Times:
    """Seconds of the runs of a program: mean and standard deviation."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Times:
        """Those of single runs."""
        middle = median(samples)
        kept = [s if s <= INTERRUPTED * middle else middle for s in samples]
        return cls(fmean(kept), pstdev(kept))


class RandomArrays:
    """Arrays of random numbers between -1/2 and 1/2, cut from one that is made once: their values do not matter."""

    def __init__(self, elements: int, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self._numbers = torch.rand(elements, generator=generator) - 0.5
        self._next = 0

    def take(self, *shape: int) -> Tensor:
        """Another part of them, next to the last one as long as there is room."""
        size = prod(shape)
        if size > len(self._numbers):
            self._numbers = self._numbers.repeat(-(-size // len(self._numbers)))
        if self._next + size > len(self._numbers):
            self._next = 0
        start, self._next = self._next, self._next + -(-size // _ALIGNED) * _ALIGNED
        return self._numbers[start : start + size].view(shape)


class Runnable:
    """A compiled program: a forward, and a backward that overwrites what the forward has saved for it.

    Args:
        results: How many outputs of the forward are those of the program.
    """

    def __init__(self, compilation: Compilation, results: int) -> None:
        backward = None if compilation.backward is None else lower(compilation.backward)
        self.program = LoweredProgram(lower(compilation.forward), backward, results, tuple(compilation.wrt))

    @property
    def code(self) -> list[tuple[str, str]]:
        """Returns what `build_all` is to build; loading builds what is not there."""
        return [(part.name, part.code) for part in self.program.parts]

    @cached_property
    def loaded(self) -> tuple[Executable, Executable | None]:
        """Forward and backward."""
        build_all(self.code)
        forward, backward = self.program.forward, self.program.backward
        return Executable(forward, self.program.results), None if backward is None else Executable(backward)


class TimedStep:
    """A program on a graph and float32 arrays of random numbers, run by calls, which give the seconds of its parts."""

    def __init__(self, runnable: Runnable, graph: HeteroGraph, arrays: RandomArrays) -> None:
        self._forward, self._backward = runnable.loaded
        saves = len(self._forward.lowered.outputs) > self._forward.results
        self._giver = self._forward if saves else None
        self._prepared = self._forward.prepare(graph)
        taken = self._prepared.inputs.names
        spaces = self._forward.lowered.spaces
        made = {n: arrays.take(graph.size(spaces[n][0]), *spaces[n][1]) for n in taken}
        self._inputs = [made[name] for name in taken]
        self._backward_inputs: list[Tensor | int] = []
        """Tells what the backward takes: arrays, or the positions of outputs of the forward."""
        if self._backward is not None:
            self._backward_prepared = self._backward.prepare(graph, giver=self._giver)
            spaces = self._backward.lowered.spaces
            names = self._backward_prepared.inputs.names
            for name, (kind, i) in zip(names, runnable.program.sources(taken), strict=True):
                if kind == "gradient":
                    space, shape = spaces[name]
                    made[name] = arrays.take(graph.size(space), *shape)
                self._backward_inputs.append(i if kind == "output" else made[name])

    def __call__(self) -> tuple[float, float | None]:
        """Seconds of the forward, and of the backward if there is one."""
        start = time.perf_counter()
        outputs, lease = self._forward.run(self._prepared, self._inputs)
        forward = time.perf_counter() - start
        if self._backward is None:
            return forward, None
        if lease is not None:
            outputs = [*outputs, *self._forward.saved(self._prepared, lease)]
        inputs = [outputs[source] if isinstance(source, int) else source for source in self._backward_inputs]
        start = time.perf_counter()
        self._backward.run(self._backward_prepared, inputs, lease if self._giver is not None else None)
        return forward, time.perf_counter() - start


def build_runnables(runnables: Sequence[Runnable]) -> None:
    """Build all that is not there yet, at the same time and each code once."""
    build_all([*dict.fromkeys(part for runnable in runnables for part in runnable.code)])


def measure(
    steps: Mapping[int, TimedStep], repeat: int, limit: float = float("inf")
) -> dict[int, tuple[Times, Times | None]]:
    """Times of forward and backward of numbered programs, run in turns, ``repeat`` times each after a first time.

    Nothing is measured where the first time took more than ``limit`` seconds a program.
    """
    samples: dict[int, list[tuple[float, float | None]]] = {number: [] for number in steps}
    first = [sum(part for part in step() if part is not None) for step in steps.values()]
    if sum(first) > limit * len(first):
        return {}
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


def seconds(steps: Mapping[int, TimedStep], repeat: int) -> dict[int, float]:
    """Mean seconds of numbered programs, forward and backward together."""
    return {n: sum(part.mean for part in parts if part is not None) for n, parts in measure(steps, repeat).items()}

"""Samples for performance models: programs on graphs with their measured times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dacergnn.tuning.features import Floats, Indices, ProgramFeatures


@dataclass(frozen=True)
class Sample:
    """Holds a measured program.

    Args:
        program: Its features on the graph that it ran on.
        seconds: Mean time, positive.
        deviation: Standard deviation of the measurements in seconds.
        layer: Names what the program computes.
        graph: Names the graph.
    """

    program: ProgramFeatures
    seconds: float
    deviation: float
    layer: str
    graph: str

    @property
    def group(self) -> tuple[str, ...]:
        """Returns the layer and the graph; a search looks for the fastest program of a group."""
        return self.layer, self.graph


@dataclass(frozen=True)
class Measured(Sample):
    """Holds a sample with what is known of its origin.

    Args:
        family: Layers of one family resemble each other.
        runs: Number of runs whose mean time it is.
        machine: Names the processor, and the number of threads.
    """

    family: str
    runs: int
    machine: str

    @property
    def group(self) -> tuple[str, ...]:
        """Returns the layer, the graph and the machine."""
        return self.layer, self.graph, self.machine


@dataclass(frozen=True)
class Joined:
    """Holds several programs as one graph without edges between them; `owner` is the program of each operator."""

    invariant: Floats
    dependent: Floats
    edges: Indices
    owner: Indices
    count: int
    """Number of programs."""


def joined(programs: Sequence[ProgramFeatures]) -> Joined:
    """Puts programs, at least one, side by side."""
    counts = [len(p.seconds) for p in programs]
    starts = np.cumsum([0, *counts[:-1]])
    return Joined(
        np.concatenate([p.invariant for p in programs]),
        np.concatenate([p.dependent for p in programs]),
        np.concatenate([p.edges + start for p, start in zip(programs, starts, strict=True)]),
        np.repeat(np.arange(len(programs)), counts),
        len(programs),
    )

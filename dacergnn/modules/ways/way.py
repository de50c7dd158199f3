"""Says what a way to run programs is; `programs.py` lists the ways that there are."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from dacergnn.graph import HeteroGraph
from dacergnn.runtime.stacks import Stacks


class Way(Protocol):
    """Runs calls of one program."""

    @property
    def takes_parts(self) -> bool:
        """Tells whether calls may bring the parts of arrays that ``stacks`` would join."""
        ...

    def run(self, graph: HeteroGraph, inputs: list[Tensor], stacks: Stacks | None = None) -> tuple[Tensor, ...] | None:
        """Returns the results of a call, which can be differentiated; None if the call needs another way.

        Args:
            inputs: The arrays that builds take, in order; without those that ``stacks`` makes, and then its parts.
            stacks: Joins parts to arrays. It is given only where no gradients are needed.
        """
        ...

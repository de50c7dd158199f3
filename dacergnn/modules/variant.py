"""Defines the builds of a program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dacergnn.modules.building import building
from dacergnn.runtime.executable import Executable
from dacergnn.runtime.plan_cache import LoweredProgram
from dacergnn.sdfg_passes import Compilation

Mask = tuple[bool, ...]
"""Tells of each input whether it needs gradients."""


@dataclass(frozen=True)
class Variant:
    """Holds the executables for one set of inputs that need gradients, and how their arrays correspond.

    The forward returns ``results`` outputs of the program, then the saved arrays. The backward's inputs are
    the saved arrays, and what ``sources`` picks from gradients, inputs and results; ``slots`` are the inputs
    that its outputs belong to. ``kept`` are the inputs that any program of gradients reads, ``read`` the results
    that the backward reads.
    """

    program: LoweredProgram
    forward: Executable
    backward: Executable | None
    sources: tuple[tuple[str, int], ...]
    slots: tuple[int, ...]
    kept: frozenset[int]
    read: frozenset[int]
    compile_again: Callable[[], Compilation]
    asked: frozenset[str] = frozenset()
    """Holds the questions that the user's plan has answered."""

    @property
    def results(self) -> int:
        """Returns how many outputs of the forward are results of the program."""
        return self.program.results

    @property
    def giver(self) -> Executable | None:
        """Returns the forward if it saves arrays, which the backward reads, else None."""
        return self.forward if self.forward.saved else None

    @property
    def compilation(self) -> Compilation:
        """Returns the SDFGs behind the executables, and those after each pass; runs the passes to get them."""
        with building():
            return self.compile_again()

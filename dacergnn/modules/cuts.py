"""Cuts a program into parts, for ranges of destinations and for processes, and compiles the parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from dacergnn.config import Config
from dacergnn.errors import ProgramError
from dacergnn.graph.profile import Profile
from dacergnn.modules.building import building
from dacergnn.sdfg_passes import Context
from dacergnn.sdfg_passes.destination_ranges import RangeProgram, cut
from dacergnn.sdfg_passes.partial_sums import SumsProgram, cut_sums
from dacergnn.sdfg_passes.pipeline import Pipeline
from dacergnn.target import find

if TYPE_CHECKING:
    from dacergnn.modules.compiled import CompiledProgram


class Cuts:
    """Holds the parts of one program.

    Args:
        program: The program of the whole graph.
        config: Its options, with the limit of memory.
        compiled: Compiles the text of a part for an index type, with other values of options.
    """

    def __init__(self, program: CompiledProgram, config: Config, compiled: Callable[..., CompiledProgram]) -> None:
        self.program, self.config, self._compiled = program, config, compiled
        self._parts: dict[tuple[str, torch.dtype, bool], CompiledProgram] = {}

    def ranges(self) -> RangeProgram:
        """Returns a program for all nodes and one for a range of destinations.

        Raises:
            ProgramError: The program cannot be cut so.
        """
        program = self.program
        if program.sparse:
            raise ProgramError(f"{program.sparse[0]} is sparse.")
        return self._ranges(Context(program.profile, program.config.machine, find(program.config.implementation).name))

    def ranges_alike(self, profile: Profile) -> RangeProgram:
        """Returns what `ranges` returns, made by a profile alone, so that it is the same on all machines."""
        return self._ranges(Context(profile))

    def _ranges(self, context: Context) -> RangeProgram:
        with building():
            return cut(self.program.sdfg, Pipeline.of(self.program.config).forward, context)

    def sums(self) -> SumsProgram:
        """Returns a program of sums for the owners of sources, and one of what follows.

        Raises:
            ProgramError: The program has no such sums.
        """
        with building():
            return cut_sums(self.program.sdfg)

    def of_text(self, text: str, index: torch.dtype, *, limited: bool = False) -> CompiledProgram:
        """Returns the program of a part, whose choices are those for the whole graph.

        Args:
            limited: Whether it keeps to the limit of memory by itself.
        """
        key = text, index, limited
        if key not in self._parts:
            memory = {"memory": self.config.memory, "scratch": self.config.scratch} if limited else {}
            made = self._compiled(text, index, **memory)
            made.title = self.program.title
            self._parts[key] = made
        return self._parts[key]

"""Cuts a program into parts, for ranges of destinations and for processes, and compiles the parts."""

from __future__ import annotations

import torch

from dacergnn.errors import ProgramError
from dacergnn.graph.profile import Profile
from dacergnn.modules.building import building
from dacergnn.modules.compiled import CompiledProgram
from dacergnn.sdfg_passes import Context
from dacergnn.sdfg_passes.destination_ranges import RangeProgram, cut
from dacergnn.sdfg_passes.partial_sums import SumsProgram, cut_sums
from dacergnn.sdfg_passes.pipeline import Pipeline
from dacergnn.target import find


class Cuts:
    """Holds the parts of one program, which is that of the whole graph."""

    def __init__(self, program: CompiledProgram) -> None:
        self.program = program
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
            config = self.program.step_config
            memory = {"memory": config.memory, "scratch": config.scratch} if limited else {}
            made = self.program.of_text(text, index, **memory)
            made.title = self.program.title
            self._parts[key] = made
        return self._parts[key]

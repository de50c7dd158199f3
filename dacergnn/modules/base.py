"""Base of everything that runs compiled programs: reports, and SDFGs in files."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any

import torch

from dacergnn.config import Config
from dacergnn.errors import UnsupportedCallError, VerificationError
from dacergnn.frontends import ProgramSource
from dacergnn.graph import HeteroGraph
from dacergnn.graph.profile import profile_of
from dacergnn.graph.traced import encodings_of
from dacergnn.modules.compiled import CompiledProgram
from dacergnn.modules.cuda_graphs import Captures
from dacergnn.modules.loaded import LoadedProgram
from dacergnn.modules.programs import compiled_program
from dacergnn.modules.sdfg_files import RECORD, read_record
from dacergnn.modules.writes import Writes


class RunsPrograms:
    """Holds the programs of a layer, by what they depend on, and the calls that repeat; remembers the last call.

    Args:
        config: Says how programs are compiled, and how calls run them.
    """

    refusal: str | None = None
    """The reason for which the last uncompiled call ran as it was."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.compiled_programs: dict[tuple[Any, ...], CompiledProgram] = {}
        """The programs so far, by the properties of calls that they depend on."""
        self.captures = self._new_captures()
        """The calls that are replayed as CUDA graphs; None without ``cuda_graph``."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """Returns the name of the layer that is computed."""

    @property
    def _shares_plan(self) -> bool:
        """Returns whether other programs may ask some of the questions that a plan in ``config`` answers."""
        return False

    @property
    def notes(self) -> list[str | None]:
        """Returns notes on how calls are repeated, for reports."""
        return [] if self.captures is None else [self.captures.summary]

    @property
    def last_call(self) -> tuple[CompiledProgram, HeteroGraph] | None:
        """Returns the compiled program and the graph of the last call; None before the first one."""
        return self.__dict__.get("_last")

    def remember(self, compiled: CompiledProgram, graph: HeteroGraph) -> None:
        """Notes the program and the graph of a call that begins."""
        self.__dict__["_last"] = (compiled, graph)
        if compiled.step_config.memory is None:
            compiled.writes = self.__dict__["_writes"] = self.__dict__.get("_writes") or Writes()

    def compiled(
        self, program: ProgramSource, dtype: torch.dtype, graph: HeteroGraph, sparse: frozenset[str] = frozenset()
    ) -> CompiledProgram:
        """Returns the compiled form of a call's program, whose choices are made for the first graph of its kind.

        Args:
            sparse: The arrays of the call that are sparse.
        """
        index, device = graph.index_dtype, graph.device.type
        key = (program, dtype, index, graph.single_typed, device, sparse)
        compiled = self.compiled_programs.get(key)
        if compiled is None:
            self.check_loaded(program)
            profile = profile_of(self._like(graph), [known.profile for known in self.compiled_programs.values()])
            config, shared = self.config.on(device), self._shares_plan
            compiled = compiled_program(program, dtype, index, config, profile, sparse, shared=shared)
            compiled.title = self.kind
            if encodings_of(graph) is None:  # torch.export refuses modules whose attributes change
                self.compiled_programs[key] = compiled
        return compiled

    def _like(self, graph: HeteroGraph) -> HeteroGraph:
        """Returns the graph whose sizes decide choices for ``graph``."""
        return graph

    def forget_calls(self) -> None:
        """Forgets repeated calls, so that the next call looks up its program again even if it is like one before."""
        self.captures = self._new_captures()

    def _new_captures(self) -> Captures | None:
        return Captures(self, self.config.check_graph) if self.config.cuda_graph else None

    def save_sdfg(self, folder: str | Path) -> list[Path]:
        """Writes the SDFGs of the steps of the last call's program: ``00_frontend.sdfg``, ...; returns their paths.

        They belong to the build with the most gradients. Steps that change nothing have no file. The files with the
        highest number, forward and backward, are those that run; `load_sdfg` reads them after changes. The page
        ``steps.html`` beside them shows every step and what it changed.

        Raises:
            UnsupportedCallError: The module has not been called yet.
        """
        return self._last_program("save_sdfg").save(Path(folder))

    def load_sdfg(self, folder: str | Path) -> list[Path]:
        """Runs changed SDFGs of a folder that `save_sdfg` wrote, in all calls like the one that they were saved from.

        Names, row spaces, shapes and element types of inputs, results and gradients must stay as they were saved.
        The computation itself is not checked. It has first derivatives only.

        Args:
            folder: The folder that `save_sdfg` wrote to. The files with the highest number are read.

        Returns:
            The paths that were read.

        Raises:
            UnsupportedCallError: The module has not been called yet.
            VerificationError: A file is missing, broken, of another program or version, or does not fit the program.
        """
        self._last_program("load_sdfg")
        path = Path(folder)
        record = read_record(path)
        known = next((program for program in self.compiled_programs.values() if program.key == record.program), None)
        if known is None:
            raise VerificationError(
                f"{path / RECORD}: the SDFGs are not of a program that this {self.kind} has run; load what this layer "
                "has saved, after a call like that before it was saved."
            )
        self._exchange(known, LoadedProgram(known, path, record))
        for key, program in [*self.compiled_programs.items()]:
            if program.program == known.program and program.key != known.key:
                del self.compiled_programs[key]  # its calls are refused from now on
        return [path / part.file for part in record.parts.values()]

    def unload_sdfg(self) -> None:
        """Runs the compiled programs again, in place of all SDFGs that `load_sdfg` has read."""
        for program in [*self.compiled_programs.values()]:
            if isinstance(program, LoadedProgram):
                self._exchange(program, program.original)

    @property
    def loaded_programs(self) -> dict[Any, LoadedProgram]:
        """Returns the programs that `load_sdfg` has read, by the properties of calls that they depend on."""
        return {key: program for key, program in self.compiled_programs.items() if isinstance(program, LoadedProgram)}

    def check_loaded(self, program: ProgramSource) -> None:
        """Raises DacergnnError if SDFGs of a program were loaded for other calls, since this call would ignore them."""
        for loaded in self.loaded_programs.values():
            if loaded.program == program:
                loaded.refuse_others()

    def _last_program(self, method: str) -> CompiledProgram:
        if self.last_call is None and self.refusal is not None:
            raise UnsupportedCallError(f"{method}: this {self.kind} runs uncompiled: {self.refusal}")
        if self.last_call is None:
            raise UnsupportedCallError(
                f"{method}: this {self.kind} has not been called yet; call it once before. Models that run as one "
                "have a save_sdfg for all of their layers."
            )
        return self.last_call[0]

    def _exchange(self, before: CompiledProgram, after: CompiledProgram) -> None:
        programs = self.compiled_programs
        programs.update({key: after for key, program in programs.items() if program is before})
        if self.last_call is not None and self.last_call[0] is before:
            self.remember(after, self.last_call[1])
        self.forget_calls()

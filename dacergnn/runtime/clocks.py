"""Measures the operators of loaded programs, by builds that read a clock before and behind each group of operators.

On the CPU an operator is a group of its own. On a device a group starts together, and events in the stream are its
clock. Such a build replaces the ordinary one only while somebody measures, so that other calls cost nothing more.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import dace
from torch import Tensor

from dacergnn.errors import DacergnnError
from dacergnn.graph import HeteroGraph
from dacergnn.library_nodes.node import GraphOperator
from dacergnn.runtime.executable import Executable, Prepared
from dacergnn.runtime.lower import Lowered, lower, operator_groups
from dacergnn.runtime.pool import Lease


@dataclass(frozen=True)
class Reading:
    """Holds what was measured in some runs: their start, their graphs, and the seconds of each group in all of them."""

    start: float
    graphs: tuple[HeteroGraph, ...]
    seconds: tuple[float, ...]


@dataclass(frozen=True)
class ProgramWithClocks:
    """Holds the code of a program with clocks, and the operators of each group, which are nodes of ``sdfg``."""

    lowered: Lowered
    sdfg: dace.SDFG
    groups: list[list[GraphOperator]]

    @staticmethod
    def of(sdfg: dace.SDFG, saved: Collection[str]) -> ProgramWithClocks:
        """Lowers an SDFG; ``saved`` are inputs and outputs that only connect a forward with its backward."""
        return ProgramWithClocks(lower(sdfg, saved, clocked=True), *operator_groups(sdfg, saved))


class Clocked:
    """Measures the calls of a loaded program, by its code with clocks; this is built for the first of these calls.

    Args:
        executable: The loaded program.
        make: Makes the same program with clocks.
    """

    def __init__(self, executable: Executable, make: Callable[[], ProgramWithClocks]) -> None:
        self.executable = executable
        self._make = make
        self._graphs: list[HeteroGraph] = []
        self._start = 0.0

    @cached_property
    def program(self) -> ProgramWithClocks:
        """Returns the program with clocks.

        Raises:
            DacergnnError: It differs from the loaded program in more than clocks.
        """
        made, own = self._make(), self.executable.lowered
        if replace(made.lowered, code="") != replace(own, code=""):
            raise DacergnnError(
                f"{own.name}: its operators cannot be measured, since the passes have not repeated their choices; "
                "optimize the model with a plan, Config(plan=dacergnn.explain(model).plan)."
            )
        return made

    @cached_property
    def _twin(self) -> Executable:
        own = self.executable
        return type(own)(self.program.lowered, own.results, own.architectures)

    @contextmanager
    def installed(self) -> Generator[None]:
        """Measures calls of the executable as long as the context lasts."""
        self.executable.run = self._run
        try:
            yield
        finally:
            del self.executable.run

    def _run(
        self,
        prepared: Prepared,
        inputs: list[Tensor],
        giver_lease: Lease | None = None,
        shapes: Sequence[tuple[int, ...]] | None = None,
    ) -> tuple[list[Tensor], Lease | None]:
        graph, twin = prepared.graph(), self._twin
        assert graph is not None  # the caller holds it
        if not self._graphs:
            self._start = time.perf_counter()
        self._graphs.append(graph)
        return twin.run(prepared, inputs, giver_lease, shapes)

    def read(self) -> Reading:
        """Returns what was measured since the last time.

        Raises:
            DacergnnError: The clocks of a device have failed.
        """
        if not self._graphs:
            return Reading(self._start, (), ())
        count = len(self.program.groups)
        seconds = (ctypes.c_double * count)()
        read = self._twin.library.read_ticks
        read.argtypes, read.restype = [ctypes.c_void_p, ctypes.c_int64], ctypes.c_char_p
        failure: bytes | None = read(seconds, count)
        if failure is not None:
            raise DacergnnError(f"{self.executable.lowered.name}: its clocks cannot be read: {failure.decode()}")
        graphs, self._graphs = tuple(self._graphs), []
        return Reading(self._start, graphs, tuple(seconds))

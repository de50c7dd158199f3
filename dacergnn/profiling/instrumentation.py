"""Writes measured programs with their times beside them, as DaCe and its extension for VS Code take them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import dace
from dace.codegen.instrumentation.report import DurationEvent, InstrumentationReport
from dace.utils import find_new_name

from dacergnn.library_nodes import GraphOperator
from dacergnn.viewer import write_sdfg


@dataclass(frozen=True)
class MeasuredProgram:
    """Holds an SDFG, its operators in groups that run together, and their times.

    ``calls`` are the measured calls of the model: when the program began, and the seconds of each group in all runs.
    """

    sdfg: dace.SDFG
    groups: Sequence[Sequence[GraphOperator]]
    calls: Sequence[tuple[float, Sequence[float]]]

    def write(self, path: Path) -> None:
        """Writes the SDFG, and DaCe's report beside it, in which operators of one group have the time of the group."""
        write_sdfg(self.sdfg, path)
        report = InstrumentationReport("")
        report.sdfg_hash = self.sdfg.hash_sdfg()
        report.events = [event for start, seconds in self.calls for event in self._events(start, seconds)]
        report.save(str(path.with_suffix(".report.json")))

    def _events(self, start: float, seconds: Sequence[float]) -> list[DurationEvent]:
        state = next(iter(self.sdfg.states()))
        return [
            DurationEvent(
                operator.name,
                "operator",
                (self.sdfg.cfg_id, state.block_id, state.node_id(operator)),
                int(1e6 * begin),
                1e6 * duration,
                os.getpid(),
                additional_info={"sdfg_id": self.sdfg.cfg_id},  # what the extension reads in place of cfg_id
            )
            for group, begin, duration in zip(self.groups, accumulate(seconds, initial=start), seconds, strict=False)
            for operator in group
        ]


def write_programs(programs: Sequence[MeasuredProgram], folder: Path) -> list[Path]:
    """Writes programs to a folder, ``NAME.sdfg`` and ``NAME.report.json`` for each; returns the SDFGs' paths."""
    folder.mkdir(parents=True, exist_ok=True)
    names: list[str] = []
    for program in programs:
        names.append(find_new_name(program.sdfg.name, names))
        program.write(folder / f"{names[-1]}.sdfg")
    return [folder / f"{name}.sdfg" for name in names]

"""Describes the steps of a compilation that changed a program, each with what it changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dacergnn.program import Program
from dacergnn.sdfg_passes import PassStep
from dacergnn.viewer.boxes import Array, Box, arrays_of, boxes_of
from dacergnn.viewer.difference import Difference
from dacergnn.viewer.phases import phases_of


@dataclass(frozen=True)
class Side:
    """Describes the forward or the backward of a step, and how it differs from the one of the step before."""

    role: str
    boxes: Sequence[Box]
    phases: Sequence[Box]
    arrays: Mapping[str, Array]
    difference: Difference | None
    file: str


@dataclass(frozen=True)
class Step:
    """Describes a step on the page."""

    number: int
    name: str
    sides: Sequence[Side]


def steps_of(
    steps: Sequence[PassStep], sizes: Mapping[str, int], files: Mapping[tuple[int, str], str]
) -> Iterator[Step]:
    """Yields the steps that changed a program."""
    last = {role: boxes_of(Program(sdfg)) for role, sdfg in steps[-1].sdfgs.items()}
    before: dict[str, Sequence[Box]] = {}
    for number, step in enumerate(steps):
        sides: list[Side] = []
        programs = {role: Program(sdfg) for role, sdfg in step.sdfgs.items()}
        taken = frozenset[str]() if "backward" not in programs else frozenset(programs["backward"].inputs)
        for role, program in programs.items():
            saved = taken.intersection(programs["forward"].outputs)
            boxes = boxes_of(program)
            phases = phases_of(boxes, last["forward"], program.outputs) if role == "backward" else boxes
            difference = Difference.of(before[role], boxes) if role in before else None
            arrays = arrays_of(program, sizes, saved)
            sides.append(Side(role, boxes, phases, arrays, difference, files.get((number, role), "")))
        if any(side.difference is None or side.difference for side in sides):
            yield Step(number, step.name, sides)
        before = {side.role: side.boxes for side in sides}

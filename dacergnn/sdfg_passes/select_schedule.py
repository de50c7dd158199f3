"""Selects schedules: how threads visit the groups of a traversal, and how products are tiled (Hector 3.3.2, 3.4.1).

Precondition: a fused inter-operator SDFG.

- ``schedule_by``: "groups" runs a loop over the rows of each group, which keeps a sum in a register. "edges" runs one
  loop over all rows of a tile and adds each value to the sum of its group: a load and a store per row, but no
  mispredicted branch per group. Only sums of a few elements have the choice.
- ``split_hubs``: all threads share the rows of each very long group, chunk by chunk, also in nests of three levels.
  This needs a second form of the kernel, so it is used only if the graph has such a group. On devices, several blocks
  of threads share the rows, also in products that sum up rows; every loop over a group takes one more launch.
- ``tile_rows``: rows that all loops of a nest visit before the next tile, as many as have their scratch in the cache.
- ``hub_rows``: rows of the longest group that is no hub, where hubs are divided; 0 derives it from the number of rows.
- ``chunks``: parts into which loops are cut for each thread.
- ``row_tile``, ``depth_block``, ``least_blocks``: rows and depth of a product that are multiplied at a time, and blocks
  of a multiprocessor that registers have room for. 0 lets the kernel choose by the sizes.

On the CPU, ``tile_rows``, ``hub_rows`` and ``chunks`` are arguments of the kernel: programs that differ in nothing else
share a build.

Saves, for groups of two edges, about two fifths of the time of their sums; of a hub of h edges, the time of
h (1 - 1/P) edges on P threads. Tiles save little: from 256 rows on times differ by about 2 %, while tiles of 64 narrow
rows cost 4 %.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import dace

from dacergnn.cost import has_hubs, tile_rows
from dacergnn.graph.spaces import MAPS
from dacergnn.library_nodes.segment_gemm.device_plan import pair_path
from dacergnn.library_nodes.traversal.nest import Levels
from dacergnn.program import Program
from dacergnn.sdfg_passes.base import Pass
from dacergnn.sdfg_passes.context import Context
from dacergnn.target import Target, find

BRANCH = 4.0
"""Time of the mispredicted branch that ends a short group, relative to an addition to a sum in memory."""
_USUAL = {"chunks": "16"}
"""Defaults for questions without a rule by cost; for others 0, which leaves the choice to the kernel."""


@dataclass(frozen=True)
class SelectSchedule(Pass):
    """Fixes the schedule of every operator; counts the operators whose schedule changes.

    A plan names the operator by the array that it writes first: "out/schedule_by".
    """

    name: ClassVar[str] = "select_schedule"

    def run(self, sdfg: dace.SDFG, context: Context) -> int:
        sizes, longest = context.profile.sizes, context.profile.longest
        program, target = Program(sdfg), find(context.implementation)
        changed = 0
        for operator in program.operators:
            arrays = operator.arrays(sdfg, program.state)
            before = [getattr(operator, name) for name in operator.schedule_properties]
            scheduled = _Scheduled(operator, target, arrays, sizes, longest)
            asked = context.questions.of(operator.statements[0].target.name)
            for question in operator.schedule_properties:
                if question in scheduled.plan.questions and question in target.schedule_options:
                    default = scheduled.default(question)
                    options = dict.fromkeys((*target.schedule_options[question], default))
                    scheduled.answer(question, asked.ask(question, tuple(options), default))
                else:
                    operator.reset(question)
            changed += before != [getattr(operator, name) for name in operator.schedule_properties]
        return changed


@dataclass(frozen=True)
class _Scheduled:
    """Holds an operator whose schedule is chosen, and what the choice depends on."""

    operator: Any
    target: Target
    arrays: Mapping[str, Any]
    sizes: Mapping[str, int]
    longest: Mapping[str, int]

    @property
    def plan(self) -> Any:
        """Returns the operator's plan under its schedule so far."""
        return self.operator.plan(self.target.name, self.arrays)

    @property
    def levels(self) -> tuple[str, str, str]:
        """Returns the row spaces of the groups and of the rows in them, and the path from the rows to the groups."""
        statement = self.operator.statements[0]
        if statement.is_gemm:
            path = pair_path(statement) or statement.target.path
            return MAPS[statement.space, path], statement.space, path
        levels = Levels.of(self.operator.space, self.operator.statements)
        outer, inner = levels.spaces[0], levels.spaces[-1]
        return outer, inner, levels.up(inner, outer) or ""

    def default(self, question: str) -> str:
        """Returns the answer by cost."""
        if question not in ("schedule_by", "split_hubs", "tile_rows"):
            return _USUAL.get(question, "0")
        outer, inner, path = self.levels
        if question == "schedule_by":
            return "edges" if self.sizes[inner] < BRANCH * self.sizes[outer] else "groups"
        if question == "split_hubs":
            return "yes" if has_hubs(self.sizes, self.longest, self.target.name, inner, outer, path) else "no"
        return str(tile_rows(self.plan.kept_elements * self.plan.arrays.item))

    def answer(self, question: str, answer: str) -> None:
        """Sets the property of the operator."""
        words: dict[str, object] = {"yes": True, "no": False, "groups": "groups", "edges": "edges"}
        setattr(self.operator, question, words[answer] if answer in words else int(answer))

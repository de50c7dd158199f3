"""Runs a program at once, while builds by several plans race in its calls."""

from __future__ import annotations

from functools import partial
from time import perf_counter

from torch import Tensor

from dacergnn.graph import HeteroGraph
from dacergnn.modules.compiled import CompiledProgram
from dacergnn.modules.variant import Mask, Variant
from dacergnn.modules.ways.contest import Contest, Runner, searching
from dacergnn.modules.ways.whole import Whole
from dacergnn.runtime.stacks import Stacks


class Race(Whole):
    """Chooses a build for each call until one has won; builds with different gradients have races of their own."""

    def __init__(self, program: CompiledProgram) -> None:
        super().__init__(program)
        self.contests: dict[Mask, Contest[Variant] | None] = {}
        """Holds the races so far; None where a build has won, or where none may begin."""

    def take(self, mask: Mask, graph: HeteroGraph) -> tuple[Variant, Runner[Variant] | None]:
        contest = self._contest(mask)
        return (self.program.variant(mask), None) if contest is None else contest.take(graph)

    def note(self, mask: Mask, runner: Runner[Variant] | None, seconds: float, graph: HeteroGraph) -> None:
        contest = self.contests.get(mask)
        if contest is not None:
            contest.note(runner, seconds, graph)

    def infer(self, graph: HeteroGraph, inputs: list[Tensor], stacks: Stacks | None) -> tuple[Tensor, ...]:
        mask = self.program.no_gradients
        variant, runner = self.take(mask, graph)
        prepared, start = variant.forward.prepare(graph, stacks), perf_counter()
        results = tuple(variant.forward.run(prepared, inputs)[0])
        self.note(mask, runner, perf_counter() - start, graph)
        return results

    def _contest(self, mask: Mask) -> Contest[Variant] | None:
        if mask not in self.contests:
            default = self.program.variant(mask)
            search, settle = partial(self.program.others, default, searching), partial(self._settle, mask)
            made = Contest(self.program.title, default, search, settle) if self.program.may_race(mask) else None
            self.contests.setdefault(mask, made)
        return self.contests[mask]

    def _settle(self, mask: Mask, winner: Variant) -> None:
        self.program.prefer(mask, winner)
        self.contests[mask] = None

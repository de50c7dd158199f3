"""Measures ways to compute a task, and counts what the programs of ours need, as compiled and as written."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from benchmarks.caching.experiment import TaskExperiment
from benchmarks.caching.networks import layers_of
from benchmarks.caching.task import Task
from benchmarks.named import Named
from benchmarks.papers.artefact import Scale
from benchmarks.papers.rows import by_name
from benchmarks.relational.candidate import Built
from dacergnn.api import explain
from dacergnn.bench.runner import measure
from dacergnn.cost import Cost
from dacergnn.json_lines import Row
from dacergnn.modules.compiled_parts import compiled_parts
from dacergnn.modules.programs import measured
from dacergnn.report.layers import planned

REORGANIZED = ("canonical_form", "propagation_postponing")
_ITEM = 4
"""Bytes of a number."""


class Counted(TaskExperiment):
    """Compares the ways to compute a task, in one mode.

    Rows of ours have, for a program before all passes ("written") and as it is compiled ("ours"): "moved", bytes that
    are read and written; "memory", bytes in all; "between", those of them that are saved for the backward or needed
    between operators, layer by layer. "flops" are of a forward, also of a reorganized one.
    """

    def facts_of(self, candidate: Named, built: Built) -> Row:
        """Returns what is known of a candidate that has run, and what its programs need."""
        row = super().facts_of(candidate, built)
        return row | self._needs(built) if candidate.config is not None else row

    def _needs(self, built: Built) -> Row:
        train = "train" in self.limits.modes
        names = ("ours", "written", "reorganized")
        total: dict[str, tuple[Cost, Cost, int]] = dict.fromkeys(names, (Cost(), Cost(), 0))
        for layer, (_, part, _) in zip(explain(built.layer).layers, compiled_parts(built.layer), strict=True):
            build = next(b for b in reversed(layer.builds) if bool(b.gradients) == train)
            assert part.last_call is not None, f"{layer.name} has not run"
            program, sizes = part.last_call[0], measured(*part.last_call).sizes
            own = [cost for cost in (build.forward, build.backward) if cost is not None]
            found = {"ours": (own, build.compiled.bytes)}
            for name, passes in (("written", ()), ("reorganized", REORGANIZED)):
                found[name] = planned(program, build.gradients, sizes, passes)
            for name, (costs, between) in found.items():
                forward, both, before = total[name]
                total[name] = forward + costs[0], sum(costs, both), before + between
        held = self._held(built, train)
        return {
            f"{name}_{what}": number
            for name, (forward, both, between) in total.items()
            for what, number in (
                ("flops", forward.flops), ("moved", both.streamed + both.gathered), ("between", between),
                ("memory", held + between),
            )
        }  # fmt: skip

    def _held(self, built: Built, train: bool) -> int:
        """Returns the bytes of features, parameters and results of layers; in training, of their gradients, too."""
        load = self.workload
        parameters = sum(parameter.numel() for parameter in built.leaves)
        results = sum(place.outputs * (1 if place.last else place.heads) for place in layers_of(load))
        return _ITEM * (load.x.numel() + parameters * (2 if train else 1) + load.num_nodes * results)


@cache
def counted(task: Task, ways: tuple[Named, ...], mode: str, scale: Scale) -> Mapping[str, Row]:
    """Returns the rows of ways to compute a task in one mode (`by_name`)."""
    limits = scale.limits((mode,))
    return by_name(measure(Counted(task, limits), ways, limits))

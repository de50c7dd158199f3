"""Makes the candidates of a task ready to be measured, and compares their results with PyG's in float64."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from benchmarks.caching import candidates, facts
from benchmarks.caching.networks import layers_of
from benchmarks.caching.task import Limits, Task
from benchmarks.caching.workload import Workload, load_workload
from benchmarks.named import Named
from benchmarks.relational.candidate import Built, step_of
from dacergnn.bench.calls import deviation
from dacergnn.bench.runner import TOLERANCE, Experiment, Ready
from dacergnn.json_lines import Row

ROWS_PER_EDGE = 12
"""Feature rows per edge that the reference has in memory at once."""

OF_MAXIMA = 5e-2
"""The largest error of networks with several layers that take maxima: where two values are the same up to rounding,
gradients go one way or the other, and all layers before have others."""


class TaskExperiment(Experiment[Named]):
    """Compares the ways to compute a task."""

    def __init__(self, task: Task, limits: Limits) -> None:
        self.task, self.limits = task, limits

    def __str__(self) -> str:
        return str(self.task)

    def original(self) -> Named:
        """Returns PyG's network."""
        return Named("pyg", "COO")

    @cached_property
    def workload(self) -> Workload:
        """Returns the tensors of the task."""
        return load_workload(self.task, self.limits.seed).on(self.limits.device)

    @cached_property
    def backward(self) -> Callable[[Tensor], None]:
        """Returns a function that runs the backward from the task's gradient of the result, drawn at its first call."""
        gradient: list[Tensor] = []

        def run(out: Tensor) -> None:
            if not gradient:
                gradient.append(self.workload.cotangent(out))
            out.backward(gradient[0])

        return run

    def like(self) -> TaskExperiment:
        """Returns an experiment on a copy of the edges, with the same gradient of the result."""
        workload, _ = self.workload, self.backward
        other = copy.copy(self)
        other.workload = replace(workload, edge_index=workload.edge_index.clone())
        return other

    def ready(self, candidate: Named) -> Ready:
        """Returns a network of one of the libraries, or ours."""
        built = candidates.make(candidate, self.workload, self.limits.rates)
        steps = {mode: step_of(built, self.backward, mode) for mode in ("infer", "forward", "train")}
        # Other libraries may compute another function of comparable cost, as DGL's GCN where edges have no reverse.
        tolerance = self._tolerance if candidate.library == "ours" else math.inf
        return Ready(steps, lambda: self._error(candidate, built), lambda: self.facts_of(candidate, built), tolerance)

    @property
    def _tolerance(self) -> float:
        several = len(layers_of(self.workload)) > 2
        return OF_MAXIMA if self.task.model == "edgeconv" and several else TOLERANCE

    def facts_of(self, candidate: Named, built: Built) -> Row:
        """Returns what is known of a candidate that has run: its program, and bytes and times that follow from it."""
        row: Row = {"program": facts.program_of(built)}
        if not candidate.compiled:
            row["saved_bytes"] = facts.saved_bytes(built)
        if candidate.config is not None:
            config = replace(candidate.config, rates=self.limits.rates).on(self.limits.device)
            row |= facts.predicted(built, config)
        return row

    def _error(self, candidate: Named, built: Built) -> float | str:
        """Returns the largest deviation of a result and its gradients, without DGL's parameters of other names."""
        computed = self._results(built)
        if self._exact is None:
            return "not compared: the reference is too large"
        names = ("", "input") if candidate.library == "dgl" else self._exact
        return max(deviation(computed[name], self._exact[name]) for name in names if name in self._exact)

    @cached_property
    def _exact(self) -> dict[str, Tensor] | None:
        """Returns result and gradients of PyG's network in float64; None where they take too much memory."""
        workload, kernels = self.workload, self.task.gaussians[0] if self.task.model == "monet" else 1
        outputs = (place.outputs * place.heads * kernels for place in layers_of(workload))
        width = max(workload.x.shape[1], *outputs)
        if 8 * ROWS_PER_EDGE * width * workload.edge_index.shape[1] > self.limits.limit_bytes:
            return None
        return self._results(candidates.reference(workload))

    def _results(self, built: Built) -> dict[str, Tensor]:
        """Returns the result of a training step, and gradients by the names of parameters, zero where there is none."""
        out = step_of(built, self.backward, "train")()
        named = [*built.layer.named_parameters(), *(("input", x) for x in built.inputs)]
        return {"": out.detach()} | {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in named}

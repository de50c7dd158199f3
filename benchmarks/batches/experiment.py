"""Compares training on sampled batches: the libraries' layers, ours, and perhaps those through torch.compile."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.batches.loading import batches, most_reached
from benchmarks.batches.networks import make_network
from benchmarks.batches.stages import KINDS, Watch, encoding_timed
from benchmarks.batches.steps import (
    DIFFERENCE,
    Form,
    Inputs,
    Steps,
    Stream,
    clock_of_steps,
    losses_of,
    repeated,
    unseen,
)
from benchmarks.relational.problem import Problem, load_problem
from dacergnn.api import optimize
from dacergnn.bench.calls import deviation
from dacergnn.bench.measure import Clock, Timing
from dacergnn.bench.runner import Experiment, Ready
from dacergnn.json_lines import Row

STAGES = ("forward", "backward", "optimizer", "encode")
EAGER, OURS, COMPILED = "eager", "ours", "compiled"
Spent = dict[tuple[str, str], float]
"""Milliseconds by stage and kind of time."""


class TimedSteps(Steps):
    """Runs training steps, and keeps what the stages of each have taken."""

    def __init__(self, network: nn.Module, form: Form, stream: Stream, watch: Watch) -> None:
        super().__init__(network, form, stream, watch.time)
        self.watch, self.spent = watch, list[Spent]()

    def __call__(self) -> Tensor:
        self.watch.taken()
        loss = super().__call__()
        self.spent.append(self.watch.taken())
        return loss


@dataclass(frozen=True)
class OnBatches(Experiment[str]):
    """Compares training steps of a network of a layer, each on a new batch."""

    layer: str
    data: str
    seeds: int
    fanouts: tuple[int, ...]
    watch: Watch = field(default_factory=Watch, repr=False, compare=False)
    samples: list[Spent] = field(default_factory=list[Spent], repr=False, compare=False)
    edges: list[int] = field(default_factory=list[int], repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.layer} on {self.data}, {self.seeds} seeds"

    @cached_property
    def problem(self) -> Problem:
        """Returns the graph that is sampled from."""
        return load_problem(self.data)

    @cached_property
    def stream(self) -> Callable[[], Stream]:
        """Returns a function that goes through the batches, the same ones for each candidate."""
        return repeated(self._sampled())

    def _sampled(self) -> Iterator[tuple[Inputs, Tensor]]:
        source = batches(self.layer, self.problem, most_reached(self.problem), self.seeds, list(self.fanouts))
        while True:
            with self.watch.time("sample"):
                batch = next(source)
            self.samples.append(self.watch.taken())
            self.edges.append(batch.edges)
            yield batch.inputs, batch.labels

    @cached_property
    def network(self) -> nn.Module:
        """Returns the network as its library has it; lazy layers have learned their sizes."""
        torch.manual_seed(0)
        network = make_network(self.layer, self.problem, len(self.fanouts), most_reached(self.problem))
        with torch.no_grad():
            network(*next(self.stream())[0])
        return network

    def clock(self, device: str) -> Clock:
        """Returns a clock that leaves out sampling."""
        return clock_of_steps(device)

    def during(self) -> AbstractContextManager[None]:
        """Returns the context in which the encoding of graphs is timed."""
        return encoding_timed(self.watch)

    def ready(self, candidate: str) -> Ready:
        """Returns the training steps of a candidate."""
        network: Any = copy.deepcopy(self.network)
        if candidate == OURS:
            network = optimize(network)
        elif candidate == COMPILED:
            network = torch.compile(network, dynamic=True)
        step = TimedSteps(network, _as_it_is, unseen(self.stream()), self.watch)

        def check() -> float:
            return deviation(losses_of(network, _as_it_is, self.stream()), self._expected)

        return Ready({"train": step}, check, tolerance=DIFFERENCE, measured=lambda: self._figures(step.spent))

    @cached_property
    def _expected(self) -> Tensor:
        return losses_of(copy.deepcopy(self.network), _as_it_is, self.stream())

    def _figures(self, spent: list[Spent]) -> Row:
        """Returns the medians of stages in milliseconds, the percentiles of whole steps, and facts of batches."""
        row, spent = {"edges": median(self.edges)}, spent[1:]
        for kind in KINDS:
            row[f"sample_{kind}_ms"] = median(sample["sample", kind] for sample in self.samples)
            for stage in STAGES:
                row[f"{stage}_{kind}_ms"] = median(step.get((stage, kind), 0.0) for step in spent)
            whole = [sum(ms for (_, k), ms in step.items() if k == kind) for step in spent]
            row |= Timing([ms / 1e3 for ms in whole]).as_json(f"step_{kind}_")
        return row | {"steps_per_s": 1e3 / (row["sample_wall_ms"] + row["step_wall_ms"])}


def _as_it_is(inputs: Inputs) -> Inputs:
    return inputs

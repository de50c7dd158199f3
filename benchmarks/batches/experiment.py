"""Compares training on sampled batches: the libraries' layers, ours, and perhaps those through torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median

import torch
from torch import Tensor, nn

from benchmarks.batches.networks import LAYERS, network_of
from benchmarks.batches.stages import KINDS, Watch, encoding_timed
from benchmarks.networks.layers import Graph, Kind
from benchmarks.networks.loading import batches
from benchmarks.networks.network import Made
from benchmarks.networks.steps import Form, Steps, Stream, repeated, unseen
from benchmarks.networks.training import Training
from dacergnn.bench.measure import Timing
from dacergnn.json_lines import Row

STAGES = ("forward", "backward", "optimizer", "encode")
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
class OnBatches(Training):
    """Compares training steps of a network of a layer, each on a new batch."""

    seeds: int = 16
    fanouts: tuple[int, ...] = (10, 10)
    watch: Watch = field(default_factory=Watch, repr=False, compare=False)
    samples: list[Spent] = field(default_factory=list[Spent], repr=False, compare=False)
    sizes: list[int] = field(default_factory=list[int], repr=False, compare=False)

    def __str__(self) -> str:
        return f"{super().__str__()}, {self.seeds} seeds"

    def about(self) -> Row:
        """Returns the fields that tell experiments apart."""
        return {"network": self.network, "data": self.data, "seeds": self.seeds, "fanouts": [*self.fanouts]}

    @property
    def kind(self) -> Kind:
        """Returns the kind of the network's layers."""
        return LAYERS[self.network]

    @cached_property
    def stream(self) -> Callable[[], Stream]:
        """Returns a function that goes through the batches, the same ones for each candidate."""
        return repeated(self._sampled())

    def _sampled(self) -> Iterator[tuple[Graph, Tensor]]:
        source = batches(self.kind.form, self.problem, self.target, self.seeds, list(self.fanouts))
        while True:
            with self.watch.time("sample"):
                batch = next(source)
            self.samples.append(self.watch.taken())
            self.sizes.append(batch.edges)
            x, *edges = batch.inputs
            yield Graph(x, tuple(edges), self.problem.num_etypes), batch.labels

    def as_it_is(self) -> nn.Module:
        """Returns the network as its library has it."""
        torch.manual_seed(0)
        return network_of(self.network, self.problem, len(self.fanouts), f"t{self.target}")

    def during(self) -> AbstractContextManager[None]:
        """Returns the context in which the encoding of graphs is timed."""
        return encoding_timed(self.watch)

    def steps(self, made: Made) -> Steps:
        """Returns training steps that keep what their stages take."""
        return TimedSteps(*made, unseen(self.stream()), self.watch)

    def figures(self, steps: Steps) -> Row:
        """Returns the medians of stages in milliseconds, the percentiles of whole steps, and facts of batches."""
        assert isinstance(steps, TimedSteps)
        row, spent = {"edges": median(self.sizes)}, steps.spent[1:]
        for kind in KINDS:
            row[f"sample_{kind}_ms"] = median(sample["sample", kind] for sample in self.samples)
            for stage in STAGES:
                row[f"{stage}_{kind}_ms"] = median(step.get((stage, kind), 0.0) for step in spent)
            whole = [sum(ms for (_, k), ms in step.items() if k == kind) for step in spent]
            row |= Timing([ms / 1e3 for ms in whole]).as_json(f"step_{kind}_")
        return row | {"steps_per_s": 1e3 / (row["sample_wall_ms"] + row["step_wall_ms"])}

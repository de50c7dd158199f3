"""Compares ways to train a network, or to run one of its layers, on the same graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import repeat
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.networks.graphs import ever_new, random_problem, sampled, whole
from benchmarks.networks.layers import KINDS, SIZE, Graph, Kind
from benchmarks.networks.loading import most_reached
from benchmarks.networks.network import COMPILED, ORIGINAL, OURS, Made, candidates, make_network
from benchmarks.networks.steps import DIFFERENCE, Steps, Stream, clock_of_steps, losses_of, unseen
from benchmarks.relational.candidate import Built, leaf, make_layer_step
from benchmarks.relational.problem import Problem, load_problem
from benchmarks.suite import run_experiments
from dacergnn.bench.calls import deviation
from dacergnn.bench.measure import Clock, clock_of
from dacergnn.bench.runner import Experiment, Limits, Ready
from dacergnn.json_lines import Row


@dataclass(frozen=True)
class Training(Experiment[str]):
    """Compares training steps of a network, with the losses of the first steps.

    Args:
        network: One of `KINDS`.
        edges: Edges of random graphs, of which each step has a new one; 0 for the graph ``data``.
        data: The name of a graph, which all steps are on.
        batches: Whether each step is on a new batch of that graph instead.
        device: Type of torch's device that everything runs on.
    """

    network: str
    edges: int = 0
    data: str = ""
    batches: bool = False
    device: str = "cpu"

    def __str__(self) -> str:
        where = f"random graphs of {self.edges:,} edges" if self.edges else self.data
        return f"{self.network} on {'batches of ' * self.batches}{where}"

    @property
    def kind(self) -> Kind:
        """Returns the kind of the network's layers."""
        return KINDS[self.network]

    @cached_property
    def problem(self) -> Problem:
        """Returns the graph, or one like those of the steps."""
        problem = random_problem(self.edges, 0) if self.edges else load_problem(self.data, SIZE)
        return problem.to(self.device)

    @cached_property
    def target(self) -> int:
        """Returns the number of the node type whose nodes have labels."""
        return most_reached(self.problem)

    @cached_property
    def stream(self) -> Callable[[], Stream]:
        """Returns what starts the stream of graphs anew."""
        if self.edges:
            return partial(ever_new, self.kind, self.edges, self.target, self.device)
        if self.batches:
            return sampled(self.kind, self.problem, self.target)
        return partial(repeat, whole(self.kind, self.problem, self.target))

    def like(self) -> Training:
        """Returns an experiment on the same graphs, made anew."""
        return replace(self)

    def clock(self, device: str) -> Clock:
        """Returns a clock that leaves out the time in which graphs are made."""
        return clock_of_steps(device)

    def about(self) -> Row:
        """Returns the fields that tell experiments apart."""
        return {"network": self.network, "edges": self.edges, "data": self.data, "device": self.device}

    def names(self) -> list[str]:
        """Returns the names of all candidates."""
        return [*candidates(self.kind, torch.nn.Identity())]

    def made(self, candidate: str) -> Made:
        """Returns a network, with the form in which it takes graphs."""
        return candidates(self.kind, self.as_it_is().to(self.device))[candidate]()

    def as_it_is(self) -> nn.Module:
        """Returns the network as its library has it."""
        return make_network(self.kind, self.problem, f"t{self.target}")

    def steps(self, made: Made) -> Steps:
        """Returns the training steps of a network, on graphs that no loss was compared on."""
        return Steps(*made, unseen(self.stream()))

    def ready(self, candidate: str) -> Ready:
        """Returns the training steps of a candidate."""
        made = self.made(candidate)
        dropout = candidate != COMPILED  # whose random numbers are others

        def check() -> float:
            if candidate == ORIGINAL:
                return 0.0
            expected = self._with_dropout if dropout else self._without_dropout
            return deviation(losses_of(*made, self.stream(), dropout=dropout), expected)

        steps = self.steps(made)
        return Ready({"train": steps}, check, tolerance=DIFFERENCE, measured=lambda: self.figures(steps))

    def figures(self, steps: Steps) -> Row:
        """Returns what is known of steps once they have been timed."""
        return {}

    @cached_property
    def _with_dropout(self) -> Tensor:
        """Returns the losses of the original."""
        return losses_of(*self.made(ORIGINAL), self.stream())

    @cached_property
    def _without_dropout(self) -> Tensor:
        return losses_of(*self.made(ORIGINAL), self.stream(), dropout=False)


def run_trainings(
    cases: Sequence[Training], wanted: Callable[[Training], list[str]], limits: Limits, **options: Any
) -> list[Row]:
    """Measures the candidates that are wanted of each experiment, and returns a row for each.

    Args:
        options: Those of `run_experiments`.
    """

    def fields(case: Training, candidate: str) -> Row:
        library, _, number = candidate.partition(" ")
        named = {"library": library, "name": number or (OURS if library == OURS else "")}
        return {**case.about(), **named, "threads": limits.threads, "repeat": limits.repeat}

    return run_experiments([(case, wanted(case)) for case in cases], limits, fields, **options)


@dataclass(frozen=True)
class OneLayer(Training):
    """Compares forward and backward of a single layer behind another one, whose features need gradients."""

    def __str__(self) -> str:
        return f"a layer of {super().__str__()}"

    def clock(self, device: str) -> Clock:
        """Returns the clock of a device."""
        return clock_of(torch.device(device))

    def made(self, candidate: str) -> Made:
        """Returns a layer, with the form in which it takes graphs."""
        network: Any = make_network(self.kind, self.problem, f"t{self.target}")
        return candidates(self.kind, network.convs[0].to(self.device))[candidate]()

    def ready(self, candidate: str) -> Ready:
        """Returns forward and backward of a candidate."""
        made = self.made(candidate)
        graph = whole(self.kind, self.problem, self.target)[0]

        def check() -> float:
            return 0.0 if candidate == ORIGINAL else differs(results(made, graph), self._results)

        return Ready({"train": layer_step(made, graph)}, check)

    @cached_property
    def _results(self) -> dict[str, Tensor]:
        return results(self.made(ORIGINAL), whole(self.kind, self.problem, self.target)[0])


def layer_step(made: Made, graph: Graph) -> Callable[[], Any]:
    """Returns a forward and backward of a layer."""
    module, (x, *given) = made[0], made[1](graph)
    leaves = {name: leaf(rows) for name, rows in x.items()} if isinstance(x, Mapping) else leaf(x)
    inputs = tuple(leaves.values()) if isinstance(leaves, Mapping) else (leaves,)
    built = Built(lambda: module(leaves, *given), inputs, (*inputs, *module.parameters()))
    return make_layer_step(built, built.forward())


def results(made: Made, graph: Graph) -> dict[str, Tensor]:
    """Returns the results in evaluation by type, and the gradients of parameters by name."""
    module, form = made
    module.eval()
    out = module(*form(graph))
    parts = out if isinstance(out, Mapping) else {"": out}
    torch.stack([rows.square().mean() for rows in parts.values()]).sum().backward()
    grads = {name.removeprefix("_orig_mod."): p.grad for name, p in module.named_parameters() if p.grad is not None}
    module.zero_grad()
    module.train()
    return {f"out {name}": rows.detach() for name, rows in parts.items()} | grads


def differs(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    """Returns the largest difference between tensors of the same names."""
    return max(deviation(found[name].double(), expected[name].double()) for name in expected if name in found)

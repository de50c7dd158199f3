"""Runs training steps, each on the next graph of a stream, and compares the losses of the first ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from dacergnn.bench.measure import Clock, clock_of, turns_by

VALIDATED = 5
"""Steps whose losses are compared before any is timed."""
DIFFERENCE = 1e-4
"""The largest difference of losses, relative to the largest; more means another function."""
Inputs = tuple[Any, ...]
Form = Callable[[Any], Inputs]
"""Turns a graph of a stream into the arguments of a network."""
Stream = Iterator[tuple[Any, Tensor]]
"""Graphs, each with the labels of the first rows of a network's result."""


class Steps:
    """Runs forward, loss, backward and optimizer on the next graph, which `prepare` takes before.

    Args:
        stage: Makes the context in which a stage of a step runs, from its name.
    """

    def __init__(
        self, network: nn.Module, form: Form, stream: Stream,
        stage: Callable[[str], AbstractContextManager[None]] = lambda name: nullcontext(),
    ) -> None:  # fmt: skip
        self.network, self.form, self.stream, self.stage = network, form, stream, stage
        self.optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, fused=True)
        self.next: tuple[Inputs, Tensor] | None = None

    def prepare(self) -> None:
        """Takes the next graph, in the form that the network takes."""
        graph, labels = next(self.stream)
        self.next = self.form(graph), labels

    def __call__(self) -> Tensor:
        if self.next is None:
            self.prepare()
        assert self.next is not None
        (inputs, labels), self.next = self.next, None
        with self.stage("optimizer"):
            self.optimizer.zero_grad()
        with self.stage("forward"):
            loss = functional.cross_entropy(self.network(*inputs)[: len(labels)], labels)
        with self.stage("backward"):
            loss.backward()
        with self.stage("optimizer"):
            self.optimizer.step()
        return loss.detach()


def losses_of(network: nn.Module, form: Form, stream: Stream, *, dropout: bool = True) -> Tensor:
    """Returns the losses of the first steps from a seed, in float64, and gives the parameters their values back."""
    before = {name: value.clone() for name, value in network.state_dict().items()}
    torch.manual_seed(1)
    network.train(dropout)
    step = Steps(network, form, stream)
    losses = [step() for _ in range(VALIDATED)]
    network.load_state_dict(before)
    network.train()
    return torch.stack(losses).double()


def unseen(stream: Stream) -> Stream:
    """Returns what follows in a stream after the graphs that losses were compared on."""
    return islice(stream, VALIDATED, None)


def clock_of_steps(device: str) -> Clock:
    """Returns a clock that leaves out the time in which graphs are made."""
    clock = clock_of(torch.device(device))

    def timed(step: Any) -> float:
        step.prepare()
        return clock.time(step)

    return turns_by(timed)


def repeated(source: Iterator[tuple[Any, Tensor]]) -> Callable[[], Stream]:
    """Returns a function that goes through the graphs of a source, the same ones each time."""
    known: list[tuple[Any, Tensor]] = []

    def go() -> Stream:
        number = 0
        while True:
            if number == len(known):
                with torch.random.fork_rng(devices=[]):  # dropout draws the same numbers for each candidate
                    known.append(next(source))
            yield known[number]
            number += 1

    return go

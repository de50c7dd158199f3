"""Tests what a recorded call leaves behind: tensors in containers, one draw of random numbers, and nothing if it fails.

A call without a form in a program runs as the original, after what its recording has changed is as it was.
"""

from __future__ import annotations

import copy
import random
from collections import deque
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import dacergnn

pyg = pytest.importorskip("torch_geometric.nn")
N, F = 8, 3
EDGES = torch.randint(N, (2, 30), generator=torch.Generator().manual_seed(0))
NOTES: list[int] = []


class Counter(nn.Module):
    """Counts its calls."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x


class Log:
    """Holds what a layer tells it."""

    def __init__(self) -> None:
        self.entries: list[Any] = []


class Leaving(pyg.MessagePassing):
    """Leaves something in each kind of place; ``fails`` has it call what no program has."""

    mean: Tensor

    def __init__(self, *, fails: bool) -> None:
        super().__init__()
        self.fails = fails
        self.register_buffer("mean", torch.zeros(F))
        self.weight = nn.Parameter(torch.ones(F))
        self.list, self.deque, self.set = list[Any](), deque[Any](), set[int]()
        self.table: dict[str, Any] = {"within": list[Any]()}
        self.counter, self.log = Counter(), Log()
        self.generator = torch.Generator().manual_seed(1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.propagate(edge_index, x=self.counter(x))
        self.mean = 0.5 * self.mean + h.detach().mean(0)
        self.list.append(h.detach())
        self.deque.append((h.detach() * 2, 2))
        self.set.add(len(self.set))
        self.table["within"].append(h.detach() + 1)
        drawn = random.random() + float(np.random.rand())  # noqa: NPY002  as users' code does
        self.table["draw"] = torch.rand(1) + torch.rand(1, generator=self.generator) + drawn
        self.log.entries.append(h.detach().relu())
        NOTES.append(len(NOTES))
        with torch.no_grad():
            self.weight.mul_(0.9)
        if x.requires_grad:
            x.register_hook(lambda gradient: 3 * gradient)
        return h.cumsum(0) if not self.fails else self.edge_updater(edge_index, x=h)

    def message(self, x_j: Tensor) -> Tensor:
        return x_j.tanh()

    def edge_update(self, x_j: Tensor) -> Tensor:
        return x_j.cumsum(0)


def left(layer: Any) -> tuple[Any, ...]:
    """Returns what is in all places, and clears the global one."""
    places = (
        layer.mean,
        layer.weight.detach(),
        layer.list,
        [*layer.deque],
        sorted(layer.set),
        layer.table,
        layer.counter.calls,
        layer.log.entries,
    )
    found = copy.deepcopy((*places, [*NOTES]))
    NOTES.clear()
    return found


def tensors(tree: Any) -> list[Tensor]:
    """Returns all tensors of a structure."""
    if isinstance(tree, dict):
        tree = list(tree.values())
    parts = tree if isinstance(tree, list | tuple) else []
    return [tree] if isinstance(tree, Tensor) else [t for part in parts for t in tensors(part)]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("fails", [False, True])
def test_places(fails: bool, training: bool) -> None:
    original = Leaving(fails=fails).double().train(training)
    compiled: Any = dacergnn.optimize(copy.deepcopy(original), on_unsupported="ignore")
    for _ in range(3):
        found: list[Any] = []
        for layer in (original, compiled):
            torch.manual_seed(0)
            random.seed(0)
            np.random.seed(0)  # noqa: NPY002
            x = torch.randn(N, F, dtype=torch.float64, requires_grad=True)
            result = layer(x, EDGES)
            result.sum().backward()
            found.append((result, x.grad, *left(layer)))
        assert {type(t) for t in tensors(found[1])} == {Tensor}
        torch.testing.assert_close(*found[::-1])


def test_a_warm_up_leaves_nothing() -> None:
    compiled: Any = dacergnn.optimize(Leaving(fails=False).double(), on_unsupported="error")
    NOTES.clear()
    dacergnn.warmup(compiled, torch.randn(N, F, dtype=torch.float64), EDGES)
    assert not NOTES
    assert not compiled.list
    assert not compiled.log.entries
    assert compiled.counter.calls == 0
    assert not compiled.mean.any()
    assert torch.equal(compiled.weight, torch.ones(F).double())


class Dropped(pyg.MessagePassing):
    """Reads what is dropped along edges and as it is."""

    def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, ...]:
        dropped = torch.nn.functional.dropout(x, 0.5, self.training)
        summed = self.propagate(edge_index, x=dropped)
        return summed, float(summed.detach().sum()) * dropped.cumsum(0), dropped

    def message(self, x_j: Tensor) -> Tensor:
        return x_j


class Overwritten(pyg.MessagePassing):
    """Writes to a copy of what gradients need."""

    def __init__(self) -> None:
        super().__init__(aggr="max")

    def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, ...]:
        h = self.propagate(edge_index, x=x)
        other = h.clone()
        other[0] = 0
        other.cumsum_(0)
        return h, other

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return torch.nn.functional.normalize(x_j - 2 * x_i, dim=-1)


@pytest.mark.parametrize("kind", [Dropped, Overwritten])
def test_results_and_gradients(kind: type[nn.Module]) -> None:
    original = kind()
    compiled = dacergnn.optimize(original, on_unsupported="error")
    for seed in range(3):
        found: list[Any] = []
        for layer in (original, compiled):
            torch.manual_seed(seed)
            x = torch.randn(N, F, dtype=torch.float64, requires_grad=True)
            results = layer(x, EDGES)
            torch.stack([r.square().sum() for r in results]).sum().backward()
            found.append((*results, x.grad, torch.rand(1)))
        torch.testing.assert_close(*found[::-1])

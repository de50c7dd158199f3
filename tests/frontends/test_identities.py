"""Tests forwards that ask which object or kind of object an argument is, and what hangs on tensors beside numbers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn

pyg = pytest.importorskip("torch_geometric.nn")
N, F = 8, 3
EDGES = torch.randint(N, (2, 30), generator=torch.Generator().manual_seed(0))


class Layer(pyg.MessagePassing):
    """Doubles what it aggregates if ``holds`` says so of itself and its argument."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(F, F)
        self.held: Tensor | None = None
        self.key = 0

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.propagate(edge_index, x=self.lin(x))
        return 2 * h if self.holds(x) else h

    def holds(self, x: Any) -> bool:
        raise NotImplementedError

    def message(self, x_j: Tensor) -> Tensor:
        return x_j


class IsHeld(Layer):
    def holds(self, x: Any) -> bool:
        return x is self.held


class HasKey(Layer):
    def holds(self, x: Any) -> bool:
        return id(x) == self.key


class IsParameter(Layer):
    def holds(self, x: Any) -> bool:
        return isinstance(x, nn.Parameter)


class IsMarked(Layer):
    def holds(self, x: Any) -> bool:
        return hasattr(x, "mark")


class HasGradient(Layer):
    def holds(self, x: Any) -> bool:
        return self.lin.weight.grad is not None


def hold(layer: Layer, x: Tensor) -> Tensor:
    layer.held, layer.key = x, id(x)
    return x


def make_parameter(layer: Layer, x: Tensor) -> Tensor:
    return nn.Parameter(x)


def mark(layer: Layer, x: Any) -> Tensor:
    x.mark = 1
    return x


def give_gradient(layer: Layer, x: Tensor) -> Tensor:
    layer.lin.weight.grad = torch.zeros(F, F)
    return x


@pytest.mark.parametrize(
    ("kind", "prepare"),
    [(IsHeld, hold), (HasKey, hold), (IsParameter, make_parameter), (IsMarked, mark), (HasGradient, give_gradient)],
)
def test_answers_are_the_original_s(kind: type[Layer], prepare: Callable[[Layer, Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    original: Any = kind()
    compiled: Any = dacergnn.optimize(copy.deepcopy(original), on_unsupported="ignore")
    for prepared in (False, False, True, True, False, False):
        x, found = torch.rand(N, F), list[Tensor]()
        for layer in (original, compiled):
            layer.lin.weight.grad = None
            own = x.clone()
            found.append(layer(prepare(layer, own) if prepared else own, EDGES).detach())
        torch.testing.assert_close(*found)

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
dgl = pytest.importorskip("dgl")
N, F = 8, 3
EDGES = torch.randint(N, (2, 30), generator=torch.Generator().manual_seed(0))
Holds = Callable[[Any, Any], bool]


class Asking(nn.Module):
    """Doubles what it aggregates if ``holds`` says so of itself and its argument."""

    lin: nn.Linear

    def prepare(self, holds: Holds) -> None:
        self.holds = holds
        self.lin = nn.Linear(F, F)
        self.held: Tensor | None = None
        self.key = 0


class OfMessages(pyg.MessagePassing, Asking):
    def __init__(self, holds: Holds) -> None:
        super().__init__()
        self.prepare(holds)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.propagate(edge_index, x=self.lin(x))
        return 2 * h if self.holds(self, x) else h

    def message(self, x_j: Tensor) -> Tensor:
        return x_j


class OfGraphs(Asking):
    def __init__(self, holds: Holds) -> None:
        super().__init__()
        self.prepare(holds)

    def forward(self, x: Tensor, g: Any) -> Tensor:
        with g.local_scope():
            g.ndata["h"] = self.lin(x)
            g.update_all(dgl.function.copy_u("h", "m"), dgl.function.sum("m", "y"))
            return 2 * g.ndata["y"] if self.holds(self, x) else g.ndata["y"]


def is_held(layer: Asking, x: Any) -> bool:
    return x is layer.held


def has_key(layer: Asking, x: Any) -> bool:
    return id(x) == layer.key


def is_parameter(layer: Asking, x: Any) -> bool:
    return isinstance(x, nn.Parameter)


def is_marked(layer: Asking, x: Any) -> bool:
    return hasattr(x, "mark")


def has_gradient(layer: Asking, x: Any) -> bool:
    return layer.lin.weight.grad is not None


def hold(layer: Asking, x: Tensor) -> Tensor:
    layer.held, layer.key = x, id(x)
    return x


def make_parameter(layer: Asking, x: Tensor) -> Tensor:
    return nn.Parameter(x)


def mark(layer: Asking, x: Any) -> Tensor:
    x.mark = 1
    return x


def give_gradient(layer: Asking, x: Tensor) -> Tensor:
    layer.lin.weight.grad = torch.zeros(F, F)
    return x


@pytest.mark.parametrize("front_end", [OfMessages, OfGraphs])
@pytest.mark.parametrize(
    ("holds", "prepare"),
    [
        (is_held, hold),
        (has_key, hold),
        (is_parameter, make_parameter),
        (is_marked, mark),
        (has_gradient, give_gradient),
    ],
)
def test_answers_are_the_original_s(front_end: Any, holds: Holds, prepare: Callable[[Asking, Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    original: Any = front_end(holds)
    of_graphs = front_end is OfGraphs
    compiles: Any = dacergnn.compile if of_graphs else dacergnn.optimize
    edges = dgl.graph((EDGES[0], EDGES[1]), num_nodes=N) if of_graphs else EDGES
    compiled = compiles(copy.deepcopy(original), on_unsupported="ignore")
    for prepared in (False, False, True, True, False, False):
        x, found = torch.rand(N, F), list[Tensor]()
        for layer in (original, compiled):
            layer.lin.weight.grad = None
            own = x.clone()
            found.append(layer(prepare(layer, own) if prepared else own, edges).detach())
        torch.testing.assert_close(*found)

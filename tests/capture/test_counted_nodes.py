"""Softmaxes over neighbours that nobody tells how many nodes there are: they are captured with all else along edges."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("torch_geometric")
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import scatter, softmax

import dacergnn
from dacergnn.modules.graph_forward import compiled_forwards
from tests.capture.calls import captured

__all__ = ["captured"]
K = 6


class Attention(MessagePassing):
    """Counts nodes by the largest index of the edges, as PyG's softmax does."""

    def __init__(self) -> None:
        super().__init__(aggr="sum")
        self.lin, self.score = nn.Linear(K, K), nn.Parameter(torch.randn(K))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=self.lin(x))

    def message(self, x_j: Tensor, index: Tensor) -> Tensor:
        return softmax((x_j * self.score).tanh().sum(-1), index).unsqueeze(-1) * x_j


class Plain(nn.Module):
    """Does the same without a layer, and returns sums for as many nodes as it counts beside."""

    def __init__(self, *, counts: bool) -> None:
        super().__init__()
        self.lin, self.counts = nn.Linear(K, K), counts

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        h = self.lin(x)[edge_index[0]]
        weights = softmax(h.sum(-1), edge_index[1])
        rows = scatter(weights.unsqueeze(-1) * h, edge_index[1], 0, x.size(0))
        return (rows, scatter(h, edge_index[1], 0)) if self.counts else rows


def graph(nodes: int, edges: int, reached: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(nodes)
    x = torch.randn(nodes, K, generator=generator, dtype=torch.float64)
    ends = [torch.randint(count, (edges,), generator=generator) for count in (nodes, reached)]
    return x, torch.stack(ends)


GRAPHS = ((10, 30, 10), (12, 40, 7), (5, 9, 5), (20, 50, 3), (31, 60, 30))
"""Numbers of nodes, of edges, and of the first nodes that edges lead to."""


def assert_same(layer: nn.Module, fast: Any, x: Tensor, index: Tensor) -> None:
    found: list[list[Tensor]] = []
    for module in (layer, fast):
        own = x.clone().requires_grad_()
        results = module(own, index)
        results = list(results) if isinstance(results, tuple) else [results]
        total = sum(r.sin().sum() for r in results)
        found.append([*results, *torch.autograd.grad(total, [own, *module.parameters()])])
    torch.testing.assert_close(*found)


def test_layers(captured: list[int]) -> None:
    layer = Attention().double()
    fast: Any = dacergnn.optimize(copy.deepcopy(layer), on_unsupported="error")
    for sizes in GRAPHS:
        assert_same(layer, fast, *graph(*sizes))
    assert len(captured) == 1
    assert fast.runner.notes[0].startswith("captured as 1 graph: 1 runs of programs, ")
    assert_same(layer, fast, *graph(6, 0, 6))


@pytest.mark.parametrize("counts", [False, True])
def test_plain_modules(counts: bool) -> None:
    """What is returned has as many rows as are counted."""
    layer = Plain(counts=counts).double()
    fast = dacergnn.optimize(copy.deepcopy(layer), on_unsupported="error" if not counts else "ignore")
    for sizes in GRAPHS:
        assert_same(layer, fast, *graph(*sizes))
    (forward,) = compiled_forwards(fast)
    assert len(forward.graphs) == 1


class Counting(Attention):
    """Writes to buffers, and hands on nothing of that."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(K, momentum=None)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self.calls.add_(1)
        self.calls[0] += 1
        return self.norm(super().forward(x, edge_index))


def test_writes_to_buffers() -> None:
    layer = Counting().double()
    fast: Any = dacergnn.optimize(copy.deepcopy(layer), on_unsupported="error")
    for sizes in GRAPHS:
        assert_same(layer, fast, *graph(*sizes))
        torch.testing.assert_close(list(fast.buffers()), list(layer.buffers()))


SIZES: dict[str, Callable[[Tensor], Tensor]] = {
    "one": lambda x: x.new_zeros(x.size(0)),
    "tuple": lambda x: x.new_zeros((x.size(0),)),
    "keyword": lambda x: x.new_zeros(size=(x.size(0),)),
    "shape": lambda x: x.new_zeros(x.shape)[:, 0],
}


@pytest.mark.parametrize("zeros", SIZES.values(), ids=SIZES)
def test_counts_of_neighbours_begin_with_zeros_in_any_form(zeros: Callable[[Tensor], Tensor]) -> None:
    class Mean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(K, K)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            src, dst = edge_index
            count = zeros(x).index_add(0, dst, x.new_ones(dst.numel()))
            rows = x.new_zeros(x.shape).index_add(0, dst, self.lin(x)[src])
            return rows / count.clamp(min=1).unsqueeze(-1)

    layer = Mean().double()
    fast = dacergnn.optimize(layer, on_unsupported="error")
    for x, index in map(graph, *zip(*GRAPHS, strict=True)):
        assert_same(layer, fast, x, index)
    (forward,) = compiled_forwards(fast)
    assert forward.steps
    assert forward.reason is None

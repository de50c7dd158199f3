"""Layers that join rows of nodes with messages before they reduce both, as Bellman-Ford networks do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import scatter

import dacergnn

N, C, R = 7, 4, 3


class BellmanFord(MessagePassing):
    """Sends products with a vector of each relation; the boundary is one more message to each node."""

    def __init__(self, reduce: str = "sum", after: Callable[[Tensor], Tensor] = lambda joined: joined) -> None:
        super().__init__()
        self.relation, self.linear = nn.Embedding(R, C), nn.Linear(C, C)
        self.reduce, self.after = reduce, after

    def forward(self, x: Tensor, boundary: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x, boundary=boundary, edge_type=edge_type)

    def message(self, x_j: Tensor, boundary: Tensor, edge_type: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return torch.cat([x_j * self.relation(edge_type), boundary])

    def aggregate(self, inputs: Tensor, index: Tensor, dim_size: int) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        index = torch.cat([index, torch.arange(dim_size)])
        return scatter(self.after(inputs), index, dim=0, dim_size=dim_size, reduce=self.reduce)

    def update(self, inputs: Tensor, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return (self.linear(inputs) + x).relu()


class OtherOrder(BellmanFord):
    """Numbers the nodes from the last to the first."""

    def aggregate(self, inputs: Tensor, index: Tensor, dim_size: int) -> Tensor:
        index = torch.cat([index, torch.arange(dim_size).flip(0)])
        return scatter(inputs, index, dim=0, dim_size=dim_size, reduce="sum")


class Kept(BellmanFord):
    """Returns what was joined beside its sum."""

    def aggregate(self, inputs: Tensor, index: Tensor, dim_size: int) -> Tensor:
        self.joined = inputs
        return super().aggregate(inputs, index, dim_size)


def run(layer: nn.Module, seed: int) -> list[Tensor]:
    draws = torch.Generator().manual_seed(seed)
    edges, types = (torch.randint(n, size, generator=draws) for n, size in ((N, (2, 20 + seed)), (R, (20 + seed,))))
    x, boundary = torch.randn(2, N, C, dtype=torch.float64, generator=draws).requires_grad_().unbind()
    x, boundary = x.detach().requires_grad_(), boundary.detach().requires_grad_()
    result = layer(x, boundary, edges, types)
    return [result, *torch.autograd.grad(result.square().sum(), [x, boundary, *layer.parameters()])]


def assert_same(layer: nn.Module, compiled: nn.Module) -> None:
    for seed in (0, 0, 1):
        for a, b in zip(run(compiled, seed), run(layer, seed), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "nothing": lambda joined: joined,
    "arithmetic": lambda joined: (2 * joined + joined.tanh()).relu() - joined.mean(-1, keepdim=True),
    "parts": lambda joined: torch.cat([joined[:, 2:], joined[:, :2].detach()], dim=-1),
    "choice": lambda joined: torch.where(joined > 0, joined, joined.exp()),
}


@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_sums_of_messages_and_rows(name: str, reduce: str) -> None:
    layer = BellmanFord(reduce, FUNCTIONS[name]).double()
    assert_same(layer, dacergnn.optimize(layer, on_unsupported="error"))


@pytest.mark.parametrize(
    "layer",
    [
        BellmanFord("max"), OtherOrder(), Kept(),
        BellmanFord(after=lambda joined: joined + torch.ones(len(joined), 1)),
    ],
    ids=["maximum", "other order", "kept", "a tensor for both"],
)  # fmt: skip
def test_other_joins_run_in_torch(layer: nn.Module) -> None:
    layer = layer.double()
    assert_same(layer, dacergnn.optimize(layer, on_unsupported="error"))

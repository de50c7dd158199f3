"""Comparisons of values per edge, what they choose, and norms over features, in messages of users' layers."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

import dacergnn

N, C = 9, 6
MESSAGES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "where": lambda a, b: torch.where(b > a, b, 2 * a) + torch.where(b < 0.1, 0.0, b),
    "method": lambda a, b: b.where(b <= a, a * b) + b.masked_fill((a < 0) | (b < 0.3), -3.0),
    "arithmetic": lambda a, b: (b >= a) * b + (b != a).double() + (a > 0),
    "equal": lambda a, b: (b == a) * b + a,
    "logic": lambda a, b: torch.where(~(a > 0) & (b > 0) ^ (a < b), a, b) + torch.logical_or(a, b).double() * a,
    "mean of a mask": lambda a, b: (a > 0).double().mean(-1, keepdim=True) * b,
    "a column": lambda a, b: torch.where((a[:, 0] > 0).unsqueeze(-1).expand_as(a), a, b[:, :1]),
    "nan": lambda a, b: torch.where(torch.isnan(a / b), b, torch.where(torch.logical_not(b), b, a / b)),
    "infinities": lambda a, b: torch.where(torch.isinf(a / b), b, 2 * a) + torch.where(torch.isfinite(b / a), a, b),
    "which infinity": lambda a, b: (a / b == -math.inf) * b + (a / b != math.inf) * a,
    "sign": lambda a, b: torch.sign(a) * b,
    "sign alone": lambda a, b: torch.sign(a - b),
    "steps": lambda a, b: torch.round(3 * a) * b + torch.floor(b) * a + torch.ceil(a) * torch.trunc(3 * b),
    "log_softmax": lambda a, b: F.log_softmax(a - b, -1) + F.glu(torch.cat([a, b], -1)),
    "norms": lambda a, b: (a - b).norm(dim=-1, keepdim=True) * b + torch.linalg.vector_norm(a * b, dim=1).unsqueeze(-1),
    "normalize": lambda a, b: F.normalize(a + 2 * b, dim=-1),
}


class Layer(MessagePassing):
    """Sends a function of both ends of each edge; returns the sums of these and what ``edge_updater`` gives."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__(aggr="sum")
        self.function = function

    def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        return self.propagate(edge_index, x=x), self.edge_updater(edge_index, x=x)

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.function(x_i, x_j)

    def edge_update(self, x_i: Tensor, x_j: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return x_i > x_j


class Normed(Layer):
    """Has modules whose parameters belong to the channels of a message."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(lambda a, b: module(a - b))
        self.module = module


def run(layer: nn.Module, seed: int) -> list[Tensor]:
    """Sums, mask and gradients; some nodes are alike and one is zero, so that comparisons meet equal numbers."""
    draws = torch.Generator().manual_seed(seed)
    edges = torch.randint(N, (2, 30 + seed), generator=draws)
    x = torch.randn(N, C, dtype=torch.float64, generator=draws)
    x[0], x[1] = 0, x[2]
    x.requires_grad_()
    sums, mask = layer(x, edges)
    assert mask.dtype is torch.bool
    assert not mask.requires_grad
    (sums * torch.arange(C)).sum().backward()
    found = [x.grad, *[p.grad for p in layer.parameters()]]
    layer.zero_grad()
    return [sums, mask.double(), *[g for g in found if g is not None]]


def assert_same(layer: nn.Module) -> None:
    compiled = dacergnn.optimize(layer, on_unsupported="error")
    for seed in (0, 0, 1):
        expected, found = run(layer, seed), run(compiled, seed)
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9, equal_nan=True)


@pytest.mark.parametrize("name", MESSAGES)
def test_messages(name: str) -> None:
    assert_same(Layer(MESSAGES[name]))


MODULES = {
    "PReLU": nn.PReLU(),
    "PReLU of each channel": nn.PReLU(C),
    "GroupNorm": nn.GroupNorm(2, C),
    "GroupNorm of one channel": nn.GroupNorm(C, C),
    "InstanceNorm": nn.Sequential(nn.Unflatten(1, (2, C // 2)), nn.InstanceNorm1d(2, affine=True), nn.Flatten(1)),
    "InstanceNorm without weights": nn.Sequential(nn.Unflatten(1, (2, C // 2)), nn.InstanceNorm1d(2), nn.Flatten(1)),
}


@pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)
def test_modules(module: nn.Module) -> None:
    assert_same(Normed(module).double())


def test_a_constant_is_rounded_to_the_elements_that_it_is_compared_with() -> None:
    """As torch rounds it: 0.1 is larger than it seems in bfloat16, and there no number lies between both."""
    layer = Layer(lambda a, b: torch.where(b <= 0.1, a, 2 * a))
    x = torch.full((N, C), 0.1, dtype=torch.bfloat16)
    edges = torch.arange(N).repeat(2, 1)
    compiled = dacergnn.optimize(layer, on_unsupported="error")
    assert torch.equal(compiled(x, edges)[0], layer(x, edges)[0])


def test_masks_of_nodes_choose_for_edges() -> None:
    def message(a: Tensor, b: Tensor) -> Tensor:
        return torch.where(torch.tensor([True, False] * (C // 2)), a, b)

    assert_same(Layer(message))


def test_sums_of_masks_run_in_torch() -> None:
    """torch counts in integers, which programs do not have."""
    assert_same(Layer(lambda a, b: ((a > 0) + (b > 0)) * b))

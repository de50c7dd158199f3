"""Small graphs and features that the layers of coverage.md are called with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

N, E, K, M, D = 23, 90, 6, 8, 4
"""Nodes, edges, channels of nodes in and out, channels of edges."""
Case = Callable[[], tuple[nn.Module, tuple[Any, ...]]]
"""Makes a layer, and arguments for it."""


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape)


def x(channels: int = K) -> Tensor:
    return draw(N, channels)


def edges(count: int = E) -> Tensor:
    return torch.randint(0, N, (2, count))


def types(count: int, number: int) -> Tensor:
    return torch.randint(0, number, (count,))


def mlp(*channels: int) -> nn.Module:
    return nn.Sequential(nn.Linear(channels[0], channels[1]), nn.ReLU(), nn.Linear(channels[1], channels[-1]))

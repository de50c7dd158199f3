"""Provides what the examples share: a graph with features and labels, and a few steps of training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from dacergnn import HeteroGraph, datasets

Make = Callable[[HeteroGraph, int, int], nn.Module]


def small_problem(channels: int, classes: int, scale: float = 0.02) -> tuple[HeteroGraph, Tensor, Tensor]:
    """Makes a graph with the types of AIFB, node features [NS, channels] and labels [ND]."""
    graph = datasets.synthetic("aifb", scale).graph
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(graph.size("NS"), channels, generator=generator)
    return graph, x, torch.randint(classes, (graph.size("ND"),), generator=generator)


def train(forward: Callable[[], Tensor], parameters: Any, labels: Tensor, steps: int = 5) -> list[float]:
    """Returns the losses of gradient descent on the cross entropy of ``forward()``, [ND, classes]."""
    optimizer, losses = torch.optim.SGD(parameters, lr=0.1), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(forward(), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def demonstrate(make: Make) -> list[float]:
    """Trains ``make(graph, channels, classes)``, a module of the graph and x, and prints and returns the losses."""
    graph, x, labels = small_problem(16, 4)
    torch.manual_seed(0)
    net = make(graph, 16, 4)
    losses = train(lambda: net(graph, x), net.parameters(), labels)
    print(f"{make.__module__}: loss {', '.join(f'{loss:.4f}' for loss in losses)}")
    return losses

"""The networks that are measured, of the libraries' own layers: one, or two with an activation between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from dacergnn.bench.caching.task import Task
from dacergnn.bench.caching.workload import Workload

KERNELS = 3
"""Gaussians of a mixture model."""


@dataclass(frozen=True)
class Layer:
    """Features in and out of a layer, of each head where there are several; the last takes their mean."""

    inputs: int
    outputs: int
    heads: int
    last: bool


class Network(nn.Module):
    """Layers one after the other, called with features and what says how nodes are joined."""

    def __init__(self, layers: list[nn.Module], activation: nn.Module, graph_first: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.activation = activation
        self.graph_first = graph_first

    def forward(self, x: Tensor, graph: Any, *others: Tensor) -> Tensor:
        last = len(self.layers) - 1
        for position, layer in enumerate(self.layers):
            x = layer(graph, x, *others) if self.graph_first else layer(x, graph, *others)
            if position < last:
                x = self.activation(x)
        return x


def layers_of(task: Task, workload: Workload) -> list[Layer]:
    """The places of a task's layers."""
    features = workload.x.shape[1]
    if task.network == "layer":
        return [Layer(features, task.hidden, task.heads, last=False)]
    between = Layer(features, task.hidden, task.heads, last=False)
    return [between, Layer(task.hidden * task.heads, workload.classes, task.heads, last=True)]


def build(
    make: Callable[[str, Layer], nn.Module], task: Task, workload: Workload, *, graph_first: bool = False
) -> Network:
    """A task's network of the layers that ``make`` gives for a model's name and a place."""
    activation = nn.ELU() if task.heads > 1 else nn.ReLU()
    return Network([make(task.model, place) for place in layers_of(task, workload)], activation, graph_first)

"""Describes the networks that are measured: one layer, or two with an activation between them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from benchmarks.caching.workload import Workload

KERNELS = 3
"""Gaussians of a mixture model."""


@dataclass(frozen=True)
class Layer:
    """Holds a layer's input features and its output features for each head; the last layer takes the heads' mean."""

    inputs: int
    outputs: int
    heads: int
    last: bool


def layers_of(workload: Workload) -> list[Layer]:
    """Returns the layers of a task's network."""
    task, features = workload.task, workload.x.shape[1]
    first = Layer(features, task.hidden, task.heads, last=False)
    if task.network == "layer":
        return [first]
    return [first, Layer(task.hidden * task.heads, workload.classes, task.heads, last=True)]


def activation_of(workload: Workload) -> nn.Module:
    """Returns the activation between two layers, as in the papers."""
    return nn.ELU() if workload.task.heads > 1 else nn.ReLU()

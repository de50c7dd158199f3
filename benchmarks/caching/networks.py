"""Describes the networks that are measured: one layer, or two with an activation between them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from benchmarks.caching.workload import Workload


@dataclass(frozen=True)
class Layer:
    """Holds a layer's input features and its output features for each head; the last layer takes the heads' mean."""

    inputs: int
    outputs: int
    heads: int
    last: bool
    gaussians: tuple[int, int] = (3, 2)
    """Kernels of a mixture model, and their dimensions."""


def layers_of(workload: Workload) -> list[Layer]:
    """Returns the layers of a task's network."""
    task, inputs = workload.task, workload.x.shape[1]
    layers: list[Layer] = []
    for width in task.widths or (task.hidden,):
        layers.append(Layer(inputs, width, task.heads, last=False, gaussians=task.gaussians))
        inputs = width * task.heads
    if task.network == "layer" or task.widths:
        return layers
    return [*layers, Layer(inputs, workload.classes, task.heads, last=True, gaussians=task.gaussians)]


def activation_of(workload: Workload) -> nn.Module:
    """Returns the activation between two layers, as in the papers."""
    return nn.ELU() if workload.task.heads > 1 else nn.ReLU()

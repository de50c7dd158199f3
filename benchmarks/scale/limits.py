"""Compares the training steps of a layer on a graph by their limits of memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from dacergnn import datasets
from dacergnn.bench.calls import deviation
from dacergnn.bench.runner import Experiment, Ready
from dacergnn.cli.named_layers import native_layer
from dacergnn.config import Config
from dacergnn.graph import HeteroGraph
from dacergnn.json_lines import Row
from dacergnn.modules.compiled_parts import compiled_parts
from dacergnn.modules.ways.memory_limit import largest_division


@dataclass(frozen=True)
class WithinLimits(Experiment[str]):
    """Compares steps within limits, as `Config(memory=...)` takes them, with those without one, which is ""."""

    model: str
    data: str
    hidden: int

    def __str__(self) -> str:
        return f"{self.model} on {self.data}"

    @cached_property
    def inputs(self) -> tuple[HeteroGraph, Tensor]:
        """Returns the graph and random features."""
        torch.manual_seed(0)
        graph = datasets.resolve(self.data).graph
        return graph, torch.randn(graph.size("NS"), self.hidden, requires_grad=True)

    def like(self) -> WithinLimits:
        """Returns an experiment on the same graph, read again."""
        return replace(self)

    def ready(self, candidate: str) -> Ready:
        """Returns the steps within a limit."""
        graph, x = self.inputs
        torch.manual_seed(1)
        layer: Any = native_layer(self.model, graph, self.hidden, 1, Config(memory=candidate or None))

        def step() -> list[Tensor]:
            result = layer(x, graph)
            gradients = torch.autograd.grad(result, [x, *layer.parameters()], torch.ones_like(result))
            return [result.detach(), *gradients]

        def check() -> float:
            pairs = zip(step(), self._expected, strict=True) if candidate else ()
            return max((deviation(found, expected) for found, expected in pairs), default=0.0)

        def facts() -> Row:
            call = compiled_parts(layer)[0].part.last_call
            division = None if call is None else largest_division(call[0], graph)
            assert division is not None, "the layer has run"
            return {"estimate": division.need, "ranges": 1 if division.ranges is None else len(division.ranges)}

        return Ready({"train": step}, check, facts, math.inf)

    @cached_property
    def _expected(self) -> list[Tensor]:
        """Returns results and gradients without a limit; copies are no memory of the pool, which limits count."""
        return [tensor.double() for tensor in self.ready("").steps["train"]()]

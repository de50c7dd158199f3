"""Measures the steps of a layer on a graph, with limits of memory or for its peak."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from dacergnn import datasets
from dacergnn.bench.memory import peak_growth, resident, return_freed, settle
from dacergnn.cli.named_layers import native_layer
from dacergnn.config import Config
from dacergnn.errors import MemoryLimitError
from dacergnn.graph import HeteroGraph
from dacergnn.modules.compiled_parts import compiled_parts
from dacergnn.modules.ways.memory_limit import largest_division
from dacergnn.runtime.pool import POOL

Step = Callable[[], list[Tensor]]


def _data(request: dict[str, Any]) -> tuple[HeteroGraph, Tensor]:
    torch.manual_seed(0)
    graph = datasets.resolve(request["data"]).graph
    return graph, torch.randn(graph.size("NS"), request["hidden"], requires_grad=True)


def peak(request: dict[str, Any], limit: str) -> dict[str, Any]:
    """Returns the peak of a step within a limit, "" for none, its estimate, and the number of ranges."""
    graph, x = _data(request)
    layer, step = _made(request, graph, x, limit)
    return_freed()
    settle()
    before = resident()
    step()
    POOL.clear()
    settle()
    kept = max(resident() - before, 0)
    growth, _ = peak_growth(step)
    call = compiled_parts(layer)[0].part.last_call
    division = None if call is None else largest_division(call[0], graph)
    assert division is not None, "the layer has run"
    ranges = 1 if division.ranges is None else len(division.ranges)
    return {"peak": kept + growth, "estimate": division.need, "ranges": ranges}


def times(request: dict[str, Any], limits: list[str]) -> dict[str, Any]:
    """Returns the seconds of a step and its difference from the first limit's, by limit."""
    graph, x = _data(request)
    steps = {limit: _made(request, graph, x, limit)[1] for limit in limits}
    first: dict[str, list[Tensor]] = {}
    answers: dict[str, Any] = {}
    for limit in limits:
        try:
            # Copies are no memory of the pool, of which a limited layer would have less.
            first[limit] = [tensor.clone() for tensor in steps[limit]()]
        except MemoryLimitError as error:
            answers[limit] = {"error": str(error)}
    seconds: dict[str, list[float]] = {limit: [] for limit in first}
    for _ in range(request["steps"]):
        for limit in first:
            start = perf_counter()
            steps[limit]()
            seconds[limit].append(perf_counter() - start)
    for limit, found in first.items():
        answers[limit] = {"seconds": median(seconds[limit]), "difference": _difference(found, first[limits[0]])}
    return answers


def _made(request: dict[str, Any], graph: HeteroGraph, x: Tensor, limit: str) -> tuple[Any, Step]:
    """Returns a layer, and a function that makes a training step and returns the result and the gradients."""
    torch.manual_seed(1)
    layer = native_layer(request["model"], graph, request["hidden"], 1, Config(memory=limit or None))

    def step() -> list[Tensor]:
        result = layer(x, graph)
        gradients = torch.autograd.grad(result, [x, *layer.parameters()], torch.ones_like(result))
        return [result.detach(), *gradients]

    return layer, step


def _difference(found: list[Tensor], expected: list[Tensor]) -> float:
    """Returns the largest difference, relative to the largest value of its array."""
    pairs = zip(found, expected, strict=True)
    return max(float((a - b).abs().max() / b.abs().max().clamp_min(1e-30)) for a, b in pairs if b.numel())

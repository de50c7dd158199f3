"""Running a case and comparing what comes out: outputs, gradients of inputs and of parameters."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.frontends.cases import Case

MODULES = {"pyg": "torch_geometric", "dgl": "dgl"}
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


def skip_without_library(case: Case) -> None:
    """Skip the test where the library of the case is not installed."""
    if importlib.util.find_spec(MODULES[case.library]) is None:
        pytest.skip(f"{MODULES[case.library]} is not installed (dgl 1.1.3 needs Python 3.11)")


def tensors(value: object) -> Iterator[Tensor]:
    """The floating-point tensors in nested tuples and dictionaries."""
    if isinstance(value, Tensor) and value.is_floating_point():
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from tensors(item)


def run(call: Callable[..., Any], layer: nn.Module, arguments: Any) -> tuple[Any, list[Tensor | None]]:
    """Result of `call` and gradients of all inputs and parameters, for fixed random gradients of it."""
    args, kwargs = arguments
    torch.manual_seed(11)
    result = call(*args, **kwargs)
    outputs = list(tensors(result))
    leaves = [t for t in (*tensors(args), *tensors(kwargs)) if t.requires_grad] + list(layer.parameters())
    generator = torch.Generator().manual_seed(13)
    weights = [torch.randn(t.shape, generator=generator, dtype=torch.float64).to(t.dtype) for t in outputs]
    loss = sum((t * w).sum() for t, w in zip(outputs, weights, strict=True))
    assert isinstance(loss, Tensor)
    return result, list(torch.autograd.grad(loss, leaves, allow_unused=True))


def assert_same(found: Any, expected: Any, dtype: torch.dtype) -> None:
    """Equal structure and values, relative to the largest of each tensor; no gradient counts as zero."""
    if isinstance(expected, dict):
        assert list(found) == list(expected)
    pairs = zip(_flat(found), _flat(expected), strict=True)
    for position, (a, b) in enumerate(pairs):
        if a is None and b is None:
            continue
        a, b = (torch.zeros_like(b) if a is None else a), (torch.zeros_like(a) if b is None else b)
        assert a.shape == b.shape, f"tensor {position}: shape {list(a.shape)}, expected {list(b.shape)}"
        if not b.numel():
            continue
        error = (a.double() - b.double()).abs().max().item()
        scale = max(1.0, b.abs().max().item())
        assert error <= TOLERANCE[dtype] * scale, f"tensor {position} of shape {list(a.shape)} is off by {error}"


def _flat(value: Any) -> list[Tensor | None]:
    if isinstance(value, dict):
        return list(value.values())
    return [part for item in value for part in _flat(item)] if isinstance(value, tuple | list) else [value]

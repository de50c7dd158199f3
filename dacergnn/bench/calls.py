"""Makes the calls that are timed, a model's forward alone or with a backward, and compares what they return."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

NO_OPTIONS: Mapping[str, Any] = {}


def leaves_of(model: nn.Module, arguments: Any) -> list[Tensor]:
    """Returns the arguments and, in the order of their names, the parameters that get gradients."""
    given = [t for t in tree_leaves(arguments) if isinstance(t, Tensor)]
    return [t for t in (*given, *dict(sorted(model.named_parameters())).values()) if t.requires_grad]


def random_like(result: Tensor) -> Tensor:
    """Returns random numbers in the form of a result, the same for all of this form."""
    return torch.randn(result.shape, generator=torch.Generator().manual_seed(1)).to(result)


def training_step(
    model: nn.Module,
    arguments: tuple[Any, ...],
    options: Mapping[str, Any] = NO_OPTIONS,
    seed: Callable[[Tensor], Tensor] = torch.ones_like,
) -> Callable[[], tuple[list[Tensor], list[Tensor]]]:
    """Returns a function that runs a call, and the backward of its results if they need one.

    It returns the results and the gradients of `leaves_of`.

    Args:
        seed: Makes the gradient of a result, once for all calls.
    """
    leaves = leaves_of(model, (arguments, options))
    seeds: list[Tensor] = []

    def step() -> tuple[list[Tensor], list[Tensor]]:
        outputs = [t for t in tree_leaves(model(*arguments, **options)) if isinstance(t, Tensor)]
        results = [t for t in outputs if t.requires_grad]
        if not results or not leaves:
            return outputs, []
        if [s.shape for s in seeds] != [r.shape for r in results]:  # made once, since it takes time
            seeds[:] = [seed(r) for r in results]
        found: Any = torch.autograd.grad(results, leaves, seeds, allow_unused=True)
        pairs = zip(found, leaves, strict=True)
        return outputs, [torch.zeros_like(leaf) if gradient is None else gradient for gradient, leaf in pairs]

    return step


def inference(model: nn.Module, arguments: tuple[Any, ...]) -> Callable[[], Any]:
    """Returns a function that runs a call without gradients."""

    def call() -> Any:
        with torch.no_grad():
            return model(*arguments)

    return call


def deviation(value: Tensor, expected: Tensor) -> float:
    """Returns the largest difference, relative to the largest expected value; infinite where a value is no number."""
    if expected.numel() == 0:
        return 0.0
    scale = max(float(expected.abs().max()), 1e-30)
    difference = float((value.double() - expected).abs().max()) / scale
    return math.inf if math.isnan(difference) else difference

"""How tests of compatibility compare a compiled layer with its original."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.compatibility.kinds import KINDS, Kind, named, outputs

ORIGINALS = [k for k in KINDS if not k.own]
every_original = pytest.mark.parametrize("kind", ORIGINALS, ids=named)
every_kind = pytest.mark.parametrize("kind", KINDS, ids=named)


def losses(kind: Kind, module: nn.Module, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """One number for each result of a call."""
    return [part.square().sum() for part in outputs(module(*kind.arguments(dtype)))]


def gradients(module: nn.Module) -> list[Tensor | None]:
    return [p.grad for p in module.parameters()]


def outcome(kind: Kind, module: nn.Module, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Results of a call, and gradients by its features and all parameters, zeros where there is none."""
    features = [x.to(dtype).requires_grad_() for x in kind.features()]
    results = outputs(module(*kind.call(*features)))
    weights = [torch.linspace(-1, 1, part.numel(), dtype=part.dtype).view(part.shape) for part in results]
    total = torch.stack([(part * weight).sum() for part, weight in zip(results, weights, strict=True)]).sum()
    found = torch.autograd.grad(total, [*features, *module.parameters()], materialize_grads=True)
    return [*(part.detach() for part in results), *found]


def assert_same(found: Any, expected: Any, tolerance: float = 1e-9) -> None:
    found, expected = ([*v] if isinstance(v, (list, tuple)) else [v] for v in (found, expected))
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def assert_same_calls(kind: Kind, fast: nn.Module, original: nn.Module) -> None:
    """Equal results, or an error where the original has one."""
    try:
        expected = outputs(original(*kind.arguments()))
    except Exception:
        with pytest.raises(Exception):  # noqa: B017, PT011
            fast(*kind.arguments())
    else:
        assert_same(outputs(fast(*kind.arguments())), expected)

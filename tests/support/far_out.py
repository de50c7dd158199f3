"""Operands from one end of the floating-point numbers to the other, and how far results there may be off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

Function = Callable[[Any], Any]
ULPS = 4
SEED = 2.0
"""Where gradients start from: not 1, which some mistakes leave unseen."""
WIDTH = 16
"""Numbers in a row: loops over so many run in vectors."""
_NEIGHBOURS = 8
_SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan)


def _logistic(x: Any) -> Any:
    power = np.exp(-np.abs(x))
    return np.where(x < 0, power, 1) / (1 + power)


def _softened(x: Any) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


_EXACT: dict[str, tuple[Function, Function]] = {
    "exp": (np.exp, np.exp), "expm1": (np.expm1, np.exp), "log": (np.log, lambda x: 1 / x),
    "log1p": (np.log1p, lambda x: 1 / (1 + x)), "sqrt": (np.sqrt, lambda x: 0.5 / np.sqrt(x)),
    "tanh": (np.tanh, lambda x: 1 / np.square(np.cosh(x))),
    "sigmoid": (_logistic, lambda x: _logistic(x) * _logistic(-x)),
    "logsigmoid": (lambda x: -_softened(-x), lambda x: _logistic(-x)),
    "silu": (lambda x: x * _logistic(x), lambda x: _logistic(x) * (1 + x * _logistic(-x))),
    "softplus": (_softened, _logistic),
    "softplus of twice": (lambda x: _softened(2 * x) / 2, lambda x: _logistic(2 * x)),
    "softplus of minus a half": (lambda x: _softened(-x / 2) * -2, lambda x: _logistic(-x / 2)),
    "elu": (lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))), lambda x: np.exp(np.minimum(x, 0))),
    "log of sigmoid": (lambda x: -_softened(-x), lambda x: _logistic(-x)),
    "log of softplus": (lambda x: np.log(_softened(x)), lambda x: _logistic(x) / _softened(x)),
}  # fmt: skip
"""Values and slopes, for operands of extended precision."""


def operands(dtype: torch.dtype) -> Tensor:
    """[rows, WIDTH] numbers in order: all magnitudes, where functions change their form, the smallest, what is none."""
    limits = torch.finfo(dtype)
    sizes = np.concatenate([
        np.linspace(0, 20, 641), np.linspace(20, 120, 201), np.linspace(0, 1e-2, 101), np.geomspace(1e-30, 1e30, 301),
        np.geomspace(limits.smallest_normal * limits.eps, limits.smallest_normal, 60), [1e38, 700, 720, 745, 750],
    ])  # fmt: skip
    numbers = torch.tensor(np.unique([*sizes, *-sizes])).to(dtype)
    return _in_rows(torch.cat([numbers, torch.tensor(_SPECIAL, dtype=dtype)]))


def pairs(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Two times [rows, WIDTH] numbers: each of some with each, equal ones among them."""
    limits = torch.finfo(dtype)
    sizes = [1e-30, 1e-25, 1e-20, 1e-12, 1e-6, 0.1, 0.75, 1.0, 3.0, 20.0, 1e6, 1e12, 1e20, 1e25, 1e30, limits.max]
    sizes += [limits.smallest_normal, limits.smallest_normal * limits.eps, 37 * limits.smallest_normal * limits.eps]
    numbers = torch.tensor([*sizes, *(-s for s in sizes), *_SPECIAL], dtype=torch.float64).to(dtype)
    first, second = torch.meshgrid(numbers, numbers, indexing="ij")
    return _in_rows(first.flatten()), _in_rows(second.flatten())


def exactly(name: str, order: int, x: Tensor, given: Tensor) -> Any:
    """Values (order 0) or gradients (1) of a function where torch's float64, which is given, is not exact enough."""
    extended, exact = x.detach().double().numpy().astype(np.longdouble), given.detach().numpy()
    if name not in _EXACT:
        return exact
    with np.errstate(all="ignore"):
        formula = _EXACT[name][order](extended) * (SEED if order else 1)
    return np.where(np.isfinite(extended) & (extended != 0), formula, exact.astype(np.longdouble))


def assert_as_accurate(found: Any, given: Any, exact: Any, what: str, own: Any = 0, steps: int = 1) -> None:
    """Check that results are torch's, or within 4 ulp of the exact ones for each step, or no further off than torch's.

    Torch's error is the largest of neighbouring operands, times two: where it is is a matter of luck.

    Args:
        found: Results in question.
        given: Torch's results of the same type.
        exact: Results of a wider type.
        own: Errors of torch in ulps that count besides those of ``given``.
        steps: How many functions follow each other.
    """
    found, given, exact = (_array(a).reshape(-1) for a in (found, given, exact))
    theirs = np.maximum(errors(given, exact), own)
    around = np.pad(np.where(np.isfinite(theirs), theirs, 0), _NEIGHBOURS)
    allowed = np.maximum(theirs, np.lib.stride_tricks.sliding_window_view(around, 2 * _NEIGHBOURS + 1).max(axis=1))
    same = (found == given) | (np.isnan(found) & np.isnan(given))
    bad = np.flatnonzero(~same & (errors(found, exact) > np.maximum(steps * ULPS, 2 * allowed)))
    few = [f"{i}: {found[i]!r}, torch {given[i]!r}, exactly {exact[i]!r}" for i in bad[:: max(1, len(bad) // 5)]]
    assert not len(bad), f"{what}, {len(bad)} of {len(found)}: " + "; ".join(few)


def errors(values: Any, exact: Any) -> Any:
    """How far values are off, in units of the last place of the exact ones; infinite where one of two is no number."""
    values, exact = (_array(a).reshape(-1) for a in (values, exact))
    with np.errstate(all="ignore"):
        rounded = exact.astype(values.dtype)
        same = (values == rounded) | (np.isnan(values) & np.isnan(rounded))
        found = np.abs(values.astype(exact.dtype) - exact) / np.spacing(np.abs(rounded)).astype(exact.dtype)
    return np.where(same, 0, np.where(np.isnan(found), np.inf, found)).astype(np.float64)


def _array(values: Any) -> Any:
    return values.detach().numpy() if isinstance(values, Tensor) else np.asarray(values)


def _in_rows(numbers: Tensor) -> Tensor:
    missing = -len(numbers) % WIDTH
    return torch.cat([numbers, numbers.new_ones(missing)]).view(-1, WIDTH)

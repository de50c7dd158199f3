"""Operations of ATen as the functions of torch that recorded values know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dacergnn.frontends.symbolic.expr import Untranslatable
from dacergnn.frontends.symbolic.indexing import INDEXING
from dacergnn.frontends.symbolic.record import RULE_MODULES as RULE_MODULES  # these register all rules
from dacergnn.frontends.symbolic.table import RULES

_SAME = frozenset(("clone", "contiguous", "detach", "to", "dropout"))
"""Operations whose results hold the same numbers; they need no function."""


def _vector_norm(x: Tensor, order: float = 2, dim: Any = None, keepdim: bool = False) -> Tensor:
    if order == 2:
        return torch.sqrt(torch.sum(torch.mul(x, x), dim, keepdim))
    if order == 1:
        return torch.sum(torch.abs(x), dim, keepdim)
    raise Untranslatable


def _batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, variance: Tensor, *rest: Any
) -> Tensor:
    eps = [number for number in rest if isinstance(number, float)][-1]
    scale = (variance + eps).rsqrt() * (1 if weight is None else weight)
    shift = -mean * scale if bias is None else bias - mean * scale
    shape = (1, -1, *[1] * (x.dim() - 2))
    return torch.add(torch.mul(x, scale.view(shape)), shift.view(shape))


def _addmm(bias: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    return torch.add(torch.mm(x, weight), bias)


def _narrow(x: Tensor, dim: int = 0, start: int | None = 0, end: int | None = None, step: int = 1) -> Tensor:
    if step != 1:
        raise Untranslatable
    size = x.shape[dim]
    start, end = _place(start or 0, size), size if end is None else _place(end, size)
    return torch.narrow(x, dim, start, max(end - start, 0))


def _place(index: int, size: int) -> int:
    return min(max(index + size, 0) if index < 0 else index, size)


def _index(x: Tensor, indices: list[Any]) -> Tensor:
    if len(indices) != 1:
        raise Untranslatable
    return x[indices[0]]


_FORMS: dict[str, Callable[..., Any]] = {
    "linalg_vector_norm": _vector_norm,
    "batch_norm": _batch_norm,
    "_native_batch_norm_legit_no_training": lambda *args: (_batch_norm(*args),),
    "layer_norm": lambda x, shape, weight=None, bias=None, eps=1e-5, *_: F.layer_norm(x, shape, weight, bias, eps),
    "addmm": _addmm,
    "slice": _narrow,
    "_softmax": lambda x, dim, half: torch.softmax(x, dim),
    "_unsafe_view": Tensor.view,
    "index": _index,
    "embedding": lambda weight, index, *_: F.embedding(index, weight),
}
"""Operations without a rule of their own, as other functions of torch, by their names in ATen."""


def function_of(target: Any) -> Callable[..., Any] | None:
    """Returns the function of torch that an operation of ATen stands for, if it may have a form in programs."""
    name: str = target._schema.name.partition("::")[2]
    if name in _FORMS:
        return _FORMS[name]
    if name in _SAME:
        return None
    for owner in (torch, F, Tensor):
        function = getattr(owner, name, None)
        if function is not None and (function in RULES or function in INDEXING):
            return function
    return None

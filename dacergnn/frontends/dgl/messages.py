"""Computes what DGL does along edges, in functions of torch that captured graphs hold as programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from dacergnn.frontends.dgl.ends import Ends

_SIDES = {"u": "src", "v": "dst"}


def at(ends: Ends, target: str, data: Tensor) -> Tensor:
    """Returns values for each edge: those of its source ("u"), of its destination ("v") or its own ("e")."""
    return data[ends.index(_SIDES[target])] if target in _SIDES else data


def combined(op: str, left: Any, right: Any) -> Tensor:
    """Returns messages of two values for each edge, by an operator of DGL; dimensions are padded behind the first."""
    if op == "copy_lhs":
        return left
    if op == "copy_rhs":
        return right
    width = max(left.dim(), right.dim())
    left, right = _padded(left, width), _padded(right, width)
    if op == "add":
        return left + right
    if op == "sub":
        return left - right
    if op == "mul":
        return left * right
    if op == "div":
        return left / right
    return left * right if width == 1 else (left * right).sum(-1, keepdim=True)


def _padded(value: Tensor, dims: int) -> Tensor:
    if value.dim() == dims:
        return value
    return value.view(value.shape[0], *[1] * (dims - value.dim()), *value.shape[1:])


def reduced(ends: Ends, values: Tensor, reduction: str, side: str = "dst") -> Tensor:
    """Reduces values of edges to nodes by "sum", "mean", "max" or "min"; nodes without edges hold zeros."""
    if reduction == "mean":
        counts = degrees(ends, side, values.dtype).clamp(min=1.0)
        return reduced(ends, values, "sum", side) / counts.view(-1, *[1] * (values.dim() - 1))
    return _reduced(values, ends.index(side), ends.count(side), reduction)


def _reduced(values: Tensor, index: Tensor, count: int, reduction: str) -> Tensor:
    zeros = torch.zeros((count, *values.shape[1:]), dtype=values.dtype, device=values.device)
    if reduction == "sum":
        return zeros.index_add(0, index, values)
    index = index.view(-1, *[1] * (values.dim() - 1)).expand_as(values)
    return zeros.scatter_reduce(0, index, values, f"a{reduction}", include_self=False)


def infinite(ends: Ends, values: Tensor, reduction: str) -> Tensor:
    """Returns the largest or smallest messages with infinities at nodes that no edge leads to, as DGL's kernels do."""
    if ends.reached is None or reduction not in ("max", "min"):
        return values
    reached = ends.reached.view(-1, *[1] * (values.dim() - 1))
    return torch.where(reached, values, -torch.inf if reduction == "max" else torch.inf)


def degrees(ends: Ends, side: str, dtype: torch.dtype) -> Tensor:
    """Returns how many edges each node has at one end."""
    index = ends.index(side)
    ones = torch.ones(index.shape[0], dtype=dtype, device=index.device)
    return torch.zeros(ends.count(side), dtype=dtype, device=index.device).index_add(0, index, ones)


def softmax(logits: Tensor, index: Tensor, count: int) -> Tensor:
    """Returns the softmax over all values with the same number in an index of ``count`` numbers."""
    grown = torch.exp(logits - _reduced(logits.detach(), index, count, "max")[index])
    return grown / _reduced(grown, index, count, "sum")[index]


def built_in(ends: Ends, function: Any, frames: Mapping[str, Mapping[str, Any]]) -> Tensor:
    """Returns the messages of a function of `dgl.function`.

    Args:
        frames: Columns of sources, destinations and edges, by "u", "v" and "e".
    """
    name: str = function.name
    if name.startswith("copy_"):
        target = name[-1]
        return at(ends, target, frames[target][function.in_field])
    lhs, op, rhs = name.split("_")
    left, right = frames[lhs][function.lhs_field], frames[rhs][function.rhs_field]
    return combined(op, at(ends, lhs, left), at(ends, rhs, right))

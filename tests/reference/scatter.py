"""Gather and scatter steps that the restatements share, on dense tensors, differentiable by autograd."""

from __future__ import annotations

import torch
from torch import Tensor


def scatter_sum(values: Tensor, index: Tensor, count: int) -> Tensor:
    """[count, ...]: row i is the sum of the rows of `values` whose index is i."""
    return values.new_zeros(count, *values.shape[1:]).index_add(0, index, values)


def scatter_count(index: Tensor, count: int, like: Tensor) -> Tensor:
    """[count]: how often each index occurs, in the dtype of `like`."""
    return torch.bincount(index, minlength=count).to(like.dtype)


def scatter_extreme(values: Tensor, index: Tensor, count: int, reduce: str) -> Tensor:
    """[count, ...]: largest ("amax") or smallest ("amin") row; 0 where an index does not occur."""
    wide = index.view(-1, *[1] * (values.dim() - 1)).expand_as(values)
    zeros = values.new_zeros(count, *values.shape[1:])
    return zeros.scatter_reduce(0, wide, values, reduce, include_self=False)


def scatter_softmax(values: Tensor, index: Tensor, count: int) -> Tensor:
    """Softmax over the rows of each index, column by column."""
    largest = scatter_extreme(values.detach(), index, count, "amax")
    powers = (values - largest[index]).exp()
    return powers / scatter_sum(powers, index, count)[index]


def typed_linear(x: Tensor, weight: Tensor, types: Tensor) -> Tensor:
    """Row i of x [N, K] (or [N, H, K]) times weight[types[i]], [T, K, M] (or [T, H, K, M])."""
    order = torch.argsort(types, stable=True)
    bounds = torch.bincount(types, minlength=weight.size(0)).tolist()
    equation = "nk,km->nm" if weight.dim() == 3 else "nhk,hkm->nhm"
    parts = [torch.einsum(equation, part, w) for part, w in zip(x[order].split(bounds), weight, strict=True)]
    return torch.cat(parts)[torch.argsort(order)]

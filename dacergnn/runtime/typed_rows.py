"""Joins and splits rows that users hold as one tensor for each type: differentiably, in memory of the pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dacergnn.runtime.dynamo import skipped_by_dynamo
from dacergnn.runtime.pool import SMALL, has_memory, leased
from dacergnn.runtime.transformed import is_transformed


def join_rows(parts: Sequence[Tensor]) -> Tensor:
    """Returns `torch.cat` of rows; many rows go to used memory of the pool, which costs less than fresh memory."""
    if torch.compiler.is_compiling() or sum(part.nbytes for part in parts) < SMALL or not _in_memory(parts):
        return torch.cat(list(parts))
    return _Join.apply(*parts)  # pyright: ignore[reportUnknownMemberType, reportReturnType]


def split_rows(rows: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    """Returns `torch.split` of rows that nobody else reads, so that the parts need not be views, and may be written to.

    Their gradients are joined once; the gradient of a slice would be as large as all rows.
    """
    if torch.compiler.is_compiling() or is_transformed():
        return rows.split_with_sizes(list(sizes))
    if not rows.requires_grad or rows.nbytes < SMALL or not _in_memory([rows]):
        return rows.unsafe_split_with_sizes(list(sizes))
    return _Split.apply(rows, tuple(sizes))  # pyright: ignore[reportUnknownMemberType, reportReturnType]


def _in_memory(tensors: Sequence[Tensor]) -> bool:
    if torch.compiler.is_compiling() or is_transformed() or len({t.dtype for t in tensors}) > 1:
        return False
    return all(has_memory(t) for t in map(torch.detach, tensors))


def _together(parts: Sequence[Tensor]) -> Tensor:
    rows = leased((sum(map(len, parts)), *parts[0].shape[1:]), parts[0].dtype)
    return torch.cat(list(parts), out=rows) if has_memory(rows) else torch.cat(list(parts))


class _Join(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *parts: Tensor) -> Tensor:
        ctx.sizes = [len(part) for part in parts]
        return _together(parts)

    @staticmethod
    @skipped_by_dynamo
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        return gradients[0].split(ctx.sizes)


class _Split(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, sizes: tuple[int, ...]) -> tuple[Tensor, ...]:
        return rows.unsafe_split_with_sizes(list(sizes))

    @staticmethod
    @skipped_by_dynamo
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return join_rows(gradients), None

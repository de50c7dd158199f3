"""Multiplies rows by the weight of their type: type by type, batched over types of similar size, or in groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from benchmarks.relational.plain_ops import call


class _TypedMatmul(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, sizes: list[int]) -> Tensor:
        ctx.save_for_backward(rows, weight)
        ctx.sizes = sizes
        out = rows.new_empty(rows.shape[0], weight.shape[2])
        for x, w, y in zip(rows.split(sizes), weight.unbind(), out.split(sizes), strict=True):
            torch.mm(x, w, out=y)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        rows, weight = ctx.saved_tensors
        sizes = ctx.sizes
        d_rows = d_weight = None
        grads = grad.contiguous().split(sizes)
        if ctx.needs_input_grad[0]:
            d_rows = torch.empty_like(rows, memory_format=torch.contiguous_format)
            for g, w, y in zip(grads, weight.unbind(), d_rows.split(sizes), strict=True):
                torch.mm(g, w.t(), out=y)
        if ctx.needs_input_grad[1]:
            d_weight = torch.empty_like(weight, memory_format=torch.contiguous_format)
            for g, x, y in zip(grads, rows.split(sizes), d_weight.unbind(), strict=True):
                torch.mm(x.t(), g, out=y)
        return d_rows, d_weight, None


@dataclass(frozen=True)
class Bucket:
    """Describes the rows from `start` on: `types` types of `rows` rows each."""

    start: int
    types: int
    rows: int

    def view(self, rows: Tensor) -> Tensor:
        """Returns the bucket's part of the rows as [types, rows, features]."""
        part = rows[self.start : self.start + self.types * self.rows]
        return part.view(self.types, self.rows, rows.shape[1])


class _PaddedMatmul(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, buckets: tuple[Bucket, ...]) -> Tensor:
        ctx.save_for_backward(rows, weight)
        ctx.buckets = buckets
        out = rows.new_empty(rows.shape[0], weight.shape[2])
        for bucket, w in _with_weights(buckets, weight):
            torch.bmm(bucket.view(rows), w, out=bucket.view(out))
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        rows, weight = ctx.saved_tensors
        grad = grad.contiguous()
        d_rows = d_weight = None
        if ctx.needs_input_grad[0]:
            d_rows = torch.empty_like(rows)
            for bucket, w in _with_weights(ctx.buckets, weight):
                torch.bmm(bucket.view(grad), w.transpose(1, 2), out=bucket.view(d_rows))
        if ctx.needs_input_grad[1]:
            d_weight = torch.empty_like(weight)
            for bucket, w in _with_weights(ctx.buckets, d_weight):
                torch.bmm(bucket.view(rows).transpose(1, 2), bucket.view(grad), out=w)
        return d_rows, d_weight, None


def _with_weights(buckets: tuple[Bucket, ...], weight: Tensor) -> Iterator[tuple[Bucket, Tensor]]:
    return zip(buckets, weight.split([bucket.types for bucket in buckets]), strict=True)


def typed_matmul(rows: Tensor, weight: Tensor, sizes: list[int]) -> Tensor:
    """Multiplies rows [n, k], sorted by type with sizes[t] of type t, by weight [types, k, m] -> [n, m]."""
    return call(_TypedMatmul, rows, weight, sizes)


def padded_matmul(rows: Tensor, weight: Tensor, buckets: tuple[Bucket, ...]) -> Tensor:
    """Multiplies rows [n, k] in buckets by weight [types, k, m], which is in the order of the buckets -> [n, m]."""
    return call(_PaddedMatmul, rows, weight.contiguous(), buckets)


def grouped_matmul(rows: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """Multiplies rows [n, k], sorted by type with type t up to ends[t] (int32), by weight [types, k, m] -> [n, m].

    Torch runs one kernel on devices that have one for the element type, mainly for bfloat16.
    """
    return torch.ops.aten._grouped_mm(rows, weight, ends)

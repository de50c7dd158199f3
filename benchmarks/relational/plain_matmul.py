"""Multiplies rows by the weight of their type: type by type, batched over types of similar size, or in groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from benchmarks.relational.plain_ops import call


@dataclass(frozen=True)
class _Parts:
    """Says how rows and weights are cut into the factors of products."""

    rows: Callable[[Tensor], Sequence[Tensor]]
    weights: Callable[[Tensor], Sequence[Tensor]]
    product: Callable[..., Tensor]

    def write(self, left: Sequence[Tensor], right: Sequence[Tensor], out: Sequence[Tensor]) -> None:
        """Multiplies factors into the parts of a result."""
        for a, b, c in zip(left, right, out, strict=True):
            self.product(a, b, out=c)


class _Products(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, parts: _Parts) -> Tensor:
        ctx.save_for_backward(rows, weight)
        ctx.parts = parts
        out = rows.new_empty(rows.shape[0], weight.shape[2])
        parts.write(parts.rows(rows), parts.weights(weight), parts.rows(out))
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        rows, weight = ctx.saved_tensors
        parts: _Parts = ctx.parts
        d_rows = d_weight = None
        grads = parts.rows(grad.contiguous())
        if ctx.needs_input_grad[0]:
            d_rows = torch.empty_like(rows, memory_format=torch.contiguous_format)
            parts.write(grads, [w.mT for w in parts.weights(weight)], parts.rows(d_rows))
        if ctx.needs_input_grad[1]:
            d_weight = torch.empty_like(weight, memory_format=torch.contiguous_format)
            parts.write([x.mT for x in parts.rows(rows)], grads, parts.weights(d_weight))
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


def typed_matmul(rows: Tensor, weight: Tensor, sizes: list[int]) -> Tensor:
    """Multiplies rows [n, k], sorted by type with sizes[t] of type t, by weight [types, k, m] -> [n, m]."""
    return call(_Products, rows, weight, _Parts(lambda whole: whole.split(sizes), Tensor.unbind, torch.mm))


def padded_matmul(rows: Tensor, weight: Tensor, buckets: tuple[Bucket, ...]) -> Tensor:
    """Multiplies rows [n, k] in buckets by weight [types, k, m], which is in the order of the buckets -> [n, m]."""
    types = [bucket.types for bucket in buckets]
    parts = _Parts(lambda whole: [b.view(whole) for b in buckets], lambda whole: whole.split(types), torch.bmm)
    return call(_Products, rows, weight.contiguous(), parts)


def grouped_matmul(rows: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """Multiplies rows [n, k], sorted by type with type t up to ends[t] (int32), by weight [types, k, m] -> [n, m].

    Torch runs one kernel on devices that have one for the element type, mainly for bfloat16.
    """
    return torch.ops.aten._grouped_mm(rows, weight, ends)

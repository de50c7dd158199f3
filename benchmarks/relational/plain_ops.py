"""Defines differentiable operators of the plain-PyTorch layers: sparse products and segment softmax.

Operators over an `Adjacency` keep no tensor with one feature row per edge, in forward or backward.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

with warnings.catch_warnings():  # torch warns once that its compressed sparse tensors are in beta
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor(torch.tensor([0, 1]), torch.tensor([0]), torch.ones(1), (1, 1))


@dataclass(frozen=True)
class Adjacency:
    """Holds a sparse [rows, columns] pattern, by rows and by columns; its values keep the caller's order.

    `order` lists the caller's entries sorted by row (None if they are already), `back_order` the same by column.
    """

    shape: tuple[int, int]
    ptr: Tensor
    index: Tensor
    order: Tensor | None
    back_ptr: Tensor
    back_index: Tensor
    back_order: Tensor | None

    @staticmethod
    def make(row: Tensor, column: Tensor, shape: tuple[int, int]) -> Adjacency:
        """Makes a pattern from int64 [n] coordinates, which may have duplicates."""
        return Adjacency(shape, *_compress(row, column, shape[0]), *_compress(column, row, shape[1]))

    def by_row(self, values: Tensor) -> Tensor:
        """Returns the sparse matrix with the caller's values."""
        values = values if self.order is None else values.index_select(0, self.order)
        return torch.sparse_csr_tensor(self.ptr, self.index, values, self.shape, check_invariants=False)

    def by_column(self, values: Tensor) -> Tensor:
        """Returns the transpose of the sparse matrix with the caller's values."""
        values = values if self.back_order is None else values.index_select(0, self.back_order)
        return torch.sparse_csr_tensor(self.back_ptr, self.back_index, values, self.shape[::-1], check_invariants=False)

    def restore(self, values: Tensor) -> Tensor:
        """Puts values that are sorted by row into the caller's order."""
        return values if self.order is None else torch.empty_like(values).index_copy_(0, self.order, values)


def _compress(row: Tensor, column: Tensor, rows: int) -> tuple[Tensor, Tensor, Tensor | None]:
    ptr = row.new_zeros(rows + 1, dtype=torch.int32)
    ptr[1:] = torch.bincount(row, minlength=rows).cumsum(0)
    order = torch.argsort(row, stable=True)
    if torch.equal(order, torch.arange(len(row), device=row.device)):
        return ptr, column.int(), None
    return ptr, column[order].int(), order


class _Aggregate(Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, rows: Tensor, adjacency: Adjacency) -> Tensor:
        ctx.save_for_backward(values, rows)
        ctx.adjacency = adjacency
        return adjacency.by_row(values) @ rows

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        values, rows = ctx.saved_tensors
        adjacency: Adjacency = ctx.adjacency
        d_values = d_rows = None
        if ctx.needs_input_grad[0]:
            d_values = _products(adjacency, grad, rows)
        if ctx.needs_input_grad[1]:
            d_rows = adjacency.by_column(values) @ grad.contiguous()
        return d_values, d_rows, None


class _EdgeDot(Function):
    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, adjacency: Adjacency) -> Tensor:
        ctx.save_for_backward(left, right)
        ctx.adjacency = adjacency
        return _products(adjacency, left, right)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        left, right = ctx.saved_tensors
        adjacency: Adjacency = ctx.adjacency
        return adjacency.by_row(grad) @ right, adjacency.by_column(grad) @ left, None


def _products(adjacency: Adjacency, left: Tensor, right: Tensor) -> Tensor:
    pattern = torch.sparse_csr_tensor(
        adjacency.ptr,
        adjacency.index,
        left.new_zeros(len(adjacency.index)),
        adjacency.shape,
        check_invariants=False,
    )
    return adjacency.restore(torch.sparse.sampled_addmm(pattern, left, right.t(), beta=0.0).values())


class _Softmax(Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, index: Tensor, count: int) -> Tensor:
        top = logits.new_full((count,), -torch.inf).scatter_reduce_(0, index, logits, "amax")
        weights = (logits - top.index_select(0, index)).exp_()
        total = logits.new_zeros(count).scatter_add_(0, index, weights)
        weights.div_(total.index_select(0, index))
        ctx.save_for_backward(weights, index)
        ctx.count = count
        return weights

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        weights, index = ctx.saved_tensors
        product = grad * weights
        total = product.new_zeros(ctx.count).scatter_add_(0, index, product)
        return product.addcmul_(weights, total.index_select(0, index), value=-1.0), None, None


@dataclass(frozen=True)
class Coordinates:
    """Holds a sparse [rows, columns] pattern by its entries; operators gather and add a row for each entry."""

    row: Tensor
    column: Tensor
    shape: tuple[int, int]


Pattern = Adjacency | Coordinates


def aggregate(values: Tensor, rows: Tensor, pattern: Pattern) -> Tensor:
    """Sums rows [columns, d], weighted by the values [n] -> [rows, d]."""
    if isinstance(pattern, Coordinates):
        taken = rows.index_select(0, pattern.column) * values[:, None]
        return rows.new_zeros(pattern.shape[0], rows.shape[1]).index_add(0, pattern.row, taken)
    return call(_Aggregate, values, rows, pattern)


def edge_dot(left: Tensor, right: Tensor, pattern: Pattern) -> Tensor:
    """Computes the dot product of left [rows, d] and right [columns, d] at every entry -> [n]."""
    if isinstance(pattern, Coordinates):
        return (left.index_select(0, pattern.row) * right.index_select(0, pattern.column)).sum(-1)
    return call(_EdgeDot, left, right, pattern)


def softmax(logits: Tensor, index: Tensor, count: int) -> Tensor:
    """Computes the softmax of logits [n] among logits of the same index."""
    return call(_Softmax, logits, index, count)


def call(function: Any, *arguments: Any) -> Tensor:
    """Applies an autograd function, whose apply has no types."""
    return function.apply(*arguments)

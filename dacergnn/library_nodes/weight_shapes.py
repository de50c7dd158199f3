"""Computes the row shapes of operators on weights: products of weights, and parts of their rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dacergnn.errors import ProgramError
from dacergnn.library_nodes.form import Shape


def _compose(args: Sequence[Shape], dims: Shape) -> Shape:
    a, b = args
    heads = b[0] if len(b) == 3 else 1
    if dims or len(a) != 2 or len(b) not in (2, 3) or a[1] != heads * b[-2]:
        raise ProgramError(
            f"compose: weights of shapes {a} and {b}; expected (K, N) with (N, M), or (K, H * D) with (H, D, M)."
        )
    return (a[0], heads * b[-1])


def _inner(args: Sequence[Shape], dims: Shape) -> Shape:
    a, y = args
    heads = dims[0] if dims else 1
    fits = len(dims) <= 1 and heads >= 1 and len(a) == len(y) == 2 and a[0] == y[0]
    if not fits or a[1] % heads or y[1] % heads:
        raise ProgramError(
            f"inner: weights of shapes {a} and {y} with {dims}; expected (K, D) and (K, M), "
            "or (K, H * D), (K, H * M) and H."
        )
    return (*dims, a[1] // heads, y[1] // heads)


def _take_rows(args: Sequence[Shape], dims: Shape) -> Shape:
    (shape,) = args
    rows = _rows("take_rows", shape, dims)
    if not 0 <= dims[0] < dims[1] <= rows:
        raise ProgramError(f"take_rows: takes (w, start, stop) within the {rows} rows of w, not {dims}.")
    return (*shape[:-2], dims[1] - dims[0], shape[-1])


def _pad_rows(args: Sequence[Shape], dims: Shape) -> Shape:
    (shape,) = args
    rows = _rows("pad_rows", shape, dims)
    if min(dims) < 0:
        raise ProgramError(f"pad_rows: takes (w, before, after), numbers of rows that are added, not {dims}.")
    return (*shape[:-2], dims[0] + rows + dims[1], shape[-1])


def _rows(name: str, shape: Shape, dims: Shape) -> int:
    if len(shape) < 2 or len(dims) != 2:
        raise ProgramError(f"{name}: takes a matrix, or a stack of them, and two integers, not {shape} and {dims}.")
    return shape[-2]


WEIGHT_SHAPES: dict[str, Callable[[Sequence[Shape], Shape], Shape]] = {
    "compose": _compose,
    "inner": _inner,
    "take_rows": _take_rows,
    "pad_rows": _pad_rows,
}
"""For each operator, a function from the shapes of its operands and its integers to its row shape, or ProgramError."""

"""The NumPy interpreter: runs an inter-operator SDFG by statements in float64, as a slow and simple reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import dace
import numpy as np

from dacergnn.graph import HeteroGraph
from dacergnn.library_nodes.form import Const, Expr, Gemm, Op, Ref, Shape, Statement
from dacergnn.library_nodes.operators import OPERATORS
from dacergnn.library_nodes.shapes import shape_of
from dacergnn.program.view import Program

Array = np.ndarray[Any, np.dtype[np.float64]]
Indices = np.ndarray[Any, np.dtype[np.integer[Any]]]


class Rows(Protocol):
    """Tells what statements need to know of the arrays of a program, and of the graph that it runs on."""

    def space(self, name: str) -> str:
        """Returns the row space of an array."""
        ...

    def shape(self, ref: str | Ref) -> Shape:
        """Returns the row shape of an array, or of a reference to one."""
        ...

    def size(self, space: str) -> int:
        """Returns the number of rows of a row space."""
        ...

    def index(self, space: str, path: str) -> Indices:
        """Returns the rows that a path leads to, one for each row of a space."""
        ...


class _RowsOfGraph:
    """Tells it of an SDFG and a graph."""

    def __init__(self, program: Program, graph: HeteroGraph) -> None:
        self.space, self.shape, self.size = program.space, program.shape, graph.size
        self._graph = graph

    def index(self, space: str, path: str) -> Indices:
        return self._graph.encoding(f"idx_{space}_{path}").cpu().numpy()


def interpret(sdfg: dace.SDFG, graph: HeteroGraph, **arrays: Any) -> dict[str, Array]:
    """Runs a program on ``graph``; returns every array by name, including the inputs.

    Args:
        arrays: The inputs by name, anything that `numpy.asarray` takes; the number of rows comes first in a shape.
    """
    program = Program(sdfg)
    rows = _RowsOfGraph(program, graph)
    values: dict[str, Array] = {}
    for name in program.inputs:
        shape = (graph.size(program.space(name)), *program.shape(name))
        values[name] = np.asarray(arrays[name], dtype=np.float64).reshape(shape)
    for operator in program.operators:
        for statement in operator.statements:
            values[statement.target.name] = evaluate(statement, rows, values)
    return values


def evaluate(statement: Statement, rows: Rows, values: Mapping[str, Array]) -> Array:
    """Returns the array that a statement writes.

    Args:
        values: The arrays that it reads, by name.
    """
    return _Evaluation(statement, rows, values).run()


class _Evaluation:
    """Evaluates one statement for all rows at once."""

    def __init__(self, statement: Statement, rows: Rows, values: Mapping[str, Array]) -> None:
        self.statement = statement
        self.maps = rows
        self.values = values
        self.rows = rows.size(statement.space)

    def run(self) -> Array:
        statement, target = self.statement, self.statement.target.name
        shape = (self.maps.size(self.maps.space(target)), *self.maps.shape(target))
        gemm = statement.gemm
        if gemm is not None and gemm.kind == "outer_prod" and statement.op == "+=":
            return self.summed_products(gemm, shape)
        value = self.value(statement.expr)
        if statement.is_gemm:
            value = value.reshape(self.rows, *shape[1:])
        value = np.broadcast_to(_align(value, len(shape)), (self.rows, *shape[1:]))
        index = self.index(statement.target.path)
        result = np.zeros(shape)
        if statement.op == "=":
            result[: self.rows] = value
        elif statement.op == "+=":
            _reduce(np.add, result, index, value)
        else:
            combine, start = (np.maximum, -np.inf) if statement.op == "max=" else (np.minimum, np.inf)
            result[:] = start
            _reduce(combine, result, index, value)
            result[np.isinf(result) & ~_reached(shape[0], index)[(slice(None), *[None] * (len(shape) - 1))]] = 0
        return result

    def index(self, path: str) -> Indices:
        if path == "":
            return np.arange(self.rows)
        if path == "one":
            return np.zeros(self.rows, dtype=np.int64)
        return self.maps.index(self.statement.space, path)

    def value(self, expr: Expr) -> Array:
        """Returns the value of an expression for all rows, of shape (rows, ...)."""
        if isinstance(expr, Const):
            return np.full(self.rows, expr.value)
        if isinstance(expr, Ref):
            return self.viewed(expr)[self.index(expr.path)]
        if expr.name == "linear" and isinstance(expr.args[1], Ref):
            return self.linear(self.value(expr.args[0]), expr.args[1])
        args = [self.value(a) for a in expr.args]
        return self.operator(expr, args)

    def viewed(self, ref: Ref) -> Array:
        """Returns an array with rows as a reference sees them."""
        rows = self.values[ref.name]
        rows = rows.reshape(len(rows), *self.maps.shape(ref)) if ref.view is not None else rows
        return np.swapaxes(rows, -1, -2) if ref.transposed else rows

    def linear(self, x: Array, w: Ref) -> Array:
        """Returns the products of rows with the matrices that they lead to, matrix by matrix."""
        matrices = self.viewed(w)
        x = x.reshape(self.rows, *matrices.shape[1:-1])
        result = np.empty((*x.shape[:-1], matrices.shape[-1]))
        for matrix, members in _groups(self.index(w.path)):
            result[members] = np.moveaxis(np.moveaxis(x[members], 0, -2) @ matrices[matrix], -2, 0)
        return result

    def summed_products(self, gemm: Gemm, shape: tuple[int, ...]) -> Array:
        """Returns the sums of outer products by type, without an array of all products."""
        x, y = self.value(gemm.x), self.value(gemm.w)
        x = x if gemm.scale is None else x * _align(self.value(gemm.scale), x.ndim)
        if gemm.gradient_of_rows is not None:
            gradient = (x, y)[gemm.gradient_of_rows]
            unread = np.logical_not(gradient.any(axis=tuple(range(1, gradient.ndim))))
            x, y = x.copy(), y.copy()
            x[unread] = y[unread] = 0.0
        result = np.zeros(shape)
        for row, members in _groups(self.index(self.statement.target.path)):
            product = np.moveaxis(x[members], 0, -1) @ np.moveaxis(y[members], 0, -2)
            result[row] = product.reshape(shape[1:])
        return result

    def operator(self, expr: Op, args: list[Array]) -> Array:
        if expr.name == "outer_prod":
            return args[0][..., :, None] * args[1][..., None, :]
        if expr.name == "compose":
            a, b = args
            b = b if b.ndim == 4 else b[:, None]
            a = a.reshape(*a.shape[:2], *b.shape[1:3])
            return np.einsum("rkhd,rhdm->rkhm", a, b).reshape(*a.shape[:2], b.shape[1] * b.shape[3])
        if expr.name == "inner":
            heads = expr.dims[0] if expr.dims else 1
            a, y = (x.reshape(*x.shape[:2], heads, x.shape[2] // heads) for x in args)
            return np.einsum("rkhd,rkhm->rhdm", a, y).reshape(self.rows, *shape_of(expr, self.maps.shape))
        if expr.name == "take_rows":
            return args[0][..., expr.dims[0] : expr.dims[1], :]
        if expr.name == "pad_rows":
            return np.pad(args[0], [*[(0, 0)] * (args[0].ndim - 2), expr.dims, (0, 0)])
        if expr.name == "sum_heads":
            return args[0].sum(axis=1)
        if expr.name == "to_heads":
            return np.repeat(args[0][:, None], expr.dims[0], axis=1)
        if expr.name == "concat":
            return np.concatenate(args, axis=-1)
        if expr.name == "slice":
            return args[0][..., expr.dims[0] : expr.dims[1]]
        if expr.name == "expand":
            return np.broadcast_to(_align(args[0], args[0].ndim + len(expr.dims)), (*args[0].shape, *expr.dims))
        rank = max(a.ndim for a in args)
        args = [_align(a, rank) for a in args]
        if expr.name == "sum":
            return args[0].sum(axis=-1)
        if expr.name == "dot_prd":
            shape = (self.rows, *shape_of(Op("mul", expr.args), self.maps.shape))
            return (np.broadcast_to(args[0], shape) * np.broadcast_to(args[1], shape)).sum(axis=-1)
        return OPERATORS[expr.name].numpy(*args)


def _align(value: Array, rank: int) -> Array:
    """Appends axes of size one, so that shapes align along leading axes."""
    return value.reshape(*value.shape, *[1] * (rank - value.ndim))


def _groups(index: Indices) -> Iterator[tuple[int, Indices]]:
    """Yields the rows that others lead to, each with these others in order."""
    order = np.argsort(index, kind="stable")
    starts = np.flatnonzero(np.diff(index[order], prepend=-1))
    for members in np.split(order, starts[1:]) if len(order) else ():
        yield int(index[members[0]]), members


def _reduce(combine: np.ufunc, result: Array, index: Indices, value: Array) -> None:
    """Combines the rows of ``value`` with the rows of ``result`` that they lead to; `ufunc.at` is slow for rows."""
    if len(index):
        order = np.argsort(index, kind="stable")
        starts = np.flatnonzero(np.diff(index[order], prepend=-1))
        reached = index[order[starts]]
        result[reached] = combine(result[reached], combine.reduceat(value[order], starts, axis=0))


def _reached(rows: int, index: Any) -> Any:
    mask = np.zeros(rows, dtype=bool)
    mask[index] = True
    return mask

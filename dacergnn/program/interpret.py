"""The NumPy interpreter: runs an inter-operator SDFG by statements in float64, as a slow and simple reference."""

from __future__ import annotations

from typing import Any

import dace
import numpy as np

from dacergnn.graph import HeteroGraph
from dacergnn.library_nodes.form import Const, Expr, Op, Ref, Statement
from dacergnn.library_nodes.operators import OPERATORS
from dacergnn.library_nodes.shapes import shape_of
from dacergnn.program.view import Program

Array = np.ndarray[Any, np.dtype[np.float64]]


def interpret(sdfg: dace.SDFG, graph: HeteroGraph, **arrays: Any) -> dict[str, Array]:
    """Runs a program on ``graph``; returns every array by name, including the inputs.

    Args:
        arrays: The inputs by name, anything that `numpy.asarray` takes; the number of rows comes first in a shape.
    """
    program = Program(sdfg)
    values: dict[str, Array] = {}
    for name in program.inputs:
        shape = (graph.size(program.space(name)), *program.shape(name))
        values[name] = np.asarray(arrays[name], dtype=np.float64).reshape(shape)
    for operator in program.operators:
        for statement in operator.statements:
            target = statement.target.name
            shape = (graph.size(program.space(target)), *program.shape(target))
            values[target] = _Evaluation(program, graph, values, statement).run(shape)
    return values


class _Evaluation:
    """Evaluates one statement for all rows at once."""

    def __init__(self, program: Program, graph: HeteroGraph, values: dict[str, Array], statement: Statement) -> None:
        self.program = program
        self.graph = graph
        self.values = values
        self.statement = statement
        self.rows = graph.size(statement.space)

    def run(self, shape: tuple[int, ...]) -> Array:
        statement = self.statement
        value = self.value(statement.expr)
        if statement.is_gemm:
            value = value.reshape(self.rows, *shape[1:])
        value = np.broadcast_to(_align(value, len(shape)), (self.rows, *shape[1:]))
        index = self.index(statement.target.path)
        result = np.zeros(shape)
        if statement.op == "=":
            result[: self.rows] = value
        elif statement.op == "+=":
            np.add.at(result, index, value)
        else:
            combine, start = (np.maximum, -np.inf) if statement.op == "max=" else (np.minimum, np.inf)
            result[:] = start
            combine.at(result, index, value)
            result[np.isinf(result) & ~_reached(shape[0], index)[(slice(None), *[None] * (len(shape) - 1))]] = 0
        return result

    def index(self, path: str) -> Any:
        if path == "":
            return np.arange(self.rows)
        if path == "one":
            return np.zeros(self.rows, dtype=np.int64)
        return self.graph.encoding(f"idx_{self.statement.space}_{path}").cpu().numpy()

    def value(self, expr: Expr) -> Array:
        """Returns the value of an expression for all rows, of shape (rows, ...)."""
        if isinstance(expr, Const):
            return np.full(self.rows, expr.value)
        if isinstance(expr, Ref):
            rows = self.values[expr.name][self.index(expr.path)]
            rows = rows.reshape(self.rows, *self.program.shape(expr)) if expr.view is not None else rows
            return np.swapaxes(rows, -1, -2) if expr.transposed else rows
        args = [self.value(a) for a in expr.args]
        return self.operator(expr, args)

    def operator(self, expr: Op, args: list[Array]) -> Array:
        if expr.name == "linear":
            x, w = args
            x = x.reshape(w.shape[:-1])
            return np.einsum("...k,...km->...m", x, w)
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
            return np.einsum("rkhd,rkhm->rhdm", a, y).reshape(self.rows, *shape_of(expr, self.program.shape))
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
            shape = (self.rows, *shape_of(Op("mul", expr.args), self.program.shape))
            return (np.broadcast_to(args[0], shape) * np.broadcast_to(args[1], shape)).sum(axis=-1)
        return OPERATORS[expr.name].numpy(*args)


def _align(value: Array, rank: int) -> Array:
    """Appends axes of size one, so that shapes align along leading axes."""
    return value.reshape(*value.shape, *[1] * (rank - value.ndim))


def _reached(rows: int, index: Any) -> Any:
    mask = np.zeros(rows, dtype=bool)
    mask[index] = True
    return mask

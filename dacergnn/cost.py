"""Bytes and floating-point operations of a program on a graph, read off its statements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import dace

from dacergnn.graph.spaces import TYPE_PATHS
from dacergnn.library_nodes import GraphOperator, row_shape, row_space
from dacergnn.library_nodes.form import Const, Expr, Op, Ref, ShapeOf, Statement, match_gemm, size
from dacergnn.library_nodes.operators import OPERATORS, shape_of
from dacergnn.library_nodes.parse import view_shape

INDEX_BYTES = 4


@dataclass(frozen=True)
class Cost:
    """``flops``; ``streamed`` bytes, read or written once in order; ``gathered`` bytes, read through an index."""

    flops: int = 0
    streamed: int = 0
    gathered: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.flops + other.flops, self.streamed + other.streamed, self.gathered + other.gathered)


def program_cost(sdfg: dace.SDFG, sizes: Mapping[str, int]) -> Cost:
    """Cost of an inter-operator SDFG on a graph with ``sizes[space]`` rows in every row space."""
    total = Cost()
    for state in sdfg.states():
        for node in state.nodes():
            if isinstance(node, GraphOperator):
                for statement in node.statements:
                    total += statement_cost(statement, sdfg, sizes)
    return total


def statement_cost(statement: Statement, sdfg: dace.SDFG, sizes: Mapping[str, int]) -> Cost:
    """Cost of one statement: every array it names is read or written, through an index where a map leads to it."""

    def shapes(ref: Ref) -> tuple[int, ...]:
        return view_shape(ref, row_shape(sdfg.arrays[ref.name]))

    rows = sizes[statement.space]
    item: int = sdfg.arrays[statement.target.name].dtype.bytes
    flops = rows * _flops(statement, shapes)
    streamed = gathered = 0
    for ref in dict.fromkeys([*statement.reads, statement.target]):
        width = size(shapes(ref)) * item
        space = row_space(sdfg.arrays[ref.name])
        if ref == statement.target or ref.path == "":
            streamed += sizes[space] * width
        elif ref.path in TYPE_PATHS:
            streamed += sizes[space] * width  # types are few, or come in order: once from memory
        else:
            gathered += rows * width
        if ref.path not in ("", "one"):
            streamed += rows * INDEX_BYTES
    return Cost(flops, streamed, gathered)


def _flops(statement: Statement, shapes: ShapeOf) -> int:
    gemm = match_gemm(statement)
    if gemm is not None:
        weights = statement.target if gemm.kind == "outer_prod" else gemm.w
        return 2 * size(shapes(weights)) + (0 if gemm.scale is None else size(shapes(statement.target)))
    return _expression_flops(statement.expr, shapes) + (size(shapes(statement.target)) if statement.op != "=" else 0)


def _expression_flops(expr: Expr, shapes: ShapeOf) -> int:
    if isinstance(expr, Ref | Const):
        return 0
    inner = sum(_expression_flops(a, shapes) for a in expr.args)
    if expr.name in ("dot_prd", "sum"):
        body = Op("mul", expr.args) if expr.name == "dot_prd" else expr.args[0]
        return inner + size(shape_of(body, shapes)) * (2 if expr.name == "dot_prd" else 1)
    return inner + (size(shape_of(expr, shapes)) if expr.name in OPERATORS and expr.name != "detach" else 0)

"""Fuses into a SegmentGemm: gathers and per-row scalars of its operand, and the reduction of its result (Hector 3.4.1,
3.4.2).

Precondition: an inter-operator SDFG.

Before::

    e["msg"] = linear(e.src["x"], W[e.etype])              e["d"] = e["s"] * e.dst["g"]
    n["out"] += e["norm"] * e["msg"]                       dW[e.etype] += outer_prod(e.src["x"], e["d"])

After::

    n["out"] += e["norm"] * linear(e.src["x"], W[e.etype])
    dW[e.etype] += e["s"] * outer_prod(e.src["x"], e.dst["g"])

Saves: the E x M array in between, written once and read once: 2 E M values of memory traffic, E M of memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import dace

from dacergnn.graph.spaces import TYPE_PATHS
from dacergnn.library_nodes import GraphOperator, Traversal
from dacergnn.library_nodes.form import WEIGHT_PRODUCTS, Expr, Gemm, Op, Ref, Shape, Statement, size
from dacergnn.library_nodes.shapes import shape_of
from dacergnn.program import Program
from dacergnn.sdfg_passes.base import Pass
from dacergnn.sdfg_passes.context import Context


@dataclass(frozen=True)
class GemmScaleFusion(Pass):
    """Fuses wherever that removes an array; counts these arrays."""

    name: ClassVar[str] = "gemm_scale_fusion"

    def run(self, sdfg: dace.SDFG, context: Context) -> int:
        program, removed = Program(sdfg), 0
        while _fuse_one(program):
            removed += 1
        return removed


def _fuse_one(program: Program) -> bool:
    for operator in program.operators:
        if len(operator.statements) != 1 or not program.sdfg.arrays[operator.written_arrays[0]].transient:
            continue
        statement = operator.statements[0]
        if statement.op == "=" and statement.target.path == "":
            consumers = program.consumers(statement.target.name)
            fused = _into_operands(program, statement, consumers) or _into_reduction(program, statement, consumers)
            if fused:
                for consumer, body in fused:
                    program.replace(consumer, [body])
                program.drop_unused()
                return True
    return False


def _single(operator: GraphOperator) -> Statement | None:
    statements = operator.statements
    return statements[0] if len(statements) == 1 else None


def _scaled(expr: Expr) -> tuple[Ref | None, Ref] | None:
    """Splits ``s * x`` or ``x`` into (s, x), where s is a value of the own row; returns None for others."""
    if isinstance(expr, Ref):
        return None, expr
    if isinstance(expr, Op) and expr.name == "mul":
        for scale, x in (expr.args, expr.args[::-1]):
            if isinstance(scale, Ref) and isinstance(x, Ref) and scale.path == "":
                return scale, x
    return None


def _fit(scale: Ref | None, shape: Shape, rows: Shape) -> Ref | None:
    """Returns the scale viewed so that it fits GEMM rows of row shape ``rows``; None where it cannot."""
    if scale is None or size(shape) == 1:
        return None if scale is None else replace(scale, view=() if shape else scale.view)
    return scale if shape == rows[:-1] else None


def _into_operands(
    program: Program, statement: Statement, consumers: list[GraphOperator]
) -> list[tuple[GraphOperator, Statement]] | None:
    """Returns new bodies of the products that read an array, if it is only a gathered, scaled row."""
    parts = _scaled(statement.expr)
    shape = program.shape(statement.target)
    if parts is None or not consumers or not isinstance(program.producer(statement.target.name), Traversal):
        return None
    scale, x = parts
    if (
        x.path == "one"
        or size(program.shape(x)) != size(shape)
        or (scale is not None and program.shape(scale) == shape)
    ):
        return None
    result: list[tuple[GraphOperator, Statement]] = []
    for consumer in consumers:
        body = _single(consumer)
        gemm = body.gemm if body is not None else None
        if body is None or gemm is None or [r.name for r in body.reads].count(statement.target.name) != 1:
            return None
        if gemm.kind in WEIGHT_PRODUCTS or x.transposed:
            return None
        operand = next((r for r in (gemm.x, gemm.w) if r.name == statement.target.name), None)
        if (
            operand is None
            or operand.path != ""
            or body.space != statement.space
            or (scale is not None and gemm.scale is not None)
        ):
            return None
        rows = program.shape(operand)
        new = replace(x, view=rows if program.shape(x) != rows else x.view)
        fitted = gemm.scale if scale is None else _fit(scale, program.shape(scale), rows)
        if scale is not None and fitted is None:
            return None
        operands = (new, gemm.w) if operand == gemm.x else (gemm.x, new)
        candidate = replace(body, expr=_product(gemm, operands, fitted))
        if candidate.gemm is None:
            return None
        result.append((consumer, candidate))
    return result


def _into_reduction(
    program: Program, statement: Statement, consumers: list[GraphOperator]
) -> list[tuple[GraphOperator, Statement]] | None:
    """Returns a product that sums its rows itself, in place of the traversal that is their only reader."""
    gemm = statement.gemm
    body = _single(consumers[0]) if len(consumers) == 1 else None
    if gemm is None or gemm.kind != "linear" or body is None or not isinstance(consumers[0], Traversal):
        return None
    parts = _scaled(body.expr)
    if parts is None or parts[1].name != statement.target.name or parts[1] != Ref(statement.target.name):
        return None
    scale = parts[0]
    if (
        body.op != "+="
        or body.target.path in TYPE_PATHS
        or body.space != statement.space
        or (scale is not None and gemm.scale is not None)
    ):
        return None
    rows = shape_of(Op("linear", (gemm.x, gemm.w)), program.shape)
    fitted = gemm.scale if scale is None else _fit(scale, program.shape(scale), rows)
    if scale is not None and fitted is None:
        return None
    return [(consumers[0], replace(body, expr=_product(gemm, (gemm.x, gemm.w), fitted)))]


def _product(gemm: Gemm, operands: tuple[Ref, Ref], scale: Ref | None) -> Expr:
    product = Op(gemm.kind, operands)
    return product if scale is None else Op("mul", (scale, product))

"""Fuses epilogues: rows of a product are processed further while they are in the cache (Hector 3.4.1, Zhang 5).

Precondition: an inter-operator SDFG, its Traversals not fused yet.

Before::

    n["out"] += e["norm"] * linear(e.src["x"], W[e.etype])
    n["out_1"] = n["out"] + n["own"] + bias

After: one SegmentGemm with the body::

    n["out"] += e["norm"] * linear(e.src["x"], W[e.etype])
    n["out_1"] = n["out"] + n["own"] + bias

in which ``out`` is local and lives in the rows of ``out_1``. Saves a pass over the rows: N M values written and read
once less, and N M values of memory. Statements that gather the same rows as a product, and nothing else that is wide,
are fused as well::

    p["hs"] = linear(p.src["x"], W[p.etype])
    p["score"] = dot_prd(p.src["x"], W_k[p.etype])

become one SegmentGemm, which looks up a row of ``x`` once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import dace

from dacergnn.graph.spaces import kind
from dacergnn.library_nodes import GraphOperator, SegmentGemm, Traversal
from dacergnn.library_nodes.access import is_few, target_is_prefix
from dacergnn.library_nodes.form import Statement, size
from dacergnn.library_nodes.shapes import is_elementwise
from dacergnn.library_nodes.traversal.nest import problem
from dacergnn.program import Program
from dacergnn.program.view import StatementGroup
from dacergnn.sdfg_passes.base import Pass
from dacergnn.sdfg_passes.context import Context


@dataclass(frozen=True)
class GemmEpilogueFusion(Pass):
    """Fuses row-wise statements into the product that they follow; counts these statements."""

    name: ClassVar[str] = "gemm_epilogue_fusion"

    def run(self, sdfg: dace.SDFG, context: Context) -> int:
        program, fused = Program(sdfg), 0
        while _fuse_one(program):
            fused += 1
        return fused


def _fuse_one(program: Program) -> bool:
    operators = program.operators
    for operator in operators:
        body = operator.statements
        if not isinstance(operator, Traversal) or len(body) != 1 or body[0].op != "=" or body[0].target.path:
            continue
        product = _product(operators, body[0]) or _of_same_rows(operators, body[0])
        if product is not None and _fits(program, product, body[0]):
            _fuse(program, operators, product, operator)
            return True
    return False


def _product(operators: list[GraphOperator], statement: Statement) -> GraphOperator | None:
    """Returns the last operator that makes rows for a statement, if it is a product that all else can precede."""
    rows = {ref.name for ref in statement.reads if not is_few(ref.path)}
    producers = [o for o in operators if not rows.isdisjoint(o.written_arrays)]
    if not producers or any(_sums_edges(o) for o in producers):
        return None
    product = producers[-1]
    others = {ref.name for ref in statement.reads} - set(product.written_arrays)
    waits = _waits_for(operators, product)
    return product if isinstance(product, SegmentGemm) and waits.isdisjoint(others) else None


def _of_same_rows(operators: list[GraphOperator], statement: Statement) -> GraphOperator | None:
    """Returns a product of the only rows (but for types) that a statement gathers, if all else can precede it."""
    gathered = {(ref.name, ref.path) for ref in statement.reads if not is_few(ref.path)}
    if len(gathered) != 1 or not all(path for _, path in gathered):
        return None
    for product in operators:
        first = product.statements[0]
        gemm = first.gemm if isinstance(product, SegmentGemm) and not first.target.path else None
        same = gemm is not None and first.space == statement.space and {(gemm.x.name, gemm.x.path)} == gathered
        if same and _waits_for(operators, product).isdisjoint(ref.name for ref in statement.reads):
            return product
    return None


def _waits_for(operators: list[GraphOperator], product: GraphOperator) -> set[str]:
    """Returns the arrays that cannot be complete before a product has ended."""
    after = set(product.written_arrays)
    for operator in operators[operators.index(product) + 1 :]:
        if not after.isdisjoint(operator.read_arrays):
            after.update(operator.written_arrays)
    return after


def _sums_edges(operator: GraphOperator) -> bool:
    """Returns whether an operator is a reduction over edges, where an epilogue costs less: it waits for memory
    anyway."""
    return isinstance(operator, Traversal) and kind(operator.space) == "E" and operator.statements[0].op != "="


def _fits(program: Program, product: GraphOperator, statement: Statement) -> bool:
    """Returns whether the statement can run on each finished row of the product."""
    if target_is_prefix(statement, program.space(statement.target.name)):
        return False  # the product does not write the other rows, which have to be 0
    body = (*product.statements, statement)
    gemm = body[0].gemm
    return gemm is not None and gemm.kind == "linear" and problem(statement.space, body) is None


def _fuse(program: Program, operators: list[GraphOperator], product: GraphOperator, operator: GraphOperator) -> None:
    body = (*product.statements, *operator.statements)
    read_elsewhere = {n for o in operators if o not in (product, operator) for n in o.read_arrays}
    written = [s.target.name for s in body[:-1]]
    local_arrays = [n for n in written if n not in read_elsewhere and program.sdfg.arrays[n].transient]
    if not _in_place(program, body):
        local_arrays = [n for n in local_arrays if n != written[0]]
    group = StatementGroup(body, operator.space, tuple(local_arrays))
    program.regroup([group if o is operator else o for o in operators if o is not product])


def _in_place(program: Program, body: tuple[Statement, ...]) -> bool:
    """Returns whether a product's rows can lie in the last statement's: equally wide, and all is element-wise."""
    widths = {size(program.shape(s.target.name)) for s in (body[0], body[-1])}
    return len(widths) == 1 and all(is_elementwise(s.expr) for s in body[1:])

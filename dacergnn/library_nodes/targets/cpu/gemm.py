"""Writes the C++ of the plan of a product: an instance of a template of ``segment_gemm.h`` or its neighbours."""

from __future__ import annotations

from collections.abc import Sequence

from dacergnn.library_nodes.access import index_name, order_name, ordered_index_name, pointer_name
from dacergnn.library_nodes.form import Ref, Statement
from dacergnn.library_nodes.node import PREFIX
from dacergnn.library_nodes.segment_gemm.plan import GemmPlan, path_to_row
from dacergnn.library_nodes.targets.cpp import extent, pointer, weight_product_arguments
from dacergnn.library_nodes.targets.emit import Emitter, named_rows


def gemm_code(plan: GemmPlan) -> str:
    """Returns the call of the kernel, C++ that uses the types Value and Index."""
    gemm = plan.gemm
    out = "static_cast<Value*>(nullptr)" if plan.spread else PREFIX + plan.place
    rows = PREFIX + gemm.x.name if plan.made is None else _made(plan, plan.made)
    x = f"{rows}, {pointer(plan.gathers[0])}"
    w = f"{PREFIX}{gemm.w.name}, {pointer(plan.gathers[1])}"
    if plan.segments is None:
        sizes = f"Value, Index, {weight_product_arguments(plan)}"
        return f"dacergnn::{gemm.kind}<{sizes}>({x}, {w}, {extent(plan.space)}, {out});"
    segments = plan.segments
    one = "" if segments.pointers else f"const Index bounds[2] = {{0, Index({extent(plan.space)})}};\n"
    types = f"{PREFIX + segments.pointers if segments.pointers else 'bounds'}, {extent(segments.types)}"
    order = pointer(segments.order)
    scale = "static_cast<const Value*>(nullptr)" if gemm.scale is None else PREFIX + gemm.scale.name
    sizes = f"Value, Index, {plan.heads}, {plan.k}, {plan.m}"
    if plan.form == "outer":
        template = f"{sizes}, {plan.scales}, {_runs(plan)}, {_gradient(plan)}"
        return f"{one}dacergnn::segment_outer<{template}>({x}, {w}, {types}, {order}, {scale}, {out});"
    template = f"{sizes}, {str(gemm.w.transposed).lower()}, {plan.scales}{_tile(plan)}"
    operands = f"{x}, {PREFIX}{gemm.w.name}, {types}, {order}, {scale}"
    finish = _finish(plan)
    if plan.targets is not None:
        start = f", {PREFIX}{plan.start}" if plan.start else ""
        targets = f"{pointer(plan.target_of)}, {pointer(plan.targets.pointers)}, {extent(plan.reached)}"
        rows = f"{targets}, {extent(plan.owner)}, {out}{finish}{start}"
        return f"{one}dacergnn::segment_gemm_scatter<{template}>({operands}, {rows});"
    tail = ""
    if plan.reached != plan.owner:
        ends = (
            f"{out} + {extent(space)} * {plan.arrays.width(plan.statement.target.name)}"
            for space in (plan.reached, plan.owner)
        )
        tail = f"\nstd::fill({', '.join(ends)}, Value(0));"
    return f"{one}dacergnn::segment_gemm<{template}>({operands}, {out}{finish});{tail}"


def _tile(plan: GemmPlan) -> str:
    """Returns a template argument that says how rows are cut, if the sizes do not decide that."""
    rows, depth = plan.schedule.row_tile, plan.schedule.depth_block
    return f", dacergnn::gemm::Tile<{rows}, {depth}>" if rows or depth else ""


def _runs(plan: GemmPlan) -> str:
    runs = {(True, False): "kOfX", (False, True): "kOfY"}.get(plan.repeats, "kNone")
    return f"dacergnn::Runs::{runs}"


def _gradient(plan: GemmPlan) -> str:
    operand = {0: "kX", 1: "kY", None: "kNone"}[plan.gemm.gradient_of_rows]
    return f"dacergnn::Gradient::{operand}"


def _finish(plan: GemmPlan) -> str:
    """Returns the argument that runs the epilogue on a finished row: a lambda (row index, row of the product)."""
    if not plan.epilogue and not plan.spread:
        return ", dacergnn::Keep{}" if plan.start else ""
    lines = [line for statement in plan.epilogue for line in _statement(plan, statement)]
    if plan.spread:
        lines.append(_edges(plan, plan.spread, plan.place))
    return ", [=](const int64_t i, Value* row) {\n(void)i;\n" + "\n".join(lines) + "\n}"


def _made(plan: GemmPlan, statement: Statement) -> str:
    """Returns rows that are sums over edges: a lambda (row index, memory for the row) adds up one of them."""
    width = plan.arrays.width(statement.target.name)
    start = f"std::fill_n(row, {width}, Value(0));"
    return (
        "dacergnn::made_rows<Value>([=](const int64_t i, Value* const row) {\n"
        f"{start}\n{_edges(plan, [statement], statement.target.name)}\n}})"
    )


def _edges(plan: GemmPlan, statements: Sequence[Statement], own: str) -> str:
    """Returns a loop over the edges of the row with the number ``i``; ``row`` is the row of the array ``own``."""
    edges, path = statements[0].space, path_to_row(plan, statements[0])
    order, bounds = order_name(edges, path), f"{PREFIX}{pointer_name(edges, path)}"
    lines: list[str] = []
    for statement in statements:
        target, shapes = statement.target, plan.arrays.shapes

        def address(ref: Ref, statement: Statement = statement) -> str:
            if ref.path == path and ref.name == own:
                return "row"
            index = ordered_index_name(edges, path, ref.path) if ref.path not in ("", path) else None
            row = f"int64_t({PREFIX}{index}[p])" if index else {path: "i", "one": "0"}.get(ref.path, "e")
            return f"{PREFIX}{ref.name} + {row} * {plan.arrays.width(ref.name)}"

        named, rows = named_rows(address, lambda ref: 0 if ref.path == path else plan.arrays.converts(ref.name))
        sign = "+=" if target.path else "="
        loops = Emitter(shapes, named).loops(
            statement.expr, shapes(target), lambda at, value, sign=sign: f"out[{at}] {sign} {value};"
        )
        lines += ["{", f"auto* const out = {address(target)};", *rows, loops, "}"]
    place = f"int64_t({PREFIX}{order}[p])" if order else "p"
    body = "\n".join([f"const int64_t e = {place};", *lines])
    return f"for (int64_t p = {bounds}[i]; p < int64_t({bounds}[i + 1]); ++p) {{\n{body}\n}}"


def _statement(plan: GemmPlan, statement: Statement) -> list[str]:
    """Returns lines that run a statement on the row ``row`` with the number ``i``."""

    def address(ref: Ref) -> str:
        if plan.is_at_hand(ref):
            return "row" if ref.name in plan.in_row else f"local_{ref.name}"
        index = index_name(statement.space, ref.path)
        row = "0" if ref.path == "one" else f"int64_t({PREFIX}{index}[i])" if index else "i"
        return f"{PREFIX}{ref.name} + {row} * {plan.arrays.width(ref.name)}"

    target, shapes = statement.target, plan.arrays.shapes
    named, lines = named_rows(address, lambda ref: 0 if plan.is_at_hand(ref) else plan.arrays.converts(ref.name))
    loops = Emitter(shapes, named).loops(statement.expr, shapes(target), lambda at, value: f"out[{at}] = {value};")
    own = [f"Value local_{target.name}[{plan.arrays.width(target.name)}];"] if target.name in plan.local_rows else []
    return [
        *own,
        "{",
        f"auto* const out = {address(target)};",
        *lines,
        loops,
        "}",
    ]

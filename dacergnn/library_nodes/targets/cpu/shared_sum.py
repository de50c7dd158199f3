"""Writes the C++ of a sum over types: few groups, whose rows several threads share."""

from __future__ import annotations

from dacergnn.graph.spaces import MAPS
from dacergnn.library_nodes.access import order_name, pointer_name
from dacergnn.library_nodes.form import Ref, size
from dacergnn.library_nodes.node import PREFIX
from dacergnn.library_nodes.targets.cpp import extent
from dacergnn.library_nodes.targets.cpu.nest import number_text
from dacergnn.library_nodes.targets.emit import Emitter, named_rows
from dacergnn.library_nodes.traversal.plan import SharedSumPlan


def shared_sum_code(plan: SharedSumPlan) -> str:
    """Returns the kernel, a block of C++ that uses the types Value and Index."""
    statement, shapes = plan.statement, plan.arrays.shapes
    path, space, target = statement.target.path, statement.space, shapes(statement.target)

    def place(ref: Ref) -> str:
        row = plan.reads[ref.name, ref.path].row
        assert row is not None
        return f"{PREFIX}{ref.name} + {number_text(row)} * {plan.arrays.width(ref.name)}"

    pointer, lines = named_rows(place, lambda ref: plan.arrays.converts(ref.name))
    body = Emitter(shapes, pointer).loops(statement.expr, target, lambda at, value: f"acc[{at}] += {value};")
    ids, bounds = order_name(space, path), pointer_name(space, path)
    at = f"int64_t({PREFIX}{ids}[p])" if ids else "p"
    start = "" if bounds else f"const Index bounds[2] = {{0, Index({extent(space)})}};\n"
    return (
        f"{start}dacergnn::reduce_segments<Value, Index, {size(target)}>({PREFIX + bounds if bounds else 'bounds'}, "
        f"{extent(MAPS[space, path])}, {plan.work}, {PREFIX}{statement.target.name}, "
        f"[=](const int64_t p, Value* acc) {{\nconst int64_t i = {at};\n(void)i;\n"
        + "\n".join([*lines, body])
        + "\n});"
    )

"""Writes the CUDA of epilogues, which run on each finished row of a product: a warp shares the elements of the row."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from dacergnn.library_nodes.access import index_name
from dacergnn.library_nodes.form import Op, Ref, Shape, Statement, size
from dacergnn.library_nodes.node import PREFIX
from dacergnn.library_nodes.plan import Rows
from dacergnn.library_nodes.segment_gemm.plan import GemmPlan
from dacergnn.library_nodes.shapes import shape_of
from dacergnn.library_nodes.targets.cuda.lanes import LaneEmitter, lane_sums
from dacergnn.library_nodes.targets.cuda.loads import EACH, Load, load_lines, load_of
from dacergnn.library_nodes.traversal.lanes import MAX_LANES, Lanes, sums_first


def epilogue_code(plan: GemmPlan) -> str:
    """Returns a functor that runs the statements after the product on rows that are finished (``finish_rows``).

    The memory of the warp has ``local_elements`` elements.
    """
    if not plan.epilogue:
        return "dacergnn::cuda::Keep()"
    names = (name for name in (f"sum{k}" for k in count()) if name not in plan.arrays)
    lines = "\n".join(_statement(plan, statement, lambda: next(names)) for statement in plan.epilogue)
    return (
        f"dacergnn::cuda::finish_rows<{plan.at_once}>([=] __device__("
        "const auto batch, const auto place, const auto row_of, Storage* const local) {\n"
        "constexpr int kBatch = decltype(batch)::value;\n(void)local;\n"
        "int64_t places[kBatch];\nStorage* rows[kBatch];\n"
        f"{EACH} {{\nplaces[u] = place(u);\nrows[u] = row_of(u);\n}}\n{lines}\n}})"
    )


def _address(plan: GemmPlan, statement: Statement, ref: Ref) -> str:
    if plan.is_at_hand(ref):
        return "rows[u]" if ref.name in plan.in_row else f"(local + {plan.local_rows[ref.name]})"
    index = index_name(statement.space, ref.path)
    row = "0" if ref.path == "one" else f"int64_t({PREFIX}{index}[places[u]])" if index else "places[u]"
    return f"{PREFIX}{ref.name} + {row} * {plan.arrays.width(ref.name)}"


def _statement(plan: GemmPlan, statement: Statement, new_name: Callable[[], str]) -> str:
    arrays, sums = plan.arrays, dict[str, Rows]()
    pointers: dict[Ref, str] = {}
    loads: dict[Ref, Load] = {}

    def name(shape: Shape) -> str:
        nonlocal arrays
        array = new_name()
        sums[array] = Rows("ONE", shape)
        arrays = arrays.with_rows({array: sums[array]})
        return array

    def shapes(ref: Ref) -> Shape:
        return arrays.shapes(ref)

    def read(ref: Ref, at: str, same: bool) -> str:
        if ref.name in sums:
            return f"{ref.name}[{at}]"
        row, width = Ref(ref.name, ref.path), arrays.width(ref.name)
        if not plan.is_at_hand(ref) and (same or width == 1):
            if row not in loads:
                held = Lanes(MAX_LANES) if same else None
                pointer = _address(plan, statement, row)
                loads[row] = load_of(f"ahead{len(loads)}", "Storage", pointer, width, held, constant=False)
            return loads[row].element(at, same)
        pointer = pointers.setdefault(row, f"row{len(pointers)}")
        return f"Value({pointer}[{'at' if same else at}])"

    emitter = LaneEmitter(shapes, Lanes(MAX_LANES), read)
    lines: list[str] = []
    *parts, rest = sums_first(statement, shapes, name)
    for part in parts:
        assert isinstance(part.expr, Op)
        own, body = part.target.name, part.expr.args[0]
        code = lane_sums(emitter, own, body, shape_of(body, shapes))
        lines += [f"Value {own}[{size(sums[own].shape)}];", "{", code, "}"]
    shape = shapes(rest.target)
    if shape:
        lines.append(emitter.spread(rest.expr, shape, lambda value: f"out[at] = Storage({value});"))
    else:
        code = emitter.loops(rest.expr, shape, lambda _, value: f"*out = Storage({value});")
        lines.append(f"if (dacergnn::cuda::lane() == 0) {{\n{code}\n}}")
    target = _address(plan, statement, Ref(rest.target.name))
    rows = [
        f"const Storage* const {variable} = {_address(plan, statement, ref)};" for ref, variable in pointers.items()
    ]
    return "\n".join(
        [
            "{",
            *load_lines(loads.values()),
            f"{EACH} {{",
            f"Storage* const out = {target};",
            *rows,
            *lines,
            "}",
            "__syncwarp();",
            "}",
        ]
    )

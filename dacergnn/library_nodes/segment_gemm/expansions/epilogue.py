"""The C++ of what a SegmentGemm does with a finished row of its result while that is in the cache."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from dacergnn.library_nodes.access import index_name
from dacergnn.library_nodes.emit import Emitter
from dacergnn.library_nodes.form import Expr, Op, Ref, Shape, Statement, size
from dacergnn.library_nodes.node import PREFIX, row_shape, row_space
from dacergnn.library_nodes.parse import view_shape


def stored_in(statements: Sequence[Statement], local_arrays: Sequence[str]) -> str:
    """The array whose rows the product is computed in: its own, or where that is local, the last one written."""
    product = statements[0].target.name
    return statements[-1].target.name if product in local_arrays else product


def sums_start(
    statements: Sequence[Statement], local_arrays: Sequence[str], arrays: dict[str, Any]
) -> tuple[str | None, Sequence[Statement]]:
    """The array whose rows the sums of a product start from in place of zeros, and the statements without it.

    It is one that the first statement after the product adds to it, where nothing else reads either of them.
    """
    product, *rest = statements
    name = product.target.name
    if not rest or not product.target.path or name not in local_arrays:
        return None, statements
    terms = _terms(rest[0].expr)
    reads = Counter(ref.name for s in statements for ref in s.reads)
    if Ref(name) not in terms or reads[name] > 1:
        return None, statements
    forms = {n: (row_space(arrays[n]), row_shape(arrays[n])) for n in reads}
    fitting = [n for n in reads if n != name and Ref(n) in terms and reads[n] == 1 and forms[n] == forms[name]]
    if not fitting:
        return None, statements
    left = [term for term in terms if term != Ref(fitting[0])]
    first = replace(rest[0], expr=reduce(lambda total, term: Op("add", (total, term)), left))
    copies = first.expr == Ref(name) and first.target.name == stored_in(statements, local_arrays)
    return fitting[0], (product, *([] if copies else [first]), *rest[1:])


def _terms(expr: Expr) -> list[Expr]:
    """Returns what a sum adds up, in order."""
    if isinstance(expr, Op) and expr.name == "add":
        return [term for argument in expr.args for term in _terms(argument)]
    return [expr]


def finish_code(
    statements: Sequence[Statement], local_arrays: Sequence[str], place: str, arrays: dict[str, Any]
) -> str:
    """A C++ lambda (row index, row of the product) that runs the statements after the product on one row.

    The row is that of the array ``place``.
    """
    product = statements[0].target.name
    # One buffer: rows are finished in place, element by element.
    in_row = {product, place}
    lines: list[str] = []
    for number, statement in enumerate(statements[1:]):
        lines += _statement(statement, number, in_row, local_arrays, arrays)
    return "[=](const int64_t i, Value* row) {\n(void)i;\n" + "\n".join(lines) + "\n}"


def _statement(
    statement: Statement, number: int, in_row: set[str], local_arrays: Sequence[str], arrays: dict[str, Any]
) -> list[str]:
    pointers: dict[tuple[str, str], str] = {}

    def shapes(ref: Ref) -> Shape:
        return view_shape(ref, row_shape(arrays[ref.name]))

    def pointer(ref: Ref) -> str:
        return pointers.setdefault((ref.name, ref.path), f"r{number}_{len(pointers)}")

    def address(name: str, path: str) -> str:
        if path == "" and name in in_row:
            return "row"
        if path == "" and name in local_arrays:
            return f"local_{name}"
        width = size(row_shape(arrays[name]))
        index = index_name(statement.space, path)
        row = "0" if path == "one" else f"int64_t({PREFIX}{index}[i])" if index else "i"
        return f"{PREFIX}{name} + {row} * {width}"

    target = statement.target.name
    width = size(row_shape(arrays[target]))
    loops = Emitter(shapes, pointer).loops(
        statement.expr, shapes(statement.target), lambda at, value: f"out{number}[{at}] = {value};"
    )
    own = target in local_arrays and target not in in_row
    return [
        *([f"Value local_{target}[{width}];"] if own else []),
        "{",
        f"Value* out{number} = {address(target, '')};",
        *(f"const Value* {variable} = {address(name, path)};" for (name, path), variable in pointers.items()),
        loops,
        "}",
    ]

"""Divides the elements of a row among the lanes of a team."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from dacergnn.library_nodes.form import Expr, Op, Ref, Shape, ShapeOf, Statement, size
from dacergnn.library_nodes.operators import op
from dacergnn.library_nodes.shapes import shape_of
from dacergnn.library_nodes.traversal.storage import WIDE

MAX_LANES = 32
INDEX = ("h", "f", "g")
"""Indices of the elements of a row."""


@dataclass(frozen=True)
class Lanes:
    """Describes how the ``lanes`` of a team share a row: they take turns, each with runs of ``vector`` elements.

    Where a lane has room for ``strip`` elements only, rows are cut into strips, which different blocks compute.
    """

    lanes: int = 1
    vector: int = 1
    strip: int | None = None

    @classmethod
    def of(cls, widths: Sequence[int], item: int) -> Lanes:
        """Returns lanes for rows of these widths and elements of ``item`` bytes; one lane a row if all are narrow."""
        wide = [w for w in widths if w >= WIDE]
        if not wide:
            return cls()
        vector = 16 // item if all(w % (16 // item) == 0 for w in wide) else 1
        runs = -(-max(wide) // vector)
        return cls(min(MAX_LANES, 1 << (runs - 1).bit_length()), vector)

    @property
    def round(self) -> int:
        return self.lanes * self.vector

    def held(self, width: int) -> int:
        """Returns the number of elements of a row, or of a strip of it, that a lane has room for."""
        elements = -(-width // self.round) * self.vector
        return elements if self.strip is None else min(elements, self.strip)

    def strips(self, width: int) -> int:
        """Returns the number of strips into which rows are cut."""
        return -(-width // (self.held(width) * self.lanes))


def sums_first(statement: Statement, shapes: ShapeOf, name: Callable[[Shape], str]) -> list[Statement]:
    """Returns a statement for each sum of many elements to a few, which lanes add up together, then the statement.

    ``name`` declares an array of a row shape and returns its name.
    """
    sums: dict[Expr, Statement] = {}

    def visit(expr: Expr) -> Expr:
        if not isinstance(expr, Op):
            return expr
        expr = replace(expr, args=tuple(visit(a) for a in expr.args))
        if expr.name not in ("sum", "dot_prd"):
            return expr
        body = expr.args[0] if expr.name == "sum" else op("mul", *expr.args)
        shape = shape_of(body, shapes)
        if size(shape) < WIDE or size(shape[:-1]) >= WIDE:
            return expr
        total = op("sum", body)
        if total not in sums:
            sums[total] = Statement(statement.space, Ref(name(shape[:-1])), "=", total)
        return sums[total].target

    rest = visit(statement.expr)
    return [*sums.values(), replace(statement, expr=rest)]


Index = tuple[str | None, ...]
"""Indices of an element; None for one that is computed."""


def own_elements(expr: Expr, shape: Shape, shapes: ShapeOf) -> Iterator[tuple[Ref, bool]]:
    """Yields the references of an expression over a shape, and whether each is read at the element that is computed."""
    for ref, index in _accesses(expr, shapes, INDEX[: len(shape)]):
        seen = shapes(ref)
        yield ref, not ref.transposed and size(seen) == size(shape) and index == INDEX[: len(index)]


def _accesses(expr: Expr, shapes: ShapeOf, index: Index) -> Iterator[tuple[Ref, Index]]:
    if not isinstance(expr, Op):
        if isinstance(expr, Ref):
            yield expr, index[: len(shapes(expr))]
        return
    index = index[: len(shape_of(expr, shapes))]
    inside: Sequence[Index] = [index] * len(expr.args)
    match expr.name:
        case "sum" | "dot_prd":
            inside = [(*index, None)] * len(expr.args)
        case "sum_heads":
            inside = [(None, *index)]
        case "to_heads":
            inside = [index[1:]]
        case "outer_prod":
            inside = [index[:-1], (*index[:-2], index[-1])]
        case "slice" | "concat":
            inside = [(*index[:-1], None)] * len(expr.args)
        case "take_rows" | "pad_rows":
            inside = [(*index[:-2], None, index[-1])]
        case _:
            pass
    for argument, own in zip(expr.args, inside, strict=True):
        yield from _accesses(argument, shapes, own)

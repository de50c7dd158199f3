"""Makes the plans of products: which kernel runs them, the encodings that it reads, and the epilogue of a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, reduce
from typing import Literal

from dacergnn.graph.spaces import MAPS, encoding_name, kind
from dacergnn.library_nodes.access import (
    group_path,
    index_name,
    neighbour_encodings,
    order_name,
    pointer_name,
    statement_encodings,
)
from dacergnn.library_nodes.form import WEIGHT_PRODUCTS, Expr, Gemm, Op, Ref, Statement
from dacergnn.library_nodes.plan import Arrays, OperatorPlan
from dacergnn.library_nodes.shapes import shape_of
from dacergnn.library_nodes.traversal.nest import Levels

Form = Literal["weights", "outer", "gather", "scatter", "sums", "pairs"]
"""Kernels: products of weights with each other, weight gradients, and products of rows.

Among products of rows, "gather" has a result for each row. The others add results up: "scatter" row by row, "sums" by
adding the rows of each target before the product, "pairs" by adding the rows of each pair of target and type before.
"""

_OF_TWO = ("weights", "outer")
"""Forms whose operands both are rows; in other forms, the second operand is the weight of a type."""


@dataclass(frozen=True)
class ProductBody:
    """Holds the statements of a product, the arrays that they touch, and the names of those that only they touch."""

    statements: tuple[Statement, ...]
    arrays: Arrays
    local_arrays: tuple[str, ...] = ()

    @cached_property
    def made(self) -> Statement | None:
        """Returns the sum over edges that makes each row of the first operand, if that is in no array."""
        return None if self.statements[0].is_gemm else self.statements[0]

    @cached_property
    def spread(self) -> tuple[Statement, ...]:
        """Returns values of edges that are computed from each row of the result, which is then in no array."""
        product = next(s for s in self.statements if s.is_gemm)
        later = self.statements[self.statements.index(product) :]
        return tuple(s for s in later if Levels((product.space, s.space)).up(s.space, product.space))

    @cached_property
    def own(self) -> tuple[Statement, ...]:
        """Returns the product and its epilogue."""
        return tuple(s for s in self.statements if s is not self.made and s not in self.spread)

    @property
    def gemm(self) -> Gemm:
        """Returns the operands of the product."""
        gemm = self.own[0].gemm
        assert gemm is not None
        return gemm


@dataclass(frozen=True)
class ProductSchedule:
    """Describes the choices for the kernel of a product (`select_schedule`).

    Args:
        split_hubs: Whether several blocks of a device share very long sums.
        row_tile: Rows that are multiplied at a time; 0 for as many as usual.
        depth_block: Depth that is multiplied at a time; 0 to choose it by the size of the weight.
        least_blocks: Blocks of a multiprocessor that registers have room for; 0 for as many as usual.
    """

    split_hubs: bool = False
    row_tile: int = 0
    depth_block: int = 0
    least_blocks: int = 0


USUAL = ProductSchedule()
LEAST_BLOCK = 128
"""The depth up to which a product has a single block, so that there is no choice."""


@dataclass(frozen=True)
class Segments:
    """Describes how rows of a space are grouped by type: where each group starts, and in which order rows are visited.

    ``pointers`` is None for a single type, and ``order`` is None if the rows already are in that order.
    """

    rows: str
    types: str
    pointers: str | None
    order: str | None

    @classmethod
    def of(cls, rows: str, *paths: str) -> Segments:
        """Returns rows grouped by the first path, and rows of one group by the others."""
        return cls(rows, MAPS[rows, paths[0]], pointer_name(rows, paths[0]), order_name(rows, *paths))


@dataclass(frozen=True, eq=False, kw_only=True)
class GemmPlan(OperatorPlan):
    """Describes the plan of a product.

    Args:
        form: The kernel.
        heads, k, m: Sizes of the weight of a type: (H, K, M).
        scales: Number of scales of a row: none, one, or one for each head.
        gathers: For each operand whose rows are read, the encoding that lists the rows; None for the own row.
        segments: The rows by type; None for products of weights.
        targets: The rows, or pairs, by the row that they are added to; None if they are not added.
        target_of: Encoding with the row that each row is added to.
        place: The array in whose rows the product is computed.
        start: The array whose rows sums start from, in place of zeros.
        epilogue: Statements that are run on each row of the result once it is finished.
        in_row: Arrays whose row is the row of ``place`` while the epilogue runs.
        local_rows: Other arrays that only the epilogue touches, with the place of their rows in its memory.
        schedule: The choices for its kernel.
        summed: For "pairs", the rows by the pair to whose sum they are added.
        made: The sum over edges that makes each row of the first operand, if that is in no array.
        spread: Values of edges that are computed from each row of the result, which is then in no array.
        at_once: On a device, the number of rows whose reads of a statement of the epilogue are under way together.
    """

    form: Form
    statement: Statement
    gemm: Gemm
    arrays: Arrays
    heads: int
    k: int
    m: int
    scales: int
    gathers: tuple[str | None, str | None]
    segments: Segments | None
    targets: Segments | None
    target_of: str | None
    place: str
    start: str | None
    epilogue: tuple[Statement, ...]
    in_row: frozenset[str]
    local_rows: Mapping[str, int]
    schedule: ProductSchedule = USUAL
    summed: Segments | None = None
    made: Statement | None = None
    spread: tuple[Statement, ...] = ()
    at_once: int = 1

    @property
    def hubs(self) -> bool:
        """Returns whether several blocks share very long sums."""
        return self.schedule.split_hubs and self.targets is not None

    @property
    def space(self) -> str:
        """Returns the row space of the product."""
        return self.statement.space

    @property
    def owner(self) -> str:
        """Returns the row space of the array that the product writes."""
        return self.arrays[self.statement.target.name].space

    @property
    def reached(self) -> str:
        """Returns the row space of the rows that have a result."""
        path = self.statement.target.path
        return MAPS[self.space, path] if path else self.space

    @property
    def width(self) -> int:
        """Returns the number of elements of a row of the result."""
        return self.heads * (self.k if self.gemm.w.transposed else self.m)

    @property
    def local_elements(self) -> int:
        """Returns the number of elements of all local rows."""
        return sum(self.arrays.width(name) for name in self.local_rows)

    @property
    def repeats(self) -> tuple[bool, bool]:
        """Returns which operands of an outer product repeat: edges of a type are in the order of destinations."""
        x, w = (kind(self.space) == "E" and ref.path == "dst" for ref in (self.gemm.x, self.gemm.w))
        return x, w

    def is_at_hand(self, ref: Ref) -> bool:
        """Returns whether a reference of the epilogue reads a row that the kernel has."""
        return ref.path == "" and (ref.name in self.in_row or ref.name in self.local_rows)


@lru_cache(maxsize=512)
def plan_gemm(body: ProductBody, schedule: ProductSchedule = USUAL) -> GemmPlan:
    """Returns the plan of a product for a target whose threads compute whole rows."""
    start, statements = sums_start(body)
    plan = describe(body)
    names = dict.fromkeys(name for s in body.own for name in statement_encodings(s))
    for statement in (*([] if body.made is None else [body.made]), *body.spread):
        names |= dict.fromkeys(neighbour_encodings(statement, path_to_row(body, statement)))
    pairs = frozenset({(start, plan.place)}) if start else frozenset[tuple[str, str]]()
    return replace(
        plan,
        start=start,
        epilogue=tuple(statements[1:]),
        encodings=tuple(names),
        in_place=pairs,
        schedule=schedule,
        questions=_questions(plan),
    )


def _questions(plan: GemmPlan) -> tuple[str, ...]:
    """Returns the choices that the code of a product of rows depends on; a small depth has a single block."""
    if plan.form not in ("gather", "scatter"):
        return ()
    depth = plan.m if plan.gemm.w.transposed else plan.k
    return ("row_tile", "depth_block") if depth > LEAST_BLOCK else ("row_tile",)


def describe(body: ProductBody) -> GemmPlan:
    """Returns the part of the plan that all targets share; each target adds the encodings."""
    statement, gemm, arrays = body.own[0], body.gemm, body.arrays
    space, path, group = statement.space, statement.target.path, group_path(statement)
    form: Form = "scatter" if path else "gather"
    segments = targets = None
    if gemm.kind in WEIGHT_PRODUCTS:
        form = "weights"
        heads, k, m = weight_product_sizes(body)
    else:
        weights = statement.target if gemm.kind == "outer_prod" else gemm.w
        shape = arrays[weights.name].shape
        heads, k, m = shape if len(shape) == 3 else (1, *shape)
        form = "outer" if gemm.kind == "outer_prod" else form
        segments = Segments.of(space, group, path) if form == "scatter" else Segments.of(space, group)
        targets = Segments.of(space, path) if form == "scatter" else None
    place = stored_in(body)
    in_row = frozenset({statement.target.name, place})
    local_rows: dict[str, int] = {}
    for name in dict.fromkeys(s.target.name for s in body.own[1:]):
        if name in body.local_arrays and name not in in_row:
            local_rows[name] = sum(arrays.width(other) for other in local_rows)
    return GemmPlan(
        encodings=(),
        form=form,
        statement=statement,
        gemm=gemm,
        arrays=arrays,
        heads=heads,
        k=k,
        m=m,
        scales=0 if gemm.scale is None else arrays.width(gemm.scale.name),
        gathers=(_gather(space, gemm.x), _gather(space, gemm.w) if form in _OF_TWO else None),
        segments=segments,
        targets=targets,
        target_of=index_name(space, path),
        place=place,
        start=None,
        epilogue=body.own[1:],
        in_row=in_row,
        local_rows=local_rows,
        made=body.made,
        spread=body.spread,
    )


def path_to_row(body: ProductBody | GemmPlan, statement: Statement) -> str:
    """Returns the path from the edges of a statement to the row of the product that they make or read."""
    product = body.own[0] if isinstance(body, ProductBody) else body.statement
    return Levels((product.space, statement.space)).up(statement.space, product.space) or ""


def _gather(space: str, ref: Ref) -> str | None:
    """Returns the encoding that lists gathered rows; kernels need one even where a single row repeats."""
    return encoding_name("idx", space, ref.path) if ref.path else None


def weight_product_sizes(body: ProductBody) -> tuple[int, int, int]:
    """Returns the heads of a product of weights, the rows of its first operand, and the columns of it for each head."""
    gemm = body.gemm
    x, w = (shape_of(ref, body.arrays.shapes) for ref in (gemm.x, gemm.w))
    heads = (w[0] if len(w) == 3 else 1) if gemm.kind == "compose" else (gemm.dims or (1,))[0]
    return heads, x[0], x[1] // heads


# Epilogues -----------------------------------------------------------------------------------------------------


def stored_in(body: ProductBody) -> str:
    """Returns the array in whose rows the product is computed: its own, or the last one written if that is local."""
    product = body.own[0].target.name
    return body.own[-1].target.name if product in body.local_arrays else product


def sums_start(body: ProductBody) -> tuple[str | None, Sequence[Statement]]:
    """Returns the array whose rows the sums of a product start from, in place of zeros, and the statements without it.

    The first statement after the product adds this array to it, and nothing else reads either of them.
    """
    product, *rest = body.own
    name, arrays = product.target.name, body.arrays
    if not rest or not product.target.path or name not in body.local_arrays:
        return None, body.own
    terms = _terms(rest[0].expr)
    reads = Counter(ref.name for s in body.own for ref in s.reads)
    if Ref(name) not in terms or reads[name] > 1:
        return None, body.own
    fitting = [n for n in reads if n != name and Ref(n) in terms and reads[n] == 1 and arrays[n] == arrays[name]]
    if not fitting:
        return None, body.own
    left = [term for term in terms if term != Ref(fitting[0])]
    first = replace(rest[0], expr=reduce(lambda total, term: Op("add", (total, term)), left))
    copies = first.expr == Ref(name) and first.target.name == stored_in(body)
    return fitting[0], (product, *([] if copies else [first]), *rest[1:])


def _terms(expr: Expr) -> list[Expr]:
    """Returns the terms of a sum, in order."""
    if isinstance(expr, Op) and expr.name == "add":
        return [term for argument in expr.args for term in _terms(argument)]
    return [expr]

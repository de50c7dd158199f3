"""What an operator computes, whatever its schedule: a histogram of its operations, and how it reaches rows.

Invariant features are numbers for one row of the row space of a statement, summed over the statements by the kind of
that space, so that they depend on no graph. With the rows of a graph they make totals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from dacergnn.cost import Access, Work
from dacergnn.graph.spaces import TYPE_PATHS, kind
from dacergnn.library_nodes.form import WEIGHT_PRODUCTS, Const, Expr, Op, Ref, Shape, ShapeOf, match_gemm, size
from dacergnn.library_nodes.operators import COSTS, OPERATORS
from dacergnn.library_nodes.shapes import broadcast, shape_of

_ROWS = {
    "E": "edges", "U": "pairs", "V": "pairs", "RNS": "pairs", "NS": "nodes", "ND": "nodes", "R": "types", "T": "types",
    "ONE": "types", "FS": "types", "FD": "types", "TFS": "types", "TFD": "types", "RFS": "types", "RFD": "types",
}  # fmt: skip
ROWS = ("edges", "pairs", "nodes", "types", "nonzeros")
"""Kinds of row spaces."""
_OPERATIONS = {
    **{name: operator.cost for name, operator in OPERATORS.items()},
    **dict.fromkeys(("sum", "sum_heads", "+="), "add"),
    "dot_prd": "multiply",
    **dict.fromkeys(("max=", "min="), "select"),
    **dict.fromkeys(("concat", "slice", "expand", "take_rows", "pad_rows", "to_heads"), "move"),
    "linear": "linear",
    "outer_prod": "outer",
    **dict.fromkeys(WEIGHT_PRODUCTS, "weights"),
}
OPERATIONS = (*COSTS, "move", "linear", "outer", "weights", "index")
"""Kinds of operations: of products, those of their multiplications with an addition; look-ups of rows."""
PATTERNS = (
    "read", "in_order", "gathered", "repeated", "typed", "transposed", "written", "reduced", "scattered", "summed",
)  # fmt: skip
"""Elements that are read from the own row, through a map in the order of the rows or in any, from one row for all, by
type, transposed; written to the own row, added into groups, out of order, into types."""
_SHAPES = ("K", "M", "heads", "widest", "narrowest", "statements", "reads", "writes")
COUNTS = (
    *(f"{rows}_{name}" for rows in ROWS for name in (*OPERATIONS, *PATTERNS)),
    *_SHAPES,
)
TOTALS = (*(f"all_{name}" for name in OPERATIONS), "functions_ns")
"""Operations of each kind on all rows, and about how many nanoseconds those take that `FUNCTION_NS` has."""
FUNCTION_NS = {"divide": 0.2, "exp": 0.5, "erf": 1.0, "tanh": 1.0, "root": 0.5}
"""Of a thread, in vectors, for one that is neither an addition nor a multiplication."""
SHARES = ("product", "scaled", "pairs_first", "most_rank", "wide_items")
"""Numbers from 0 to 3: whether it is a product, scales its rows, sums those of a pair before; the rank of rows, and
whether elements have eight bytes."""


def row_kind(space: str) -> str:
    """The kind of a row space."""
    return _ROWS.get(kind(space), "nonzeros")


def invariant_features(works: Sequence[Work], shapes: ShapeOf, item: int) -> tuple[dict[str, float], dict[str, float]]:
    """Features of an operator's statements by `COUNTS` and by `SHARES`.

    Args:
        works: What its statements do.
        shapes: Row shape of a reference.
        item: Bytes of an element.
    """
    counts: Counter[str] = Counter()
    for work in works:
        rows = row_kind(work.statement.space)
        for name, number in row_operations(work, shapes).items():
            counts[f"{rows}_{name}"] += number
        for access in work.accesses:
            elements = access.width // item
            counts[f"{rows}_{_pattern(access)}"] += elements
            counts[f"{rows}_transposed"] += elements * access.ref.transposed
            counts[f"{rows}_index"] += access.indexed
    first = works[0].statement
    gemm = match_gemm(first)
    row_widths = [shapes(ref) for work in works for ref in (*work.statement.reads, work.statement.target)]
    refs = {(a.ref.name, a.ref == w.statement.target) for w in works for a in w.accesses}
    heads, k, m = (0, 0, 0) if gemm is None else _matrix(shapes(first.target if gemm.kind == "outer_prod" else gemm.w))
    widths = [size(shape) for shape in row_widths]
    facts = (
        k, m, heads, max(widths), min(widths), len(works), sum(not w for _, w in refs), sum(w for _, w in refs),
    )  # fmt: skip
    shares = (
        gemm is not None,
        gemm is not None and gemm.scale is not None,
        any(work.multiplied != work.statement.space for work in works),
        max(map(len, row_widths)),
        item > 4,
    )
    features = {**dict.fromkeys(COUNTS, 0.0), **counts, **dict(zip(_SHAPES, map(float, facts), strict=True))}
    return features, dict(zip(SHARES, map(float, shares), strict=True))


def totals(operations: Iterable[tuple[int, Mapping[str, int]]], threads: int) -> dict[str, float]:
    """Features by `TOTALS` of statements with so many rows and operations for each of them."""
    features = dict.fromkeys(TOTALS, 0.0)
    for rows, by_name in operations:
        for name, number in by_name.items():
            features[f"all_{name}"] += rows * number
    features["functions_ns"] = sum(ns * features[f"all_{name}"] for name, ns in FUNCTION_NS.items()) / threads
    return features


def _matrix(shape: Shape) -> tuple[int, int, int]:
    """Heads, rows and columns of weights."""
    heads, k, m = (1, 1, 1, *shape)[-3:]
    return heads, k, m


def _pattern(access: Access) -> str:
    ref = access.ref
    if ref == access.statement.target:
        if access.way == "scattered":
            return "scattered"
        return "written" if ref.path == "" else "summed" if ref.path in TYPE_PATHS else "reduced"
    if ref.path in TYPE_PATHS:
        return "repeated" if ref.path == "one" else "typed"
    return "read" if ref.path == "" else "in_order" if access.in_order else "gathered"


def row_operations(work: Work, shapes: ShapeOf) -> Counter[str]:
    """Operations for one row of a statement, by `OPERATIONS`."""
    statement, operations = work.statement, Counter[str]()
    gemm = match_gemm(statement)
    if gemm is not None:
        operations[_OPERATIONS[gemm.kind]] += work.flops // 2
        operations["add"] += work.sum_flops
        return operations
    if statement.op != "=":
        operations[_OPERATIONS[statement.op]] += size(shapes(statement.target))
    seen: dict[Expr, Shape] = {}

    def visit(expr: Expr) -> Shape:
        """The shape of an expression; equal ones are computed once."""
        if isinstance(expr, Const):
            return ()
        if isinstance(expr, Ref):
            return shape_of(expr, shapes)
        if expr not in seen:
            inputs = [visit(arg) for arg in expr.args]
            seen[expr] = shape = _shape(expr, inputs, shapes)
            elements = size(_longest(inputs) if expr.name in ("sum", "dot_prd", "sum_heads") else shape)
            operations[_OPERATIONS[expr.name]] += elements if expr.name != "linear" else size(inputs[1])
            if expr.name == "dot_prd":
                operations["add"] += elements
        return seen[expr]

    visit(statement.expr)
    return operations


def _shape(expr: Op, inputs: Sequence[Shape], shapes: ShapeOf) -> Shape:
    """The shape of an expression whose operands have these."""
    known = {f"{n}": shape for n, shape in enumerate(inputs)}
    args = tuple(arg if isinstance(arg, Ref | Const) else Ref(f"{n}") for n, arg in enumerate(expr.args))
    own = {arg for arg in expr.args if isinstance(arg, Ref)}
    return shape_of(Op(expr.name, args, expr.dims), lambda ref: shapes(ref) if ref in own else known[ref.name])


def _longest(shapes: Iterable[Shape]) -> Shape:
    return broadcast(list(shapes), "operands")

"""Features of an operator that no schedule changes: a histogram of its operations, and how it reaches rows.

Invariant features count per row of a statement's row space, and are summed over the statements by the kind of that
space. So they depend on no graph. Times the rows of a graph they give totals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from dacergnn.cost import Access, Work
from dacergnn.graph.spaces import TYPE_PATHS, kind
from dacergnn.library_nodes.form import WEIGHT_PRODUCTS, Const, Expr, Op, Ref, Shape, ShapeOf, size
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
"""Kinds of operations. Of a product, multiplications with an addition are counted; "index" counts look-ups of rows."""
PATTERNS = (
    "read", "in_order", "gathered", "repeated", "typed", "transposed", "written", "reduced", "scattered", "summed",
)  # fmt: skip
"""Elements by access: "read" from the own row; through a map in the order of its rows ("in_order") or not ("gathered");
from one row for all ("repeated"), by type or transposed; "written" to the own row; added into groups ("reduced"), out
of order ("scattered") or into types ("summed")."""
_SHAPES = ("K", "M", "heads", "widest", "narrowest", "statements", "reads", "writes")
COUNTS = (
    *(f"{rows}_{name}" for rows in ROWS for name in (*OPERATIONS, *PATTERNS)),
    *_SHAPES,
)
TOTALS = (*(f"all_{name}" for name in OPERATIONS), "functions_ns")
"""Operations of each kind on all rows, and about how many nanoseconds the operations of `FUNCTION_NS` take."""
FUNCTION_NS = {"divide": 0.2, "exp": 0.5, "erf": 1.0, "tanh": 1.0, "root": 0.5}
"""Nanoseconds of one operation on one thread with vectors, for kinds slower than additions and multiplications."""
SHARES = ("product", "scaled", "pairs_first", "most_rank", "wide_items")
"""Numbers from 0 to 3: whether the operator is a product, scales its rows, or sums the rows of a pair first; the
largest rank of its rows; whether elements have more than four bytes."""


def row_kind(space: str) -> str:
    """Returns the kind of a row space, one of `ROWS`."""
    return _ROWS.get(kind(space), "nonzeros")


def invariant_features(works: Sequence[Work], shapes: ShapeOf, item: int) -> tuple[dict[str, float], dict[str, float]]:
    """Returns features of an operator's statements by `COUNTS` and by `SHARES`.

    Args:
        works: The work of its statements.
        shapes: Returns the row shape of a reference.
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
    gemm = first.gemm
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
    """Returns features by `TOTALS`; ``operations`` are, for each statement, its rows and the operations per row."""
    features = dict.fromkeys(TOTALS, 0.0)
    for rows, by_name in operations:
        for name, number in by_name.items():
            features[f"all_{name}"] += rows * number
    features["functions_ns"] = sum(ns * features[f"all_{name}"] for name, ns in FUNCTION_NS.items()) / threads
    return features


def _matrix(shape: Shape) -> tuple[int, int, int]:
    """Returns heads, rows and columns of weights."""
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
    """Counts the operations for one row of a statement, by `OPERATIONS`."""
    statement, operations = work.statement, Counter[str]()
    gemm = statement.gemm
    if gemm is not None:
        operations[_OPERATIONS[gemm.kind]] += work.flops // 2
        operations["add"] += work.sum_flops
        return operations
    if statement.op != "=":
        operations[_OPERATIONS[statement.op]] += size(shapes(statement.target))
    seen: dict[Expr, Shape] = {}

    def visit(expr: Expr) -> Shape:
        """Returns the shape of an expression and counts its operations; equal expressions count once."""
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
    """Returns the shape of an expression whose operands have the shapes ``inputs``."""
    known = {f"{n}": shape for n, shape in enumerate(inputs)}
    args = tuple(arg if isinstance(arg, Ref | Const) else Ref(f"{n}") for n, arg in enumerate(expr.args))
    own = {arg for arg in expr.args if isinstance(arg, Ref)}
    return shape_of(Op(expr.name, args, expr.dims), lambda ref: shapes(ref) if ref in own else known[ref.name])


def _longest(shapes: Iterable[Shape]) -> Shape:
    return broadcast(list(shapes), "operands")

"""Defines the program form: the expressions and statements that make up the bodies of library nodes.

A statement runs once for every row of its row space and reads rows that an index map leads to
(``e.src.x`` from an edge row, ``W[e.etype]`` from its type). Its target is a row of the same space, or
a row that a map leads to; in the second case it is a reduction::

    e["score"] = leakyrelu(dot_prd(e.src.h, w[e.etype]), 0.2)     # E -> E
    e.dst["out"] += e["att"] * e.src.h                            # E -> ND, a sum over incoming edges

Per-row values have a shape of rank 0 to 3; operands of lower rank broadcast along leading axes, so
that a value per head scales a vector per head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from dacergnn.graph.spaces import FEATURE_SPACES, GRAPH_SPACES, NONZEROS, TYPE_PATHS, kind
from dacergnn.library_nodes.place import Place

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Ref:
    """Represents the row of array ``name`` that map ``path`` leads to ("": the own row), in shape ``view``, if given.

    ``transposed`` then exchanges the last two axes of this view.
    """

    name: str
    path: str = ""
    view: Shape | None = None
    transposed: bool = False


@dataclass(frozen=True, eq=False)
class Const:
    """Represents a number. The two zeros are not equal, because quotients by them differ."""

    value: float

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Const) and self._exact == other._exact

    def __hash__(self) -> int:
        return hash(self._exact)

    @cached_property
    def _exact(self) -> str:
        return float(self.value).hex()


@dataclass(frozen=True)
class Op:
    """Applies an operator of ``operators.py``; ``dims`` holds the integers of `reshape`, `slice`, `inner`, ..."""

    name: str
    args: tuple[Expr, ...]
    dims: Shape = ()


Expr = Ref | Const | Op
ShapeOf = Callable[[Ref], Shape]

WEIGHT_PRODUCTS = ("compose", "inner")
"""Products of the matrices of one type: such statements are in loops over types."""
TYPE_SPACES = ("R", "T", "ONE")
GEMM_OPERATORS = ("linear", "outer_prod", *WEIGHT_PRODUCTS)
REDUCTIONS = ("=", "+=", "max=", "min=")
GRADIENT = "grad_"
"""Names of gradients start so, and no others in programs that have some."""


@dataclass(frozen=True)
class Statement:
    """Represents ``target op expr`` for every row of ``space``.

    Its ``place`` is where it was written. Statements at different places are equal, so no plan and no build depends
    on it.
    """

    space: str
    target: Ref
    op: str
    expr: Expr
    place: Place | None = field(default=None, compare=False, repr=False)

    @cached_property
    def reads(self) -> tuple[Ref, ...]:
        return tuple(refs(self.expr))

    @cached_property
    def gemm(self) -> Gemm | None:
        """Returns its operands if one SegmentGemm can run it, else None."""
        return _gemm_of(self)

    @property
    def is_gemm(self) -> bool:
        return self.gemm is not None


@dataclass(frozen=True)
class Gemm:
    """Describes a statement that SegmentGemm runs: ``target op scale * kind(x, w)``; ``dims`` are those of `inner`."""

    kind: str
    x: Ref
    w: Ref
    scale: Ref | None
    dims: Shape = ()

    @property
    def gradient_of_rows(self) -> int | None:
        """Returns which operand of an outer product of a row's own values is a gradient: 0 or 1; None for no such one.

        Where it is zero, nobody reads the row, and the other operand may hold missing values, which are NaN.
        """
        gradients = [ref.name.startswith(GRADIENT) for ref in (self.x, self.w)]
        own = self.kind == "outer_prod" and self.x.path == self.w.path == ""
        return gradients.index(True) if own and sum(gradients) == 1 else None


def _gemm_of(statement: Statement) -> Gemm | None:
    expr = statement.expr
    scale: Ref | None = None
    if isinstance(expr, Op) and expr.name == "mul" and isinstance(expr.args[0], Ref):
        scale, expr = expr.args[0], expr.args[1]
    if not isinstance(expr, Op) or expr.name not in GEMM_OPERATORS or (scale is not None and scale.path != ""):
        return None
    x, w = expr.args
    if not isinstance(x, Ref) or not isinstance(w, Ref) or statement.op not in ("=", "+="):
        return None
    if expr.name in WEIGHT_PRODUCTS:
        alone = scale is None and statement.op == "=" and statement.target.path == ""
        return Gemm(expr.name, x, w, None, expr.dims) if alone and statement.space in TYPE_SPACES else None
    to_type = statement.op == "+=" and statement.target.path in TYPE_PATHS
    if (to_type or w.path not in TYPE_PATHS) if expr.name == "linear" else not to_type:
        return None
    return Gemm(expr.name, x, w, scale)


def refs(expr: Expr) -> Iterator[Ref]:
    """Yields the references of an expression from left to right, repeated where they occur again."""
    if isinstance(expr, Ref):
        yield expr
    elif isinstance(expr, Op):
        for arg in expr.args:
            yield from refs(arg)


def size(shape: Shape) -> int:
    return prod(shape)


# Printing -------------------------------------------------------------------------------------------------

_ENTITY = {"E": "e", "NS": "n", "ND": "n", "U": "p", "V": "p", "R": "r", "T": "t", "ONE": "o", "RNS": "w"}
ENTITY = {
    **dict.fromkeys(FEATURE_SPACES, "c"),
    **dict.fromkeys(NONZEROS, "z"),
    **{space: _ENTITY[kind(space)] for space in GRAPH_SPACES},
}
_ROW_PATHS = {
    "": "", "src": ".src", "dst": ".dst", "srcpair": ".src_pair", "dstpair": ".dst_pair", "edge": ".edge",
    "row": ".row", "column": ".column", "typedcolumn": ".typed_column", "pair": ".pair", "nonzero": ".nonzero",
}  # fmt: skip
_TYPE_KEYS = {
    "etype": "{}.etype",
    "ntype": "{}.ntype",
    "srctype": "{}.src.ntype",
    "dsttype": "{}.dst.ntype",
    "typedsrc": "{0}.etype, {0}.src",
}
_INFIX = {"add": ("+", 1), "sub": ("-", 1), "mul": ("*", 2), "div": ("/", 2)}
_COMPARE = {"gt": ">", "ge": ">=", "eq": "=="}


def ref_text(ref: Ref, entity: str, aliases: dict[str, str] | None = None) -> str:
    """Returns ``e.src["x"]``, ``W[e.etype].T`` or ``bias``; ``aliases`` maps a path to another loop variable."""
    if ref.path == "one":
        text = ref.name
    elif ref.path in _TYPE_KEYS:
        text = f"{ref.name}[{_TYPE_KEYS[ref.path].format(entity)}]"
    elif aliases and ref.path in aliases:
        text = f'{aliases[ref.path]}["{ref.name}"]'
    else:
        text = f'{entity}{_ROW_PATHS[ref.path]}["{ref.name}"]'
    if ref.view is not None:
        text = f"reshape({', '.join([text, *map(str, ref.view)])})"
    return f"{text}.T" if ref.transposed else text


def expr_text(expr: Expr, entity: str, aliases: dict[str, str] | None = None, level: int = 0) -> str:
    """Returns the expression in program form; ``level`` is the precedence of the operator around it."""
    if isinstance(expr, Ref):
        return ref_text(expr, entity, aliases)
    if isinstance(expr, Const):
        return repr(float(expr.value))
    if expr.name in _INFIX:
        sign, rank = _INFIX[expr.name]
        left = expr_text(expr.args[0], entity, aliases, rank)
        right = expr_text(expr.args[1], entity, aliases, rank + 1)
        text = f"{left} {sign} {right}"
        return f"({text})" if rank < level else text
    if expr.name == "neg":
        text = f"-{expr_text(expr.args[0], entity, aliases, 3)}"
        return f"({text})" if level > 1 else text
    if expr.name in _COMPARE:
        left, right = (expr_text(a, entity, aliases, 1) for a in expr.args)
        return f"({left} {_COMPARE[expr.name]} {right})"
    inner = [expr_text(a, entity, aliases) for a in expr.args] + [str(d) for d in expr.dims]
    return f"{expr.name}({', '.join(inner)})"


def statement_text(statement: Statement, entity: str | None = None, aliases: dict[str, str] | None = None) -> str:
    """Returns the statement on one line, as a loop over its row space would hold it."""
    entity = entity or ENTITY[statement.space]
    target = ref_text(statement.target, entity, aliases)
    expr = expr_text(statement.expr, entity, aliases)
    if statement.op in ("max=", "min="):
        return f"{target} = {statement.op[:-1]}({target}, {expr})"
    return f"{target} {statement.op} {expr}"

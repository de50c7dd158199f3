"""One form for programs that say the same in different words, so that all passes behind it treat them alike.

Precondition: an inter-operator SDFG whose operators hold one statement each.

Before::

    e["s"] = e["a"] + e["b"]
    e["att"] = leakyrelu(e["s"], 0.2)
    n["out"] += e["msg"] * (e["y"] / e.dst["total"])
    n["agg"] += e["att"] * linear(e.src["v"], W[e.etype])

After: copies are forwarded and equal values computed once; an element-wise value that one element-wise statement reads
in its own rows is part of that statement, unless it lives in fewer rows than edges and could move there; the narrow
factors of a sum over edges, and its products with typed weights, are arrays; numbers stand behind what they scale, and
else narrow factors in front of wide ones; a product has the row shape in which all read it::

    e["att"] = leakyrelu(e["a"] + e["b"], 0.2)
    e["w"] = e["y"] / e.dst["total"]
    n["out"] += e["w"] * e["msg"]
    e["rows"] = linear(e.src["v"], W[e.etype])
    n["agg"] += e["att"] * e["rows"]

Saves nothing itself: what comes of a program does not depend on who wrote it, or on the front end that read it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import dace

from dacergnn.graph.spaces import TYPE_PATHS, kind, through
from dacergnn.library_nodes.form import Const, Expr, Op, Ref, Statement, match_gemm, refs, size
from dacergnn.library_nodes.shapes import is_elementwise, shape_of
from dacergnn.program.listing import Listing, map_refs
from dacergnn.sdfg_passes.base import Pass
from dacergnn.sdfg_passes.context import Context

_FEWER = ("one", "etype", "srcpair", "dstpair")
"""Tells where values of edges live in fewer rows."""


@dataclass(frozen=True)
class CanonicalForm(Pass):
    """Brings a program into the form; counts the statements that became others."""

    name: ClassVar[str] = "canonical_form"

    def run(self, sdfg: dace.SDFG, context: Context) -> int:
        listing = Listing.of(sdfg)
        before = list(listing.statements)
        listing.settle()
        _shape_products(listing)
        _join(listing)
        parts = [part for s in listing.statements for part in _separated(listing, s)]
        listing.statements = [s if s.is_gemm else replace(s, expr=_ordered(listing, s.expr)) for s in parts]
        listing.settle()
        if listing.statements == before:
            return 0
        listing.write(sdfg)
        return len([s for s in listing.statements if s not in before]) or 1


def _shape_products(listing: Listing) -> None:
    """Give the results of products the row shape in which they are read, if it is one for all readers."""
    products = [s.target.name for s in listing.statements if s.is_gemm and s.op == "="]
    for name in filter(listing.is_internal, products):
        views = {r.view for s in listing.statements for r in s.reads if r.name == name}
        view = next(iter(views)) if len(views) == 1 else None
        if view is not None:
            listing.arrays[name] = listing.arrays[name]._replace(shape=view)
            listing.retarget(lambda s, r, n=name: replace(r, view=None) if r.name == n else r)


def _join(listing: Listing) -> None:
    """Put element-wise values into the one statement that reads them."""
    fewer: dict[str, frozenset[str]] = {}
    for statement in list(listing.statements):
        current = listing.producer(statement.target.name)
        assert current is not None
        fewer[current.target.name] = _fewer(current, fewer)
        for name in [r.name for r in current.reads]:
            made = listing.producer(name)
            if made is None or not _joins(listing, made, current):
                continue
            joined = replace(
                current, expr=map_refs(current.expr, lambda r, m=made: m.expr if r.name == m.target.name else r)
            )
            if kind(current.space) == "E" and _fewer(joined, fewer) != fewer[name]:
                continue
            listing.exchange(current, joined)
            listing.exchange(made)
            current = joined
            fewer[current.target.name] = _fewer(current, fewer)


def _joins(listing: Listing, made: Statement, reader: Statement) -> bool:
    """Returns whether ``made`` may become part of ``reader``, the only statement that reads it, once."""
    name = made.target.name
    if not _is_map(made) or not _is_map(reader) or made.space != reader.space or not listing.is_internal(name):
        return False
    if listing.shape(Ref(name)) != shape_of(made.expr, listing.shape):  # spread over the axes of its array
        return False
    if _is_narrow(listing, made.expr, reader.expr):
        return False
    return listing.consumers(name) == [reader] and [r for r in reader.reads if r.name == name] == [Ref(name)]


def _is_map(statement: Statement) -> bool:
    """Returns whether a statement computes own rows element by element."""
    own = statement.op == "=" and statement.target == Ref(statement.target.name)
    return own and isinstance(statement.expr, Op) and is_elementwise(statement.expr)


def _is_narrow(listing: Listing, value: Expr, around: Expr) -> bool:
    """Returns whether a value has fewer elements in a row than what it is part of, and depends on more than types."""
    own = any(r.path not in TYPE_PATHS for r in refs(value))
    return own and size(shape_of(value, listing.shape)) < size(shape_of(around, listing.shape))


def _fewer(statement: Statement, known: dict[str, frozenset[str]]) -> frozenset[str]:
    """The paths from edges to fewer rows that the value of a statement of edges depends on alone."""
    if kind(statement.space) != "E" or statement.op != "=" or statement.target.path:
        return frozenset()

    def follows(ref: Ref, via: str) -> bool:
        return via in known.get(ref.name, ()) if ref.path == "" else through(statement.space, via, ref.path) is not None

    return frozenset(via for via in _FEWER if all(follows(r, via) for r in refs(statement.expr)))


def _separated(listing: Listing, statement: Statement) -> list[Statement]:
    """A statement behind those of its narrow factors, and of its product with weights if it sums over edges."""
    made: list[Statement] = []

    def own(value: Expr, name: str) -> Ref:
        array = listing.add(name, statement.space, shape_of(value, listing.shape))
        made.append(Statement(statement.space, Ref(array), "=", value))
        return Ref(array)

    def factors(expr: Expr) -> Expr:
        if not isinstance(expr, Op) or not is_elementwise(expr):
            return expr
        expr = replace(expr, args=tuple(factors(a) for a in expr.args))
        if expr.name != "mul":
            return expr
        parts = [isinstance(a, Op) and _is_narrow(listing, a, expr) for a in expr.args]
        return replace(expr, args=tuple(own(a, "factor") if p else a for a, p in zip(expr.args, parts, strict=True)))

    gemm, expr = match_gemm(statement), statement.expr
    if gemm is None:
        expr = factors(expr)
    elif statement.op == "+=" and kind(statement.space) == "E" and statement.target.path not in TYPE_PATHS:
        product = Op(gemm.kind, (gemm.x, gemm.w))
        if shape_of(product, listing.shape) == listing.shape(statement.target):
            rows = own(product, "rows")
            expr = rows if gemm.scale is None else Op("mul", (gemm.scale, rows))
    return [*made, replace(statement, expr=expr)]


def _ordered(listing: Listing, expr: Expr) -> Expr:
    """The expression with the operands of products and sums in their order."""
    if not isinstance(expr, Op):
        return expr
    expr = replace(expr, args=tuple(_ordered(listing, a) for a in expr.args))
    if expr.name not in ("mul", "add"):
        return expr
    first, second = expr.args
    if isinstance(first, Const) or isinstance(second, Const):
        behind = isinstance(first, Const)
    else:
        behind = expr.name == "mul" and size(shape_of(first, listing.shape)) > size(shape_of(second, listing.shape))
    return replace(expr, args=(second, first)) if behind else expr

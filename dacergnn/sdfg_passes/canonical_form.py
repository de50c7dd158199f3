"""Brings equivalent programs into one form, so that all later passes treat them alike.

Precondition: an inter-operator SDFG whose operators hold one statement each.

Before::

    e["s"] = e["a"] + e["b"]
    e["att"] = leakyrelu(e["s"], 0.2)
    n["out"] += e["msg"] * (e["y"] / e.dst["total"])
    n["agg"] += e["att"] * linear(e.src["v"], W[e.etype])

After: copies are forwarded, and equal values are computed once. An element-wise value joins the one element-wise
statement that reads it in its own rows, unless the value alone could move from edges to fewer rows. Narrow factors of a
sum over edges, and its products with typed weights, are arrays. Numbers stand behind what they scale; other narrow
factors stand in front of wide ones. A product has the row shape in which all statements read it::

    e["att"] = leakyrelu(e["a"] + e["b"], 0.2)
    e["w"] = e["y"] / e.dst["total"]
    n["out"] += e["w"] * e["msg"]
    e["rows"] = linear(e.src["v"], W[e.etype])
    n["agg"] += e["att"] * e["rows"]

Saves nothing itself. It makes results independent of how a program was written, and of the front end that read it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import dace

from dacergnn.graph.spaces import TYPE_PATHS, kind, through
from dacergnn.library_nodes.form import Const, Expr, Op, Ref, Statement, refs, size
from dacergnn.library_nodes.shapes import is_elementwise, shape_of
from dacergnn.program.listing import Listing, map_refs
from dacergnn.sdfg_passes.base import Pass
from dacergnn.sdfg_passes.context import Context

_FEWER = ("one", "etype", "srcpair", "dstpair")
"""Paths from edges to fewer rows, in which values of edges may live."""


@dataclass(frozen=True)
class CanonicalForm(Pass):
    """Brings a program into canonical form; counts the statements that changed."""

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
    """Gives results of products the row shape in which they are read, if all readers agree on one."""
    products = [s.target.name for s in listing.statements if s.is_gemm and s.op == "="]
    for name in filter(listing.is_internal, products):
        views = {r.view for s in listing.statements for r in s.reads if r.name == name}
        view = next(iter(views)) if len(views) == 1 else None
        if view is not None:
            listing.arrays[name] = listing.arrays[name]._replace(shape=view)
            listing.retarget(lambda s, r, n=name: replace(r, view=None) if r.name == n else r)


def _join(listing: Listing) -> None:
    """Puts element-wise values into the one statement that reads them."""
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
    if listing.shape(Ref(name)) != shape_of(made.expr, listing.shape):  # broadcast along axes of its array
        return False
    if _is_narrow(listing, made.expr, reader.expr):
        return False
    return listing.consumers(name) == [reader] and [r for r in reader.reads if r.name == name] == [Ref(name)]


def _is_map(statement: Statement) -> bool:
    """Returns whether a statement computes own rows element by element."""
    own = statement.op == "=" and statement.target == Ref(statement.target.name)
    return own and isinstance(statement.expr, Op) and is_elementwise(statement.expr)


def _is_narrow(listing: Listing, value: Expr, around: Expr) -> bool:
    """Returns whether a value is narrower than the expression around it, and depends on more than types."""
    own = any(r.path not in TYPE_PATHS for r in refs(value))
    return own and size(shape_of(value, listing.shape)) < size(shape_of(around, listing.shape))


def _fewer(statement: Statement, known: dict[str, frozenset[str]]) -> frozenset[str]:
    """Returns the paths from edges to fewer rows on which alone the value of a statement depends."""
    if kind(statement.space) != "E" or statement.op != "=" or statement.target.path:
        return frozenset()

    def follows(ref: Ref, via: str) -> bool:
        return via in known.get(ref.name, ()) if ref.path == "" else through(statement.space, via, ref.path) is not None

    return frozenset(via for via in _FEWER if all(follows(r, via) for r in refs(statement.expr)))


def _separated(listing: Listing, statement: Statement) -> list[Statement]:
    """Splits narrow factors off a statement, and its product with weights if it sums over edges; it comes last."""
    made: list[Statement] = []

    def own(value: Expr, name: str) -> Ref:
        array = listing.add(name, statement.space, shape_of(value, listing.shape))
        made.append(Statement(statement.space, Ref(array), "=", value, statement.place))
        return Ref(array)

    def factors(expr: Expr) -> Expr:
        if not isinstance(expr, Op) or not is_elementwise(expr):
            return expr
        expr = replace(expr, args=tuple(factors(a) for a in expr.args))
        if expr.name != "mul":
            return expr
        parts = [isinstance(a, Op) and _is_narrow(listing, a, expr) for a in expr.args]
        return replace(expr, args=tuple(own(a, "factor") if p else a for a, p in zip(expr.args, parts, strict=True)))

    gemm, expr = statement.gemm, statement.expr
    if gemm is None:
        expr = factors(expr)
    elif statement.op == "+=" and kind(statement.space) == "E" and statement.target.path not in TYPE_PATHS:
        product = Op(gemm.kind, (gemm.x, gemm.w))
        if shape_of(product, listing.shape) == listing.shape(statement.target):
            rows = own(product, "rows")
            expr = rows if gemm.scale is None else Op("mul", (gemm.scale, rows))
    return [*made, replace(statement, expr=expr)]


def _ordered(listing: Listing, expr: Expr) -> Expr:
    """Returns the expression with the operands of products and sums in canonical order."""
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

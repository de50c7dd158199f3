"""Turns narrow products, linears from or to a single value, into row-wise statements, which fuse with other loops.

Precondition: an inter-operator SDFG whose operators hold one statement each.

Before, with W of K x 1 and Y of 1 x M::

    p["s"] = linear(p.src["x"], W[p.etype])
    p.src["y"] += linear(p["s"], Y[p.etype])

After::

    p["s"] = dot_prd(p.src["x"], reshape(W[p.etype], K))
    p.src["y"] += p["s"] * reshape(Y[p.etype], M)

A product of weights through a single value becomes an outer product, and part of the sum that reads it. A product with
a single column becomes dot products of rows, so that one loop over the types folds several vectors into a matrix.

Saves nothing itself: a traversal over the nodes and their pairs can read each x once, and sum y in registers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import dace

from dacergnn.library_nodes.form import Expr, Op, Ref, Shape, Statement, size
from dacergnn.program.listing import Listing, map_refs
from dacergnn.sdfg_passes.base import Pass
from dacergnn.sdfg_passes.context import Context


@dataclass(frozen=True)
class NarrowProducts(Pass):
    """Turns products with one row or one column into row-wise statements; counts these products."""

    name: ClassVar[str] = "narrow_products"

    def run(self, sdfg: dace.SDFG, context: Context) -> int:
        listing = Listing.of(sdfg)
        turned = sum(turn(listing, s) for turn in (_turn_fold, _turn, _turn_weights) for s in [*listing.statements])
        if turned:
            listing.settle()
            listing.write(sdfg)
        return turned


def _turn(listing: Listing, statement: Statement) -> bool:
    gemm = statement.gemm
    if gemm is None or gemm.kind != "linear":
        return False
    *heads, k, m = listing.shape(gemm.w)
    if gemm.w.transposed:
        k, m = m, k
    if size(tuple(heads)) != 1 or (k != 1 and m != 1):
        return False
    target = listing.shape(statement.target)
    x, w = gemm.x, replace(gemm.w, transposed=False)
    if m == 1:
        value: Expr = Op("dot_prd", (_seen(listing, x, (k,)), _seen(listing, w, (k,))))
    else:
        value = Op("mul", (_seen(listing, x, ()), _seen(listing, w, target)))
    if gemm.scale is not None:
        value = Op("mul", (_seen(listing, gemm.scale, ()), value))
    listing.exchange(statement, replace(statement, expr=value))
    return True


def _turn_fold(listing: Listing, statement: Statement) -> bool:
    gemm = statement.gemm
    name = statement.target.name
    if gemm is None or gemm.kind != "compose" or not listing.is_internal(name) or gemm.x.transposed:
        return False
    *heads, d, m = listing.shape(gemm.w)
    if gemm.w.transposed:
        d, m = m, d
    products = [product.kind for product in (s.gemm for s in listing.consumers(name)) if product is not None]
    if size(tuple(heads)) != 1 or m != 1 or d == 1 or {*products} - {"linear"}:  # other readers need its own shape
        return False
    k = size(listing.shape(gemm.x)) // d
    vector = Op("to_heads", (_seen(listing, replace(gemm.w, transposed=False), (d,)),), (k,))
    value = Op("dot_prd", (_seen(listing, gemm.x, (k, d)), vector))
    _flatten(listing, name, (k,))
    listing.exchange(statement, replace(statement, expr=value))
    return True


def _flatten(listing: Listing, name: str, shape: Shape) -> None:
    """Gives an array rows of another shape; its readers still see the old shape."""
    had = listing.arrays[name].shape
    listing.arrays[name] = listing.arrays[name]._replace(shape=shape)
    listing.retarget(lambda _, ref: replace(ref, view=ref.view or had) if ref.name == name else ref)


def _turn_weights(listing: Listing, statement: Statement) -> bool:
    gemm = statement.gemm
    name = statement.target.name
    readers = listing.consumers(name)
    if gemm is None or gemm.kind != "compose" or not listing.is_internal(name) or len(readers) != 1:
        return False
    *heads, d, m = listing.shape(gemm.w)
    if gemm.w.transposed:
        d, m = m, d
    reader = readers[0]
    if size(tuple(heads)) != 1 or d != 1 or reader.space != statement.space or not _is_plain(reader, name):
        return False
    x, w = replace(gemm.x, transposed=False), replace(gemm.w, transposed=False)
    k = size(listing.shape(gemm.x))
    outer = Op("outer_prod", (_seen(listing, x, (k,)), _seen(listing, w, (m,))))
    if listing.arrays[name].shape != (k, m):
        return False
    expr = map_refs(reader.expr, lambda ref: outer if ref == Ref(name) else ref)
    listing.exchange(reader, replace(reader, expr=expr))
    return True


def _is_plain(reader: Statement, name: str) -> bool:
    """Returns whether a statement is a sum with the array itself as a term, read once."""
    terms: list[Expr] = [reader.expr]
    while any(isinstance(t, Op) and t.name == "add" for t in terms):
        terms = [a for t in terms for a in (t.args if isinstance(t, Op) and t.name == "add" else (t,))]
    once = [r.name for r in reader.reads].count(name) == 1
    return reader.op == "=" and reader.target.path == "" and once and Ref(name) in terms


def _seen(listing: Listing, ref: Ref, shape: Shape) -> Ref:
    """Returns the reference viewed as a value of ``shape``, which has as many elements."""
    return replace(ref, view=None if listing.arrays[ref.name].shape == shape else shape)

"""Splits rows into a value and a bias of their type."""

from __future__ import annotations

from dacergnn.graph.spaces import TYPE_PATHS
from dacergnn.library_nodes.form import Op, Ref
from dacergnn.program.listing import Listing


def without_bias(listing: Listing, y: Ref) -> tuple[Ref, Ref | None]:
    """Returns (t, c) of rows that are computed as ``t + c``, where c depends on the type of a row; else (y, None)."""
    producer = listing.producer(y.name)
    expr = None if producer is None or producer.op != "=" else producer.expr
    if isinstance(expr, Op) and expr.name == "add":
        for t, c in (expr.args, expr.args[::-1]):
            if not isinstance(t, Ref) or not isinstance(c, Ref) or t.path or t.transposed or c.transposed:
                continue
            if listing.shape(t) == listing.shape(c) and _is_typed(listing, c):
                return t, c
    return y, None


def _is_typed(listing: Listing, ref: Ref) -> bool:
    """Returns whether a value depends on the type of a row alone: it is a weight, or made of weights alone."""
    producer = listing.producer(ref.name) if ref.path == "" else None
    made = () if producer is None or producer.op != "=" else producer.reads
    return ref.path in TYPE_PATHS or (bool(made) and all(r.path in TYPE_PATHS for r in made))

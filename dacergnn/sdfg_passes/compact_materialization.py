"""Compacts materialized values: edge values that depend on less than the edge live in fewer rows (Hector 3.2.2).

Precondition: an inter-operator SDFG whose operators hold one statement each.

Before::

    for e in g.edges():
        e["hs"] = linear(e.src.x, W[e.etype])
        e["t"] = dot_prd(e.dst.x, q[e.etype])
        e["s"] = e["hs"] * e["t"]

After: one row for each unique (source, edge type) pair, and likewise for (destination, edge type), which
Hector lacks::

    for p in g.src_pairs():
        p["hs"] = linear(p.src.x, W[p.etype])
    for p in g.dst_pairs():
        p["t"] = dot_prd(p.dst.x, q[p.etype])
    for e in g.edges():
        e["s"] = e.src_pair["hs"] * e.dst_pair["t"]

Saves, for a product of K x M: 2 (E - U) K M FLOPs and (E - U) M values of memory; (E - V) on the other side. Values
that depend only on the type of an edge, a pair or a node move to R or T rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import dace

from dacergnn.graph.spaces import JOINED_TYPES, MAPS, along, kind
from dacergnn.library_nodes.form import Expr, Op, Ref, Statement, refs, size
from dacergnn.library_nodes.plan import Rows
from dacergnn.program.listing import Listing, rebase
from dacergnn.sdfg_passes.base import Pass
from dacergnn.sdfg_passes.context import Context
from dacergnn.sdfg_passes.questions import KEEP, Questions

SIDES = ("srcpair", "dstpair")
_TYPES = {
    "E": ("one", "etype"),
    "U": ("one", "etype"),
    "V": ("one", "etype"),
    "NS": ("one", "ntype"),
    "ND": ("one", "ntype"),
}


@dataclass(frozen=True)
class CompactMaterialization(Pass):
    """Moves every value to the fewest rows that hold it; counts these values, 1 if only copies were forwarded.

    Args:
        sides: Paths from edges to the pairs that may be used; Hector's own is ("srcpair",).
    """

    name: ClassVar[str] = "compact_materialization"
    sides: tuple[str, ...] = SIDES

    def run(self, sdfg: dace.SDFG, context: Context) -> int:
        listing = Listing.of(sdfg)
        before = list(listing.statements)
        moved = compact(listing, self.sides, single_typed=context.profile.single_typed, questions=context.questions)
        changed = listing.statements != before
        if changed:
            listing.write(sdfg)
        return max(moved, int(changed))


def compact(
    listing: Listing, sides: Sequence[str] = SIDES, *, single_typed: bool = False, questions: Questions | None = None
) -> int:
    """Moves the values of a listing to fewer rows; returns how many were moved.

    Args:
        single_typed: Whether the type of an edge determines the types of its end points.
        questions: Decides on the values that its plan answers.
    """
    moved = 0
    for position in range(len(listing.statements)):
        statement = listing.statements[position]
        ways = (*_TYPES.get(kind(statement.space), ()), *(sides if kind(statement.space) == "E" else ()))
        moves = ((via, expr) for via in ways if (expr := _rebased(listing, statement, via, single_typed)) is not None)
        via, expr = next(moves, (KEEP, None))
        if questions is not None and expr is not None:
            options = {KEEP: None, via: expr, **dict(moves)}
            via = questions.ask(statement.target.name, tuple(options), via)
            expr = options[via]
        if expr is not None:
            _move(listing, statement, via, expr)
            moved += 1
    listing.settle()
    return moved


def _rebased(listing: Listing, statement: Statement, via: str, single_typed: bool) -> Expr | None:
    """Returns the expression of a statement as seen from the rows behind ``via``; None if it has to stay."""
    space, name = statement.space, statement.target.name
    if statement.op != "=" or statement.target != Ref(name) or not listing.is_internal(name) or not statement.reads:
        return None
    expr = rebase(statement.expr, space, via) if listing.space(name) == space else None
    if expr is None or any(_scales(reader, name) for reader in listing.statements):
        return None
    expr = _own_weights(listing, expr)
    if expr is None or (not single_typed and any((MAPS[space, via], r.path) in JOINED_TYPES for r in refs(expr))):
        return None
    readers = [(s.space, r.path) for s in listing.statements for r in s.reads if r.name == name]
    return None if any(along(reader, path, via) is None for reader, path in readers) else expr


def _move(listing: Listing, statement: Statement, via: str, expr: Expr) -> None:
    """Moves a value to the rows that ``via`` leads to, where ``expr`` computes it."""
    space, name = statement.space, statement.target.name

    def moved(reader: Statement, ref: Ref) -> Ref:
        return ref if ref.name != name else replace(ref, path=along(reader.space, ref.path, via) or "")

    reached = MAPS[space, via]
    listing.arrays[name] = Rows(reached, listing.arrays[name].shape)
    listing.exchange(statement, Statement(reached, Ref(name), "=", expr))
    listing.retarget(moved)


def _scales(statement: Statement, name: str) -> bool:
    """Returns whether a statement is a product that an array scales; scales must be values of its own rows."""
    gemm = statement.gemm
    return gemm is not None and gemm.scale is not None and gemm.scale.name == name


def _own_weights(listing: Listing, expr: Expr) -> Expr | None:
    """Turns a linear by weights of the own row into a product of weights; returns None if it is nested."""
    if isinstance(expr, Op) and expr.name == "linear":
        x, w = expr.args
        if isinstance(x, Ref) and isinstance(w, Ref) and w.path == "":
            return Op("compose", (replace(x, view=(1, size(listing.shape(x)))), w))
        return expr
    return None if any(r.path == "" for r in _weights(expr)) else expr


def _weights(expr: Expr) -> Iterator[Ref]:
    """Yields the weights of the linears in an expression."""
    if isinstance(expr, Op):
        if expr.name == "linear" and isinstance(expr.args[1], Ref):
            yield expr.args[1]
        for arg in expr.args:
            yield from _weights(arg)

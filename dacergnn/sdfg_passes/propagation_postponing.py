"""Postpones propagation: edge values that depend on one end point alone are computed at the node, then handed to the
edges (Zhang et al., section 4).

Precondition: an inter-operator SDFG whose operators hold one statement each.

Before::

    for e in g.edges():
        e["s"] = dot_prd(concat(e.src["h"], e.dst["h"]), a)
        e["d"] = e.src["x"] - e.dst["x"]
        e["y"] = linear(e["d"], W)

After: linear functions of sums and concatenations are distributed over the parts (`distribution`), and the parts
move to nodes::

    for n in g.src_nodes():
        n["s_src"] = dot_prd(n["h"], a_0_64)        # a_0_64 = slice(a, 0, 64)
        n["y_src"] = linear(n["x"], W)
    for n in g.dst_nodes():
        n["s_dst"] = dot_prd(n["h"], a_64_128)
    for e in g.edges():
        e["s"] = e.src["s_src"] + e.dst["s_dst"]
        e["y"] = e.src["y_src"] - e.dst["y_src"]

A term that all edges of a node add before a maximum is added after it, at the node (`extrema`). A value that
destinations need and that all sources have anyway is computed once. Copies of node values are not moved: their readers
read the node. Quotients, logarithms and roots stay at edges, since nodes without edges might have no value for them.

Saves, for a product of K x M that moves: 2 (E - N) K M FLOPs, N = NS or ND, and (E - N) M values of memory. For one
that is split over both end points, it saves 2 (E - NS - ND) K M FLOPs for E M additions.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from typing import ClassVar

import dace

from dacergnn.graph.spaces import MAPS, along
from dacergnn.library_nodes.form import Expr, Op, Ref, Statement
from dacergnn.library_nodes.plan import Rows
from dacergnn.program.listing import Listing, map_refs, rebase
from dacergnn.sdfg_passes.base import Pass
from dacergnn.sdfg_passes.context import Context
from dacergnn.sdfg_passes.distribution import ENDS, distribute, new_array
from dacergnn.sdfg_passes.extrema import behind_extrema
from dacergnn.sdfg_passes.regular import is_regular, singular_arrays


@dataclass(frozen=True)
class PropagationPostponing(Pass):
    """Postpones wherever values of edges or pairs allow it; counts the statements that are rewritten."""

    name: ClassVar[str] = "propagation_postponing"

    def run(self, sdfg: dace.SDFG, context: Context) -> int:
        listing = Listing.of(sdfg)
        fired = postpone(listing)
        if fired:
            listing.write(sdfg)
        return fired


def postpone(listing: Listing) -> int:
    """Postpones propagation in a listing; returns how many statements were rewritten."""
    fired = 0
    while taken := _round(listing) or behind_extrema(listing, singular_arrays(listing)):
        listing.settle()
        fired += taken
    return fired


def _round(listing: Listing) -> int:
    taken = 0
    singular = singular_arrays(listing)
    for name in [s.target.name for s in listing.statements]:
        statement = listing.producer(name)
        if statement is None:
            continue
        if statement.space in ENDS:
            taken += _forward(listing, statement) or (
                _move(listing, statement, singular) or distribute(listing, statement, singular)
            )
        elif statement.space == "ND":
            taken += _share(listing, statement)
    return taken


def _is_map(statement: Statement) -> bool:
    return statement.op == "=" and statement.target == Ref(statement.target.name)


def _forward(listing: Listing, statement: Statement) -> bool:
    """Lets readers of a copy of a node's value read the node."""
    name, copied = statement.target.name, statement.expr
    if not isinstance(copied, Ref) or copied.transposed or not _is_map(statement) or not listing.is_internal(name):
        return False
    if _end(statement) is None or listing.shape(copied) != listing.arrays[name].shape:
        return False

    def rewrite(reader: Statement, ref: Ref) -> Ref:
        seen = replace(ref, name=copied.name, view=copied.view if ref.view is None else ref.view)
        return replace(seen, path=_along(reader, ref, copied.path))

    if not _redirect(listing, name, rewrite):
        return False
    listing.statements = [s for s in listing.statements if s.target.name != name]
    return True


def _move(listing: Listing, statement: Statement, singular: Set[str]) -> bool:
    """Moves a value that depends on one end point to the node; a result keeps a copy at the edges."""
    name, end = statement.target.name, _end(statement)
    if end is None or not _is_map(statement) or isinstance(statement.expr, Ref):
        return False
    if not is_regular(statement.expr, singular):
        return False
    via, expr = end
    space, shape = MAPS[statement.space, via], listing.arrays[name].shape
    if not listing.is_internal(name):
        if not (statement.is_gemm or _reduces(statement.expr)):
            return False
        moved = new_array(listing, f"{name}_{via}", space, shape)
        copy = replace(statement, expr=Ref(moved, via))
        listing.exchange(statement, Statement(space, Ref(moved), "=", expr), copy)
        return True
    if not _redirect(listing, name, lambda reader, ref: replace(ref, path=_along(reader, ref, via))):
        return False
    listing.arrays[name] = Rows(space, shape)
    listing.exchange(statement, Statement(space, Ref(name), "=", expr))
    return True


def _share(listing: Listing, statement: Statement) -> bool:
    """Lets readers of a value at destinations read it at the sources, which include them, if it exists there."""
    name = statement.target.name
    own = [listing.space(r.name) for r in statement.reads if r.path == ""]
    if not own or {*own} != {"NS"} or not _is_map(statement) or listing.space(name) != "ND":
        return False
    rows = Rows("NS", listing.arrays[name].shape)
    for twin in listing.statements:
        same = twin.space == "NS" and twin.expr == statement.expr and listing.arrays[twin.target.name] == rows
        if same and _is_map(twin) and listing.is_internal(name):
            _redirect(listing, name, lambda reader, ref, twin=twin: replace(ref, name=twin.target.name))
            listing.statements = [s for s in listing.statements if s.target.name != name]
            return True
    return False


def _end(statement: Statement) -> tuple[str, Expr] | None:
    """Returns the end point on which alone a statement depends, and its expression there."""
    if all(ref.path == "one" for ref in statement.reads):
        return None
    for via in ENDS[statement.space]:
        expr = rebase(statement.expr, statement.space, via)
        if expr is not None:
            return via, expr
    return None


def _reduces(expr: Expr) -> bool:
    return isinstance(expr, Op) and (expr.name in ("dot_prd", "sum") or any(_reduces(a) for a in expr.args))


def _along(reader: Statement, ref: Ref, via: str) -> str:
    path = along(reader.space, ref.path, via)
    assert path is not None, f"{reader.space} rows cannot reach {via} behind {ref.path}"
    return path


def _redirect(listing: Listing, name: str, rewrite: Callable[[Statement, Ref], Ref]) -> bool:
    """Rewrites the readers of an array, unless one would no longer be a product: these scale by own rows only."""

    def rewritten(statement: Statement) -> Statement:
        expr = map_refs(statement.expr, lambda r: rewrite(statement, r) if r.name == name else r)
        return replace(statement, expr=expr)

    statements = [rewritten(s) if any(r.name == name for r in s.reads) else s for s in listing.statements]
    if any(old.is_gemm and not new.is_gemm for old, new in zip(listing.statements, statements, strict=True)):
        return False
    listing.statements = statements
    return True

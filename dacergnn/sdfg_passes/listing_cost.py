"""Estimates the cost of a listing with fused loops, without fusing them: the price by which passes choose."""

from __future__ import annotations

from collections.abc import Mapping

from dacergnn.config import Rates
from dacergnn.cost import Cost, gather_cost, is_gathered, read_cost, statement_cost
from dacergnn.graph.spaces import kind
from dacergnn.library_nodes.form import Ref, Statement, size
from dacergnn.program.listing import Listing

START = 4e-6
"""Seconds that threads take to start a statement, which dominate on small graphs."""
_SIDES = {"dst": ("dst", "dstpair"), "src": ("src", "srcpair")}
"""Paths to rows that loops over edges visit once, by the end point that groups the edges."""


def listing_seconds(listing: Listing, sizes: Mapping[str, int], rates: Rates) -> float:
    """Returns the time of all statements on a graph with ``sizes``."""
    return listing_cost(listing, sizes).seconds(rates) + START * len(listing.statements)


def listing_cost(listing: Listing, sizes: Mapping[str, int]) -> Cost:
    """Returns FLOPs and bytes of all statements on a graph with ``sizes``, as `traversal_fusion` can merge them.

    Loops over edges that reduce to the same end point gather a row once, and read rows of that end point once each.
    Values of edges that no other loop needs stay inside them. Loops that visit edges in another order also gather other
    values of edges, and write them row by row.
    """
    inside = {(name, "") for name in _values_inside(listing)}
    total = Cost()
    for statement in listing.statements:
        total += statement_cost(
            statement, sizes, space=listing.space, shapes=listing.shape, item=listing.item, at_hand=inside
        )
        target = statement.target
        joins = inside.intersection((r.name, r.path) for r in statement.reads)
        if joins and not target.path and (target.name, "") not in inside and _is_regrouped("dst", sizes):
            total += _read(listing, statement, target, sizes)
    return total - _shared(listing, sizes)


def _values_inside(listing: Listing) -> list[str]:
    """Returns values of edges whose loops can all be merged: they reduce to the same end point, or to none."""
    writers = {s.target.name: s for s in reversed(listing.statements)}
    readers: dict[str, list[Statement]] = {}
    for statement in listing.statements:
        for name in {r.name for r in statement.reads}:
            readers.setdefault(name, []).append(statement)
    names: list[str] = []
    for name, writer in writers.items():
        if kind(writer.space) != "E" or writer.target.path or not listing.is_internal(name):
            continue
        loops = [writer, *readers.get(name, ())]
        sides = {_side(loop) for loop in loops} - {None}
        if len(sides) <= 1 and all(loop.space == writer.space and loop.gemm is None for loop in loops):
            names.append(name)
    return names


def _shared(listing: Listing, sizes: Mapping[str, int]) -> Cost:
    """Returns the reading that merged loops over edges save, less what they read out of order."""
    total = Cost()
    known: dict[tuple[str, str], set[tuple[str, str]]] = {}
    loops = [s for s in listing.statements if kind(s.space) == "E" and s.gemm is None]
    written = {s.target.name for s in listing.statements}
    for statement in sorted(loops, key=lambda s: _side(s) is None):  # reductions first, which other loops join
        gathered = {(r.name, r.path): r for r in statement.reads if is_gathered(statement, r)}

        def saving(
            side: str, statement: Statement = statement, gathered: Mapping[tuple[str, str], Ref] = gathered
        ) -> Cost:
            read = known.get((statement.space, side), set[tuple[str, str]]())
            again = [ref for key, ref in gathered.items() if key in read]
            own = [ref for key, ref in gathered.items() if key not in read and ref.path in _SIDES[side]]
            paid = sum((_own_rows(listing, statement, side, ref, sizes) for ref in own), Cost())
            return sum((_read(listing, statement, ref, sizes) for ref in (*again, *own)), Cost()) - paid

        saved = {side: saving(side) for side in _SIDES}
        side = _side(statement) or max(saved, key=lambda side: saved[side].gathered)
        total += saved[side]
        if _is_regrouped(statement.target.path, sizes):
            inputs = [r for r in statement.reads if not r.path and r.name not in written]
            total -= sum((_read(listing, statement, ref, sizes) for ref in inputs), Cost())
        if _side(statement) or saved[side].gathered:
            known.setdefault((statement.space, side), set()).update(gathered)
    return total


def _side(statement: Statement) -> str | None:
    """Returns the end point by which a loop over edges is grouped, if any."""
    return next((side for side, paths in _SIDES.items() if statement.target.path in paths), None)


def _is_regrouped(path: str, sizes: Mapping[str, int]) -> bool:
    """Returns whether a loop that reduces along a path visits edges out of their order: by type, then destination."""
    return path in _SIDES["src"] or (path == "dst" and sizes["R"] > 1)


def _read(listing: Listing, statement: Statement, ref: Ref, sizes: Mapping[str, int]) -> Cost:
    """Returns what a loop over edges pays for the rows of a reference, one row for each edge."""
    width, table = size(listing.shape(ref)) * listing.item, sizes[listing.space(ref.name)]
    return read_cost(statement, ref, sizes[statement.space], width, table)


def _own_rows(listing: Listing, statement: Statement, side: str, ref: Ref, sizes: Mapping[str, int]) -> Cost:
    """Returns what a loop grouped by end points pays for rows of these, or of their pairs: each is read once.

    A loop that computes values of edges joins a loop that has the rows it reads in order, if there is any.
    """
    width, table = size(listing.shape(ref)) * listing.item, sizes[listing.space(ref.name)]
    groups = statement.target.path
    in_order = groups not in _SIDES[side] or ref.path == groups or (side == "dst" and sizes["R"] == 1)
    return Cost(streamed=table * width) if in_order else gather_cost(table, width, table)

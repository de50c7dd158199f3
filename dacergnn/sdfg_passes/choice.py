"""Choosing among rewrites by the price of the whole program, so that products that are shared are paid once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product

from dacergnn.config import Rates
from dacergnn.cost import Cost, is_gathered, statement_cost
from dacergnn.graph.spaces import PARTS, kind
from dacergnn.library_nodes.form import Ref, Statement, match_gemm, size
from dacergnn.program.listing import Listing

Option = Callable[[Listing], None]
Price = Callable[[Listing], float]

START = 4e-6
"""Seconds that the threads take to start on a statement, which decide on small graphs."""
MOST_COMBINATIONS = 1024
"""Beyond this many, sites are decided one after the other, each with those before it fixed."""


def listing_cost(listing: Listing, sizes: Mapping[str, int]) -> Cost:
    """FLOPs and bytes of all statements on a graph with ``sizes``.

    Loops over edges that traversal_fusion can merge gather a row once: those that reduce to the same end point,
    whose own rows are at hand, and edge values, which may be computed with either.
    """
    total = Cost()
    sides: dict[tuple[str, str], set[tuple[str, str]]] = {}
    loops = [s for s in listing.statements if kind(s.space) == "E" and match_gemm(s) is None]
    loops.sort(key=lambda s: _side(s) is None)  # edge values join the reductions
    for statement in loops:
        gathered = {(r.name, r.path): r for r in statement.reads if is_gathered(statement, r)}

        def at_hand(side: str, space: str = statement.space, gathered: dict[tuple[str, str], Ref] = gathered) -> int:
            known = sides.setdefault((space, side), set())
            return sum(size(listing.shape(r)) for key, r in gathered.items() if r.path in _OWN[side] or key in known)

        side = _side(statement) or max(_OWN, key=at_hand)
        total += Cost(gathered=-sizes[statement.space] * listing.item * at_hand(side))
        if _side(statement) or at_hand(side):
            sides[statement.space, side].update(gathered)
    for statement in listing.statements:
        total += statement_cost(statement, sizes, space=listing.space, shapes=listing.shape, item=listing.item)
    return total


_OWN = {"dst": ("dst", "dstpair"), "src": ("src", "srcpair")}


def _side(statement: Statement) -> str | None:
    """The end point that a loop over edges is grouped by."""
    return next((side for side, paths in _OWN.items() if statement.target.path in paths), None)


def has_parts(sizes: Mapping[str, int]) -> bool:
    """Whether both parts of the edges have rows, so that they may differ in their order."""
    return all(sizes.get("E" + part) for part in PARTS)


def listing_seconds(listing: Listing, sizes: Mapping[str, int], rates: Rates) -> float:
    """Time of all statements on a graph with ``sizes``."""
    return listing_cost(listing, sizes).seconds(rates) + START * len(listing.statements)


def choose(
    listing: Listing,
    sites: Sequence[Sequence[Option]],
    sizes: Mapping[str, int],
    rates: Rates,
    price: Price | None = None,
) -> tuple[Listing, int]:
    """The listing with the cheapest combination of options, at most one a site, and how many were taken.

    Args:
        sites: For every site the rewrites that could be made; making none is always possible.
        price: Seconds of a listing; by default those of its cost at ``rates``. What is given sees it settled.
    """
    price = price or (lambda found: listing_seconds(found, sizes, rates))
    combinations = 1
    for options in sites:
        combinations *= len(options) + 1
    best = (price(listing), listing, 0)
    if combinations <= MOST_COMBINATIONS:
        for picks in product(*(range(len(options) + 1) for options in sites)):
            best = _try(listing, [options[k - 1] for options, k in zip(sites, picks, strict=True) if k], price, best)
    else:
        taken: list[Option] = []
        for options in sites:
            pick: Option | None = None
            for option in options:
                found = _try(listing, [*taken, option], price, best)
                if found is not best:
                    best, pick = found, option
            if pick is not None:
                taken.append(pick)
    return best[1], best[2]


def _try(
    listing: Listing, taken: Sequence[Option], price: Price, best: tuple[float, Listing, int]
) -> tuple[float, Listing, int]:
    if not taken:
        return best
    candidate = listing.copy()
    for option in taken:
        option(candidate)
    candidate.settle()
    seconds = price(candidate)
    return (seconds, candidate, len(taken)) if seconds < best[0] else best

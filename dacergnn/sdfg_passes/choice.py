"""Choosing among rewrites by the price of the whole program, so that products that are shared are paid once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from math import prod

from dacergnn.config import Rates
from dacergnn.cost import Cost, is_gathered, read_cost, statement_cost
from dacergnn.graph.spaces import PARTS, kind
from dacergnn.library_nodes.form import Ref, Statement, match_gemm, size
from dacergnn.program.listing import Listing
from dacergnn.sdfg_passes.choices import KEEP, Choices


@dataclass(frozen=True)
class Option:
    """A rewrite of a listing; its name tells it from the others of its site."""

    name: str
    apply: Callable[[Listing], None]


Sites = Mapping[str, Sequence[Option]]
Price = Callable[[Listing], float]

START = 4e-6
"""Seconds that the threads take to start on a statement, which decide on small graphs."""
MOST_COMBINATIONS = 1024
"""Beyond this many, sites are decided one after the other, each with those before it fixed."""


def listing_cost(listing: Listing, sizes: Mapping[str, int]) -> Cost:
    """FLOPs and bytes of all statements on a graph with ``sizes``.

    Loops over edges that traversal_fusion can merge gather a row once: those that reduce to the same end point,
    whose own rows are at hand, and edge values, which may be computed with either. Values of edges that a program is
    given are gathered, too, by loops that visit the edges in another order than theirs.
    """
    total = Cost()
    sides: dict[tuple[str, str], set[tuple[str, str]]] = {}
    loops = [s for s in listing.statements if kind(s.space) == "E" and match_gemm(s) is None]
    loops.sort(key=lambda s: _side(s) is None)  # edge values join the reductions
    for statement in loops:
        gathered = {(r.name, r.path): r for r in statement.reads if is_gathered(statement, r)}

        def at_hand(
            side: str, statement: Statement = statement, gathered: dict[tuple[str, str], Ref] = gathered
        ) -> Cost:
            known = sides.setdefault((statement.space, side), set())
            refs = [ref for key, ref in gathered.items() if ref.path in _OWN[side] or key in known]
            return sum((_read(listing, statement, ref, sizes) for ref in refs), Cost())

        side = _side(statement) or max(_OWN, key=lambda side: at_hand(side).gathered)
        total -= at_hand(side)
        if _is_regrouped(statement, sizes):
            values = [r for r in statement.reads if not r.path and listing.producer(r.name) is None]
            total += sum((_read(listing, statement, ref, sizes) for ref in values), Cost())
        if _side(statement) or at_hand(side).gathered:
            sides[statement.space, side].update(gathered)
    for statement in listing.statements:
        total += statement_cost(statement, sizes, space=listing.space, shapes=listing.shape, item=listing.item)
    return total


def _is_regrouped(statement: Statement, sizes: Mapping[str, int]) -> bool:
    """Whether a loop visits the edges in another order than theirs: by type, then destination."""
    return _side(statement) == "src" or (statement.target.path == "dst" and sizes["R"] > 1)


def _read(listing: Listing, statement: Statement, ref: Ref, sizes: Mapping[str, int]) -> Cost:
    """What a loop over edges pays for the rows that it reads through a reference, one for each edge."""
    width, table = size(listing.shape(ref)) * listing.item, sizes[listing.space(ref.name)]
    return read_cost(statement, ref, sizes[statement.space], width, table)


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
    sites: Sites,
    sizes: Mapping[str, int],
    rates: Rates,
    price: Price | None = None,
    choices: Choices | None = None,
) -> tuple[Listing, int]:
    """The listing with the cheapest combination of options, at most one a site, and how many were taken.

    Args:
        sites: For every site, by name, the rewrites that could be made; making none is always possible.
        price: Seconds of a listing; by default those of its cost at ``rates``. What is given sees it settled.
        choices: Decides on the sites that its plan knows.
    """
    price = price or (lambda found: listing_seconds(found, sizes, rates))
    choices = choices or Choices()
    allowed = [_allowed(name, options, choices) for name, options in sites.items()]
    picks = [options[0] for options in allowed]
    best = _rewritten(listing, picks)
    least = price(best)

    def consider(trial: list[Option | None]) -> None:
        nonlocal picks, best, least
        candidate = _rewritten(listing, trial)
        seconds = price(candidate)
        if seconds < least:
            picks, best, least = trial, candidate, seconds

    if prod(map(len, allowed)) <= MOST_COMBINATIONS:
        for trial in islice(product(*allowed), 1, None):
            consider(list(trial))
    else:
        for site, options in enumerate(allowed):
            for option in options[1:]:
                consider([*picks[:site], option, *picks[site + 1 :]])
    for (name, options), pick in zip(sites.items(), picks, strict=True):
        choices.note(name, _names(options), KEEP if pick is None else pick.name)
    return best, sum(pick is not None for pick in picks)


def _allowed(name: str, options: Sequence[Option], choices: Choices) -> list[Option | None]:
    """What may be taken at a site, None for nothing: all, or what the plan says."""
    given = choices.given(name)
    if given is None:
        return [None, *options]
    choices.note(name, _names(options), given)
    return [next((option for option in options if option.name == given), None)]


def _names(options: Sequence[Option]) -> list[str]:
    return [KEEP, *(option.name for option in options)]


def _rewritten(listing: Listing, picks: Sequence[Option | None]) -> Listing:
    taken = [pick for pick in picks if pick is not None]
    if not taken:
        return listing
    candidate = listing.copy()
    for option in taken:
        option.apply(candidate)
    candidate.settle()
    return candidate

"""Chooses among rewrites by the price of the whole program, so that shared products are paid once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from math import prod

from dacergnn.program.listing import Listing
from dacergnn.sdfg_passes.questions import KEEP, Questions


@dataclass(frozen=True)
class Option:
    """Describes a rewrite of a listing; its name is unique among the options of its site."""

    name: str
    apply: Callable[[Listing], None]


Sites = Mapping[str, Sequence[Option]]
Price = Callable[[Listing], float]

MOST_COMBINATIONS = 64
"""Most combinations that are all tried; with more, sites are decided one after the other."""


def choose(
    listing: Listing,
    sites: Sites,
    price: Price,
    questions: Questions,
    doubt: float = 0.0,
) -> tuple[Listing, int]:
    """Returns the listing with the cheapest combination of options, at most one per site, and how many were taken.

    Args:
        sites: Possible rewrites of every site, by its name; each site may also stay as it is.
        price: Gives the seconds of a settled listing.
        questions: Decides on the sites that its plan answers.
        doubt: Share of the price that rewrites must save to be made.
    """
    allowed = [_allowed(name, options, questions) for name, options in sites.items()]
    picks = [options[0] for options in allowed]
    best = _rewritten(listing, picks)
    least = price(best) * (1 - doubt)

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
        questions.note(name, _names(options), KEEP if pick is None else pick.name)
    return best, sum(pick is not None for pick in picks)


def _allowed(name: str, options: Sequence[Option], questions: Questions) -> list[Option | None]:
    """Returns the options that a site may take, with None for no rewrite: all of them, or the plan's answer."""
    answer = questions.given(name)
    if answer is None:
        return [None, *options]
    questions.note(name, _names(options), answer)
    return [next((option for option in options if option.name == answer), None)]


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

"""Measures how far a program is from a given order of products and sums over edges, for `aggregation_order`."""

from __future__ import annotations

from dacergnn.graph.spaces import kind
from dacergnn.library_nodes.form import Statement
from dacergnn.program.listing import Listing

_SECONDS = 1e3
"""Price of a product in the wrong place: more than any program takes."""


def penalty(listing: Listing, order: str) -> float:
    """Returns seconds to add to a program's price, so that the given order is the cheapest wherever possible.

    Args:
        order: "transform_first": no product reads a sum over edges. "aggregate_first": no sum over edges reads a
            product. "auto": any.
    """
    if order == "transform_first":
        return _SECONDS * sum(_multiplies_sums(listing, s) for s in listing.statements)
    if order == "aggregate_first":
        return _SECONDS * sum(_sums_products(listing, s) for s in listing.statements)
    return 0.0


def _is_sum(statement: Statement) -> bool:
    return kind(statement.space) == "E" and statement.op == "+="


def _is_product(statement: Statement | None) -> bool:
    gemm = None if statement is None else statement.gemm
    return gemm is not None and gemm.kind == "linear"


def _sums_products(listing: Listing, statement: Statement) -> bool:
    """Returns whether a sum over edges gathers rows that are products."""
    gathered = [r for r in statement.reads if r.path]
    return _is_sum(statement) and not _is_product(statement) and any(
        _is_product(listing.producer(r.name)) for r in gathered
    )  # fmt: skip


def _multiplies_sums(listing: Listing, statement: Statement) -> bool:
    """Returns whether a product multiplies sums over edges: its kernel makes them, or its rows hold them."""
    gemm = statement.gemm
    if gemm is None or gemm.kind != "linear":
        return False
    return _is_sum(statement) or (not gemm.x.path and _holds_sums(listing, gemm.x.name))


def _holds_sums(listing: Listing, name: str) -> bool:
    """Returns whether rows are sums over edges, or computed from such sums without a product."""
    producer = listing.producer(name)
    if producer is None or producer.is_gemm:
        return False
    return _is_sum(producer) or any(_holds_sums(listing, r.name) for r in producer.reads if not r.path)

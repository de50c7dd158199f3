"""The price of rows that are read through an index: their bytes, their number, and where the table is."""

from __future__ import annotations

import pytest

from dacergnn import Rates, parse
from dacergnn.cost import CACHE_BYTES, Cost, gather_cost, program_cost
from tests.support.rewrites import sizes

MANY = 4 * CACHE_BYTES // 256
"""Rows of 256 bytes, of which the cache holds a quarter."""


def cost(line: str, **rows: int) -> Cost:
    head = "def p(g, x: NS[64], y: U[64], W: R[64, 64]):\n    "
    return program_cost(parse(f"{head}{line}\n    return t\n"), sizes(**rows))


def test_rows_of_a_table_in_the_cache_are_looked_for() -> None:
    assert gather_cost(1000, 8, 100) == Cost(gathered=8000, rows=1000)


def test_rows_that_the_cache_has_no_room_for_come_from_memory_in_lines() -> None:
    assert gather_cost(MANY, 256, MANY) == Cost(gathered=MANY * 256, rows=MANY, far=MANY * (128 + 256) * 3 // 4)
    elements = 64 * MANY
    assert gather_cost(8, 4, elements).far == 0, "few rows of a large table stay where they are"
    assert gather_cost(elements, 4, elements).far == elements * (128 + 64) * 3 // 4


def test_seconds_are_the_sum_of_all_terms() -> None:
    rates = Rates(flops=100, streamed=10, gathered=20, rows=5)
    assert Cost(flops=300, streamed=40, gathered=60, rows=10, far=70).seconds(rates) == pytest.approx(3 + 11 + 3 + 2)


def test_two_sums_of_narrow_rows_are_no_cheaper_than_one_of_wide_ones() -> None:
    """Twice 16 elements are half of the bytes of 64, and twice as many rows."""
    narrow, wide = gather_cost(1000, 64, 1000), gather_cost(1000, 256, 1000)
    assert (narrow + narrow).gathered * 2 == wide.gathered
    rates = Rates(1e11, 2e10, gathered=4e10, rows=2.5e8)
    assert (narrow + narrow).seconds(rates) == pytest.approx(1.12e-5)
    assert wide.seconds(rates) == pytest.approx(1.04e-5)


def test_rows_in_the_order_of_the_table_are_not_looked_for() -> None:
    pairs = cost('for p in g.src_pairs():\n        p["t"] = p.src.x + p.y', NS=MANY, U=2 * MANY)
    assert pairs == Cost(2 * MANY * 64, 2 * MANY * (256 + 256 + 4), 2 * MANY * 256)
    edges = cost('for e in g.edges():\n        e["t"] = e.src.x * 2.0', NS=MANY, E=2 * MANY)
    assert (edges.rows, edges.far) == (2 * MANY, 2 * MANY * (128 + 256) * 3 // 4)


def test_products_find_rows_while_they_multiply() -> None:
    found = cost('for e in g.edges():\n        e["t"] = linear(e.src.x, W[e.etype])', NS=MANY, E=2 * MANY)
    assert (found.gathered, found.rows) == (2 * MANY * 256, 0)
    assert found.far == 2 * MANY * (128 + 256) * 3 // 4


def test_products_that_are_added_to_a_large_table_read_it_from_memory_and_write_it_back() -> None:
    found = cost('for p in g.src_pairs():\n        p.src["t"] += linear(p.y, W[p.etype])', NS=MANY, U=2 * MANY)
    assert (found.gathered, found.rows) == (3 * 2 * MANY * 256, 0)
    assert found.far == 2 * 2 * MANY * 256 * 3 // 4

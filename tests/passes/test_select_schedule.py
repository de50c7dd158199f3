"""Which traversals run row by row: those of short groups."""

from __future__ import annotations

import dace
import pytest

from dacergnn import parse, print_program
from dacergnn.library_nodes import Traversal
from dacergnn.program import Program, verify
from dacergnn.sdfg_passes.pipeline import OPTIMIZATIONS, Circumstances
from dacergnn.sdfg_passes.select_schedule import select_schedule
from tests.program.golden import parsed

SIZES = {"NS": 100, "ND": 100, "U": 120, "V": 110, "R": 4, "T": 2, "ONE": 1, "RNS": 400}


def schedules(sdfg: dace.SDFG) -> dict[str, object]:
    """Schedule of every traversal, by the first array that it writes."""
    return {o.written_arrays[0]: o.schedule_by for o in Program(sdfg).operators if isinstance(o, Traversal)}


def test_short_groups_are_edge_balanced() -> None:
    sdfg = parse(
        """def p(g, a: E, b: NS, c: U):
    for e in g.edges():
        e.dst["to_dst"] += e.a * e.src.b
        e.src["to_src"] += e.a * 2.0
        e.dst_pair["to_pair"] = max(e.dst_pair["to_pair"], e.a * 2.0)
        e["alone"] = e.a * 2.0
        types[e.etype] = max(types[e.etype], e.a)
        total += e.a
    for p in g.src_pairs():
        p.src["from_pairs"] += p.c * 2.0
    return to_dst, to_src, to_pair, alone, types, total, from_pairs
"""
    )
    listing = print_program(sdfg)
    assert set(schedules(sdfg).values()) == {"groups"}
    # 3.99 edges a node, 3.63 a pair, and 1.2 pairs a node.
    assert select_schedule(sdfg, SIZES | {"E": 399}) == 4
    short = {"to_dst": "edges", "to_src": "edges", "to_pair": "edges", "from_pairs": "edges"}
    assert schedules(sdfg) == dict.fromkeys(schedules(sdfg), "groups") | short
    before = sdfg.hash_sdfg()
    assert select_schedule(sdfg, SIZES | {"E": 399}) == 0
    assert sdfg.hash_sdfg() == before
    assert select_schedule(sdfg, SIZES | {"E": 400}) == 2
    assert schedules(sdfg) == schedules(sdfg) | {"to_dst": "groups", "to_src": "groups", "to_pair": "edges"}
    assert select_schedule(sdfg, SIZES | {"E": 100_000}) == 1
    assert [n for n, s in schedules(sdfg).items() if s == "edges"] == ["from_pairs"]
    verify(sdfg)
    sdfg.validate()
    assert print_program(sdfg) == listing


@pytest.mark.parametrize("name", ["rgat", "hgt"])
def test_fused_nests_go_by_their_outermost_and_innermost_rows(name: str) -> None:
    sdfg = parsed(name)
    for run in OPTIMIZATIONS.values():
        run(sdfg, Circumstances())
    listing = print_program(sdfg)
    nests = [o for o in Program(sdfg).operators if isinstance(o, Traversal) and {*o.spaces} - {o.space}]
    assert nests
    select_schedule(sdfg, SIZES | {"E": 200})
    assert {nest.schedule_by for nest in nests} == {"edges"}
    select_schedule(sdfg, SIZES | {"E": 20_000})
    assert {nest.schedule_by for nest in nests} == {"groups"}
    assert print_program(sdfg) == listing

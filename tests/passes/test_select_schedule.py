"""Which traversals run row by row, divide long groups, and how large their tiles are."""

from __future__ import annotations

from collections.abc import Mapping

import dace
import pytest
import torch

from dacergnn import Config, HeteroGraph, Plan, parse
from dacergnn.errors import DacergnnError
from dacergnn.graph.profile import TYPICAL, Profile
from dacergnn.library_nodes import Traversal
from dacergnn.library_nodes.traversal.plan import RUN_TIME
from dacergnn.program import Program, verify
from dacergnn.program.view import StatementGroup
from dacergnn.sdfg_passes.context import Context
from dacergnn.sdfg_passes.pipeline import Pipeline
from dacergnn.sdfg_passes.questions import Questions
from dacergnn.sdfg_passes.select_schedule import SelectSchedule
from tests.program.golden import bare, parsed

SIZES = {"NS": 100, "ND": 100, "U": 120, "V": 110, "R": 4, "T": 2, "ONE": 1, "RNS": 400}


def schedule(
    sdfg: dace.SDFG,
    rows: Mapping[str, int],
    longest: Mapping[str, int] | None = None,
    implementation: str = "cpu",
    questions: Questions | None = None,
) -> int:
    profile = Profile(tuple(rows.items()), hubs=tuple((longest or {}).items()))
    context = Context(profile, implementation=implementation, questions=questions or Questions())
    return SelectSchedule().run(sdfg, context)


def schedules(sdfg: dace.SDFG) -> dict[str, object]:
    """Schedule of every traversal, by the first array that it writes."""
    return {o.written_arrays[0]: o.schedule_by for o in Program(sdfg).operators if isinstance(o, Traversal)}


def hubs(sdfg: dace.SDFG) -> set[str]:
    """First arrays of the traversals whose long groups are divided."""
    return {o.written_arrays[0] for o in Program(sdfg).operators if isinstance(o, Traversal) and o.split_hubs}


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
    listing = bare(sdfg)
    assert set(schedules(sdfg).values()) == {"groups"}
    # 3.99 edges a node, 3.63 a pair, and 1.2 pairs a node.
    assert schedule(sdfg, SIZES | {"E": 399}) == 4
    short = {"to_dst": "edges", "to_src": "edges", "to_pair": "edges", "from_pairs": "edges"}
    assert schedules(sdfg) == dict.fromkeys(schedules(sdfg), "groups") | short
    before = sdfg.hash_sdfg()
    assert schedule(sdfg, SIZES | {"E": 399}) == 0
    assert sdfg.hash_sdfg() == before
    assert schedule(sdfg, SIZES | {"E": 400}) == 2
    assert schedules(sdfg) == schedules(sdfg) | {"to_dst": "groups", "to_src": "groups", "to_pair": "edges"}
    assert schedule(sdfg, SIZES | {"E": 100_000}) == 2  # the maxima of the types, of 25,000 edges, are divided
    assert [n for n, s in schedules(sdfg).items() if s == "edges"] == ["from_pairs"]
    verify(sdfg)
    sdfg.validate()
    assert bare(sdfg) == listing


@pytest.mark.parametrize("name", ["rgat", "hgt"])
def test_fused_nests_go_by_their_outermost_and_innermost_rows(name: str) -> None:
    sdfg = parsed(name)
    pipeline = Pipeline.of(Config())
    for step in (*pipeline.forward, *pipeline.both[:-2]):  # without schedules and encodings
        step.run(sdfg, Context())
    listing = bare(sdfg)
    nests = [o for o in Program(sdfg).operators if isinstance(o, Traversal) and {*o.spaces} - {o.space}]
    assert nests
    schedule(sdfg, SIZES | {"E": 200})
    assert {nest.schedule_by for nest in nests} == {"edges"}
    schedule(sdfg, SIZES | {"E": 20_000})
    assert {nest.schedule_by for nest in nests} == {"groups"}
    assert bare(sdfg) == listing


def test_groups_are_divided_where_the_graph_has_hubs() -> None:
    sdfg = parse(
        """def p(g, a: E, c: U):
    for e in g.edges():
        e.dst["to_dst"] += e.a * 2.0
        e.src["to_src"] = max(e.src["to_src"], e.a)
        e.dst_pair["to_pair"] += e.a
        e["alone"] = e.a * 2.0
        types[e.etype] += e.a
        least = min(least, e.a)
    for p in g.src_pairs():
        p.src["from_pairs"] += p.c * 2.0
    return to_dst, to_src, to_pair, alone, types, least, from_pairs
"""
    )
    # Groups of ten edges, but for the minimum of all; sums of types are divided anyway.
    sizes = dict(TYPICAL.sizes)
    schedule(sdfg, sizes)
    assert hubs(sdfg) == {"least"}
    assert schedule(sdfg, sizes, {"dst": 15_625, "src": 15_625, "dstpair": 15_625, "srcpair": 15_625}) == 0
    assert schedule(sdfg, sizes, {"dst": 15_626}) == 1
    assert hubs(sdfg) == {"least", "to_dst"}
    assert schedule(sdfg, sizes, {"src": 15_626, "dstpair": 20_000}) == 3
    assert hubs(sdfg) == {"least", "to_src", "to_pair"}
    few = sizes | {"NS": 100, "ND": 100, "E": 5_000}
    schedule(sdfg, few, {"dst": 4_096, "src": 4_097})
    assert hubs(sdfg) == {"least", "to_src"}
    schedule(sdfg, dict.fromkeys(sizes, 0))
    assert hubs(sdfg) == set()


def test_hubs_of_devices_are_shorter_and_products_have_them_too() -> None:
    sdfg = parse(
        """def p(g, a: E, x: NS[4], W: R[4, 4], P: T[4, 4]):
    for e in g.edges():
        e.dst["sum"] += e.a
        e.dst["typed"] += linear(e.src.x, W[e.etype])
        e.dst["of_nodes"] += linear(e.src.x, P[e.dst.ntype])
        e["msg"] = linear(e.src.x, W[e.etype])
    return sum, typed, of_nodes, msg
"""
    )
    divided = {"sum": False, "typed": False, "of_nodes": False, "msg": False}

    def split(longest: dict[str, int], implementation: str = "cuda") -> dict[str, bool]:
        schedule(sdfg, TYPICAL.sizes, longest, implementation)
        return {o.written_arrays[0]: o.split_hubs for o in Program(sdfg).operators}

    assert split({"dst": 1024, "dstpair": 1024}) == divided
    assert split({"dst": 1025, "dstpair": 1024}) == divided | {"sum": True, "of_nodes": True}
    assert split({"dst": 1025, "dstpair": 1025}) == divided | {"sum": True, "of_nodes": True, "typed": True}
    assert split({"dst": 1024}) == divided
    assert split({"dst": 20_000, "dstpair": 20_000}, "cpu") == divided | {"sum": True}


def test_profile_knows_the_longest_groups() -> None:
    src, dst = torch.tensor([0, 1, 2, 3, 3, 0]), torch.tensor([1, 1, 1, 1, 0, 1])
    graph = HeteroGraph.from_arrays((src, dst), torch.tensor([0, 0, 0, 1, 1, 0]), num_nodes=4)
    assert Profile.of(graph).longest == {"src": 2, "dst": 5, "srcpair": 2, "dstpair": 4}
    assert Profile.of(HeteroGraph.from_arrays((src[:0], dst[:0]), None, num_nodes=4)).longest == {}


def test_scratch_of_a_tile_stays_in_the_cache() -> None:
    sdfg = parse(
        """def p(g, a: E, b: E[100], w: E[2000]):
    for e in g.edges():
        e["x"] = e.a * 2.0
        e["y"] = e.b * 2.0
        e["z"] = e.w * 2.0
        e.dst["sum_x"] += e["x"]
        e.dst["sum_y"] += e["y"]
        e.dst["sum_z"] += e["z"]
    for e in g.edges():
        e["x2"] = e["x"] / e.dst["sum_x"]
        e["y2"] = e["y"] * e.dst["sum_y"]
        e["z2"] = e["z"] * e.dst["sum_z"]
    return x2, y2, z2
""",
        dtype=dace.float64,
    )
    program, groups = Program(sdfg), []
    for name in "xyz":
        bodies = [s for o in program.operators for s in o.statements if name in s.target.name]
        groups.append(StatementGroup(tuple(bodies), "ND", (name, f"sum_{name}")))
    program.regroup(groups)
    schedule(sdfg, TYPICAL.sizes)
    rows = {o.written_arrays[0]: o.tile_rows for o in Program(sdfg).operators if isinstance(o, Traversal)}
    assert rows == {"x2": 4096, "y2": 81, "z2": 64}  # 8, 800 and 16,000 bytes a row in 64 KiB


def test_run_time_choices_are_asked_for_kernels_of_the_cpu() -> None:
    text = """def p(g, a: E):
    for e in g.edges():
        e.dst["sum"] += e.a * 2.0
    for n in g.dst_nodes():
        n["out"] = n["sum"] * 2.0
    return out
"""

    def asked(longest: dict[str, int], implementation: str, plan: Plan | None = None) -> dict[str, str]:
        questions = Questions(plan or Plan())
        sdfg = parse(text)
        schedule(sdfg, TYPICAL.sizes, longest, implementation, questions)
        answers = {n: q.answer for n, q in questions.asked.items() if n.split("/")[-1] in RUN_TIME}
        first = next(o for o in Program(sdfg).operators if isinstance(o, Traversal))
        own = {n: v for n, v in answers.items() if n.startswith("sum/")}
        assert all(int(getattr(first, n.split("/")[1])) == int(v) for n, v in own.items())
        return answers

    plain = {"sum/tile_rows": "4096", "sum/chunks": "16", "out/chunks": "16"}
    assert asked({}, "cpu") == plain
    assert asked({"dst": 50_000}, "cpu") == plain | {"sum/hub_rows": "0"}
    assert asked({"dst": 50_000}, "cuda") == {}
    other = {"sum/tile_rows": "64", "sum/chunks": "64", "sum/hub_rows": "16384", "out/chunks": "1"}
    assert asked({"dst": 50_000}, "cpu", Plan.of(other)) == other
    with pytest.raises(DacergnnError, match="cannot be answered with '5'; options: 1, 4, 16, 64"):
        asked({}, "cpu", Plan.of({"sum/chunks": "5"}))

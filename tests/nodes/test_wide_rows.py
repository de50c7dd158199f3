"""Products that make the rows they multiply, and that hand wide rows on to edges: values, places, and what stays."""

from __future__ import annotations

from dataclasses import replace

import dace
import pytest

from dacergnn import Plan, parse, print_program
from dacergnn.graph.profile import TYPICAL
from dacergnn.library_nodes.node import Typeclass
from dacergnn.program import Program, verify
from dacergnn.program.printer import print_plans
from dacergnn.sdfg_passes import Context
from dacergnn.sdfg_passes.gemm_epilogue_fusion import GemmEpilogueFusion
from dacergnn.sdfg_passes.questions import Questions
from dacergnn.sdfg_passes.wide_rows import keep_wide_rows
from tests.nodes.test_expansions import compiled, graphs

TEXT = """def p(g, x: NS[6], h: E[5], A: ONE[30, 7], grad_y: ND[7], z: ND[7]):
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["sums"] += outer_prod(e.src.x, e.h)
    for n in g.dst_nodes():
        n["y"] = linear(reshape(n["sums"], 30), A)
    for n in g.dst_nodes():
        n["out"] = relu(n["y"] + n.z)
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["again"] += outer_prod(e.src.x, e.h)
    for n in g.dst_nodes():
        grad_A += outer_prod(reshape(n["again"], 30), n.grad_y)
    for n in g.dst_nodes():
        n["wide"] = linear(n.grad_y, A.T)
    for e in g.edges():
        e["grad_h"] = sum_heads(e.src.x * reshape(e.dst["wide"], 6, 5))
    for n in g.src_nodes():
        for e in n.outgoing_edges():
            n["grad_x"] += dot_prd(reshape(e.dst["wide"], 6, 5), to_heads(e.h, 6))
    return out, grad_A, grad_h, grad_x
"""
BY_SOURCE = (
    TEXT.replace("dst", "there").replace("src", "dst").replace("there", "src")
    .replace("incoming", "there").replace("outgoing", "incoming").replace("there", "outgoing")
    .replace("x: NS", "x: there").replace("ND", "NS").replace("there", "ND")
)  # fmt: skip

OF_HEADS = (
    TEXT.replace("A: ONE[30, 7], grad_y: ND[7], z: ND[7]", "A: ONE[6, 5, 7], grad_y: ND[6, 7], z: ND[6, 7]")
    .replace('reshape(n["sums"], 30)', 'n["sums"]').replace('reshape(n["again"], 30)', 'n["again"]')
    .replace('reshape(e.dst["wide"], 6, 5)', 'e.dst["wide"]')
)  # fmt: skip


def kept(text: str, dtype: Typeclass = dace.float32, context: Context | None = None) -> tuple[int, dace.SDFG]:
    """Returns how many wide rows products keep, and the program then."""
    sdfg, context = parse(text, dtype=dtype), context or Context()
    GemmEpilogueFusion().run(sdfg, context)
    count = keep_wide_rows(Program(sdfg), context)
    verify(sdfg)
    sdfg.validate()
    assert keep_wide_rows(Program(sdfg), context) == 0
    return count, sdfg


def test_listing() -> None:
    count, sdfg = kept(TEXT)
    assert count == 3
    assert (
        print_program(sdfg)
        == """\
def p(g, x: NS[6], h: E[5], A: ONE[30, 7], grad_y: ND[7], z: ND[7]):
    # SegmentGemm over ND; local: sums, y
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["sums"] += outer_prod(e.src["x"], e["h"])
        n["y"] = linear(reshape(n["sums"], 30), A)
        n["out"] = relu(n["y"] + n["z"])
    # SegmentGemm over ND; local: again
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["again"] += outer_prod(e.src["x"], e["h"])
        grad_A += outer_prod(reshape(n["again"], 30), n["grad_y"])
    # SegmentGemm over ND; local: wide
    for n in g.dst_nodes():
        n["wide"] = linear(n["grad_y"], A.T)
        for e in n.incoming_edges():
            e["grad_h"] = sum_heads(e.src["x"] * reshape(n["wide"], 6, 5))
            e["message"] = dot_prd(reshape(n["wide"], 6, 5), to_heads(e["h"], 6))
    # Traversal
    for n in g.src_nodes():
        for e in n.outgoing_edges():
            n["grad_x"] += e["message"]
    return out, grad_A, grad_h, grad_x
"""
    )


def test_plans() -> None:
    """The first operand is made, and the last result is handed on, in the order of the edges."""
    _, sdfg = kept(TEXT)
    text = print_plans(sdfg)
    assert 'rows of sums are made: e.dst["sums"] += outer_prod(e.src["x"], e["h"])\nthen n["out"] = ' in text
    assert 'then e["grad_h"] = sum_heads(e.src["x"] * reshape(e.dst["wide"], 6, 5))' in text
    assert text.count("encodings: ptr_E_dst, ids_E_dst, via_E_dst_src\n") == 3


@pytest.mark.parametrize("text", [TEXT, BY_SOURCE, OF_HEADS], ids=["by destination", "by source", "of heads"])
@pytest.mark.parametrize(
    ("target", "dtype", "index"),
    [
        ("cpu", dace.float64, dace.int32),
        ("cpu", dace.float32, dace.int64),
        ("cpu", dace.bfloat16, dace.int32),
        ("cpu-scalar", dace.float32, dace.int32),
        ("pure", dace.float64, dace.int64),
    ],
)
def test_kernels(text: str, target: str, dtype: Typeclass, index: Typeclass) -> None:
    count, sdfg = kept(text, dtype)  # "pure" runs the same operators
    assert count == 3
    program = compiled(sdfg, target, dtype, index)
    for number, raw in enumerate(graphs()):
        program.check(raw, number)


FAR = """    for e in g.edges():
        e.dst["far"] += sum(e["grad_h"])
    for n in g.src_nodes():
        for e in n.outgoing_edges():
            n["grad_x"] += e.dst["far"] * slice(e.dst["wide"], 0, 6)
    return"""


@pytest.mark.parametrize(
    ("old", "new", "count"),
    [
        ("return out", "return sums, out", 2),
        ("return out", "return wide, out", 2),
        ("return", "return", 3),
        (TEXT[TEXT.index("    for n in g.src_nodes") : TEXT.index(" out,")], FAR, 2),  # waits for all of grad_h
    ],
)
def test_rows_that_others_need_stay(old: str, new: str, count: int) -> None:
    assert kept(TEXT.replace(old, new))[0] == count


def test_narrow_rows_stay() -> None:
    """A sum as wide as its terms is worth nothing to a product: it is written once, and read once."""
    text = """def p(g, x: NS[6], A: ONE[6, 7]):
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["sum"] += e.src.x
    for n in g.dst_nodes():
        n["out"] = linear(n["sum"], A)
    return out
"""
    assert kept(text)[0] == 0


def test_a_plan_decides() -> None:
    plan = Plan.of({"sums": "keep", "wide": "in_product"})
    hubs = replace(TYPICAL, hubs=(("dst", 500_000),))
    assert kept(TEXT, context=Context(hubs, questions=Questions(plan)))[0] == 1
    assert kept(TEXT, context=Context(questions=Questions(plan)))[0] == 2


def test_hubs_and_devices_keep_rows_in_memory() -> None:
    """Threads share the edges of a hub, and blocks of a device share rows in other ways."""
    assert kept(TEXT, context=Context(replace(TYPICAL, hubs=(("dst", 500_000),))))[0] == 0
    assert kept(TEXT, context=Context(implementation="cuda"))[0] == 0
    assert kept(TEXT, context=Context(implementation="pure"))[0] == 0

"""Epilogues of products: what is fused, what is not, and that the kernels compute the same."""

from __future__ import annotations

import dace
import pytest

from dacergnn import parse, print_program
from dacergnn.program import Program, verify
from dacergnn.sdfg_passes import Context
from dacergnn.sdfg_passes.gemm_epilogue_fusion import GemmEpilogueFusion
from tests.nodes.test_expansions import compiled, graphs

SUM = """def p(g, x: NS[20], W: R[20, 24], root: ONE[20, 24], b: ONE[24], a: E):
    for n in g.dst_nodes():
        n["own"] = linear(n.x, root)
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["h"] += e.a * linear(e.src.x, W[e.etype])
    for n in g.dst_nodes():
        n["y"] = n["h"] + n["own"]
        n["z"] = relu(n["y"] + b)
    return z
"""
TYPED = """def p(g, x: NS[2, 16], W: R[2, 16, 8], b: R[16], q: R[2, 8]):
    for p in g.src_pairs():
        p["h"] = linear(p.src.x, W[p.etype])
        p["s"] = dot_prd(p["h"], q[p.etype])
        p["y"] = tanh(reshape(p["h"], 16) + b[p.etype])
    return s, y
"""
TRANSPOSED = """def p(g, x: NS[8], W: T[16, 8]):
    for n in g.dst_nodes():
        n["h"] = linear(n.x, W[n.ntype].T)
        n["y"] = sigmoid(n["h"]) * n["h"]
    return y, h
"""
LOOP = """def p(g, x: NS[8], h: NS[8], W: ONE[8, 8], a: E):
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["s"] += e.a * e.src.h
    for n in g.dst_nodes():
        n["own"] = linear(n.x, W)
        n["y"] = n["s"] + n["own"]
    return y
"""
LATE = """def p(g, x: NS[8], W: R[8, 16], b: R[8], A: R[8, 16]):
    for p in g.src_pairs():
        p["h"] = linear(p.src.x, W[p.etype])
    for r in g.edge_types():
        r["c"] = compose(reshape(r["b"], 1, 8), r["A"])
    for p in g.src_pairs():
        p["y"] = tanh(p["h"] + reshape(c[p.etype], 16))
    return y
"""
CIRCLE = """def p(g, x: NS[8], W: R[8, 16]):
    for p in g.src_pairs():
        p["h"] = linear(p.src.x, W[p.etype])
    for p in g.src_pairs():
        c[p.etype] += p["h"]
    for p in g.src_pairs():
        p["y"] = p["h"] - c[p.etype]
    return y
"""
SAME_ROWS = """def p(g, x: NS[20], W: R[20, 24], k: R[20], q: R[20]):
    for p in g.src_pairs():
        p["h"] = linear(p.src.x, W[p.etype])
    for r in g.edge_types():
        r["twice"] = r.k * 2.0
    for p in g.src_pairs():
        p["s"] = dot_prd(p.src.x, twice[p.etype])
    for p in g.src_pairs():
        p["t"] = dot_prd(p.src.x, q[p.etype]) + p["s"]
    return h, t
"""
PROGRAMS = {
    "sum": (SUM, 2, {"h", "y"}),
    "typed": (TYPED, 2, set[str]()),
    "transposed": (TRANSPOSED, 1, set[str]()),
    "loop": (LOOP, 0, set[str]()),  # which takes the rows of the product
    "late": (LATE, 1, {"h"}),  # the other operand is a row a type, and is made first
    "same rows": (SAME_ROWS, 3, {"s", "tmp"}),
    "circle": (CIRCLE, 0, set[str]()),  # it is made of the product's rows
}


def fused(text: str) -> tuple[int, dace.SDFG]:
    sdfg = parse(text, dtype=dace.float64)
    count = GemmEpilogueFusion().run(sdfg, Context())
    verify(sdfg)
    sdfg.validate()
    return count, sdfg


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_fused(name: str) -> None:
    text, expected, locals_ = PROGRAMS[name]
    count, sdfg = fused(text)
    assert count == expected
    assert {n for o in Program(sdfg).operators for n in o.locals} == locals_
    before = print_program(sdfg)
    assert GemmEpilogueFusion().run(sdfg, Context()) == 0
    assert print_program(sdfg) == before


@pytest.mark.parametrize(
    ("name", "implementation"),
    [*((name, "cpu") for name, (_, count, _) in PROGRAMS.items() if count), ("sum", "pure"), ("typed", "pure")],
)
def test_kernels_compute_what_the_interpreter_does(name: str, implementation: str) -> None:
    _, sdfg = fused(PROGRAMS[name][0])
    program = compiled(sdfg, implementation, dace.float64, dace.int32)
    program.plain = parse(PROGRAMS[name][0], dtype=dace.float64)
    for number, raw in enumerate(graphs()):
        program.check(raw, number)


@pytest.mark.parametrize(
    "statement",
    [
        'n["y"] = n["h"] + sum(n["h"])',  # reads other elements of the row that it would overwrite
        'n["y"] = concat(n["h"], n["h"])',
    ],
)
def test_a_row_that_is_overwritten_is_read_element_by_element(statement: str) -> None:
    text = f"""def p(g, x: NS[8], W: ONE[8, 8]):
    for n in g.src_nodes():
        n["h"] = linear(n.x, W)
        {statement}
    return y
"""
    _, sdfg = fused(text)
    assert all("h" not in o.locals or len(o.statements) == 1 for o in Program(sdfg).operators)


def test_rows_beyond_those_of_the_product_stay_apart() -> None:
    text = """def p(g, x: NS[8], W: ONE[8, 8]):
    for n in g.dst_nodes():
        n.src["h"] = linear(n.x, W)
    for n in g.src_nodes():
        n["y"] = exp(n["h"])
    return y
"""
    assert fused(text)[0] == 0


def test_readers_at_other_rows_stay_apart() -> None:
    text = """def p(g, x: NS[8], W: ONE[8, 8]):
    for n in g.src_nodes():
        n["h"] = linear(n.x, W)
    for e in g.edges():
        e["y"] = exp(e.src["h"])
    return y
"""
    assert fused(text)[0] == 0


def test_rows_of_destinations_among_those_of_sources_are_not_fused() -> None:
    """The others have to be 0, and the product has no rows for them."""
    text = """def p(g, x: NS[20], W: ONE[20, 24]):
    for n in g.dst_nodes():
        n["h"] = linear(n.x, W)
        n.src["y"] = relu(n["h"])
    return y
"""
    assert fused(text)[0] == 0
    assert fused(text.replace("n.src", "n"))[0] == 1


@pytest.mark.parametrize(
    ("product", "statement"),
    [
        ('p["h"] = linear(p.src.x, W[p.etype])', 'p["y"] = dot_prd(p.src.x, c[p.etype])'),  # made of the product's rows
        ('p["h"] = linear(p.src.x, W[p.etype])', 'p["y"] = dot_prd(p.src.x, p.own)'),  # wide rows of its own
        ('p["h"] = linear(p.own, W[p.etype])', 'p["y"] = dot_prd(p.own, q[p.etype])'),  # not gathered
        ('p["h"] = linear(p.src.x, W[p.etype])', "y[p.etype] += p.src.x"),  # a row of the type, not of the pair
    ],
)
def test_statements_that_gather_no_rows_of_a_product_stay_apart(product: str, statement: str) -> None:
    text = f"""def p(g, x: NS[8], W: R[8, 8], own: U[8], q: R[8]):
    for p in g.src_pairs():
        {product}
        c[p.etype] += p["h"]
        {statement}
    return y, h, c
"""
    assert fused(text)[0] == 0

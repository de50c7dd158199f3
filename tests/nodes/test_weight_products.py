"""Products of weights, rows of weights and transposed weights: every expansion against the interpreter, on graphs whose
edge types tell node types, and gradients against torch."""

from __future__ import annotations

import random

import dace
import numpy as np
import pytest
import torch

from dacergnn.cost import program_cost
from dacergnn.errors import GraphError, ProgramError
from dacergnn.graph import ROW_SPACES
from dacergnn.library_nodes import SegmentGemm
from dacergnn.library_nodes.node import Typeclass
from dacergnn.program import Program, interpret, parse, print_program
from dacergnn.sdfg_passes import differentiate
from tests.nodes.test_expansions import compiled
from tests.program.test_random_programs import Checked, check_text
from tests.support.random_graphs import RawGraph, joined_graph
from tests.support.random_programs import Case

PRODUCTS = """def program(
    g, A: R[5, 6], B: R[6, 7], Bh: R[2, 3, 4], Ch: R[2, 4, 3], Y: R[5, 4], K: T[6, 5], Kh: T[2, 3, 17], q: ONE[2, 3],
    W: ONE[6, 6], P: ONE[20, 40], v: ONE[40], G: ONE[100, 6], u: ONE[100],
):
    for r in g.edge_types():
        r["y1"] = compose(r.A, r.B)
        r["y2"] = compose(r.A, r.Bh)
        r["y3"] = compose(r.A, r.Ch.T)
        r["y4"] = compose(r.A, reshape(q, 2, 3, 1))
        r["y5"] = compose(K[r.src.ntype].T, Kh[r.dst.ntype])
        r["y6"] = tanh(compose(r.A, W.T))
        r["y7"] = compose(reshape(r.B, 7, 6), W)
        r["i1"] = inner(r.A, r.Y)
        r["i2"] = inner(r.A, r.Y, 2)
        r["i3"] = inner(r.A, K[r.src.ntype].T, 3)
        r["i4"] = inner(K[r.dst.ntype].T, r.Y, 2)
        r["i5"] = inner(reshape(q, 2, 3), reshape(q, 2, 3), 3)
        S1[r.src.ntype] += compose(r.A, r.B)
        S2[r.dst.ntype] += inner(r.A, r.A, 2)
    for t in g.node_types():
        t["n1"] = compose(t.K, t.K.T)
        t["n2"] = compose(t.K.T, reshape(q, 2, 3, 1))
    for o in g.once():
        o["o1"] = compose(P, reshape(v, 4, 10, 1))
        o["o2"] = compose(o.P.T, reshape(o.v, 2, 2, 10).T)
        o["o3"] = inner(G, o.G, 2)
        o["o4"] = inner(o.G, reshape(u, 100, 1))
    return y1, y2, y3, y4, y5, y6, y7, i1, i2, i3, i4, i5, S1, S2, n1, n2, o1, o2, o3, o4
"""
TRAVERSALS = """def program(g, x: NS[6], A: R[5, 6], Bh: R[2, 3, 4], K: T[6, 5], s: R):
    for r in g.edge_types():
        r["t1"] = take_rows(r.A, 1, 4)
        r["t2"] = take_rows(2.0 * r.Bh, 0, 2)
        r["t3"] = pad_rows(r.A, 2, 1)
        r["t4"] = tanh(pad_rows(r.Bh, 0, 1) + 1.0)
        r["t5"] = r.A.T + K[r.src.ntype]
        r["t6"] = r.s * r.Bh.T
        r["t7"] = sum(take_rows(tanh(r.A), 2, 5))
        r["t8"] = pad_rows(take_rows(K[r.dst.ntype].T, 1, 5), 1, 0)
        S1[r.src.ntype] += take_rows(r.A, 0, 2) * r.s
        S2[r.dst.ntype] += r.A.T
        S3 += pad_rows(r.A, 1, 1)
    for e in g.edges():
        e["z"] = linear(e.src.x, A[e.etype].T)
    return t1, t2, t3, t4, t5, t6, t7, t8, S1, S2, S3, z
"""
CASES: dict[str, tuple[str, str, Typeclass, Typeclass]] = {
    "products-cpu-float32-int64": (PRODUCTS, "cpu", dace.float32, dace.int64),
    "products-pure-float64-int32": (PRODUCTS, "pure", dace.float64, dace.int32),
    "traversals-cpu-float64-int32": (TRAVERSALS, "cpu", dace.float64, dace.int32),
    "traversals-pure-float32-int64": (TRAVERSALS, "pure", dace.float32, dace.int64),
}


def graphs() -> list[RawGraph]:
    rng = random.Random(3)
    empty = np.zeros(0, dtype=np.int64)
    return [
        *(joined_graph(rng, *sizes) for sizes in ((8, 20, 3, 2), (30, 200, 40, 5), (5, 0, 4, 2))),
        RawGraph(empty, empty, empty, empty, empty, 0, 0),
    ]


@pytest.mark.parametrize("case", CASES)
def test_expansions(case: str) -> None:
    text, implementation, dtype, index = CASES[case]
    program = compiled(parse(text, dtype=dtype), implementation, dtype, index)
    for number, raw in enumerate(graphs()):
        program.check(raw, number)


def checked(text: str, raw: RawGraph, seed: int = 0) -> Checked:
    program = Program(parse(text))
    generator = torch.Generator().manual_seed(seed)
    sizes = raw.maps()[1]
    inputs = {
        name: torch.randn(sizes[program.space(name)], *program.shape(name), generator=generator, dtype=torch.float64)
        for name in program.inputs
    }
    return Checked(Case(text, raw, inputs, list(inputs), smooth=True), seed)


@pytest.mark.parametrize("text", [PRODUCTS, TRAVERSALS], ids=["products", "traversals"])
def test_gradients(text: str) -> None:
    """Equal to autograd's of the same text; the backward consists of the same operators."""
    for number, raw in enumerate(graphs()[:3]):
        case = checked(text, raw, number)
        gradient = differentiate(case.sdfg, case.case.wrt)
        assert set(case.gradients(gradient)) == set(case.case.wrt)
        check_text(case, gradient)


def test_compiled_gradients() -> None:
    case = checked(PRODUCTS, graphs()[1])
    sdfg = parse(PRODUCTS, dtype=dace.float64)
    gradient = differentiate(sdfg, case.case.wrt)
    backward = compiled(gradient.backward, "cpu", dace.float64, dace.int32)
    backward.check(graphs()[1])


def test_is_the_matrix_of_two_linears() -> None:
    text = """def program(g, x: NS[5], A: R[5, 6], B: R[2, 3, 4]):
    for r in g.edge_types():
        r["F"] = compose(r.A, r.B)
    for e in g.edges():
        e["h"] = reshape(linear(e.src.x, A[e.etype]), 2, 3)
        e["two"] = linear(e["h"], B[e.etype])
        e["once"] = reshape(linear(e.src.x, F[e.etype]), 2, 4)
    return two, once
"""
    case = checked(text, graphs()[1])
    np.testing.assert_allclose(case.values["two"], case.values["once"], rtol=1e-12, atol=1e-12)


def test_are_products() -> None:
    sdfg = parse(PRODUCTS)
    operators = Program(sdfg).operators
    assert sum(isinstance(o, SegmentGemm) for o in operators) == 20
    text = print_program(sdfg)
    assert 'r["y4"] = compose(r["A"], reshape(q, 2, 3, 1))' in text
    assert 'o["o2"] = compose(o["P"].T, reshape(o["v"], 2, 2, 10).T)' in text
    assert 'r["y5"] = compose(K[r.src.ntype].T, Kh[r.dst.ntype])' in text


def test_cost() -> None:
    sizes = dict.fromkeys(ROW_SPACES, 3)
    text = "def p(g, A: R[5, 6], B: R[2, 3, 4]):\n    for r in g.edge_types():\n        r['y'] = {}\n    return y\n"
    assert program_cost(parse(text.format("compose(r.A, r.B)")), sizes).flops == 3 * 2 * 5 * 6 * 4
    assert program_cost(parse(text.format("inner(r.A, r.A, 2)")), sizes).flops == 3 * 2 * 5 * 2 * 3 * 3


@pytest.mark.parametrize(
    ("space", "line", "message"),
    [
        (
            "edge_types",
            "compose(x.A, x.A)",
            "compose: weights of shapes (5, 6) and (5, 6); expected (K, N) with (N, M)",
        ),
        ("edge_types", "inner(x.A, x.B)", "inner: weights of shapes (5, 6) and (6, 7) with ()"),
        ("edge_types", "inner(x.A, x.A, 4)", "inner: weights of shapes (5, 6) and (5, 6) with (4,)"),
        ("edge_types", "take_rows(x.A, 2, 6)", "take_rows: takes (w, start, stop) within the 5 rows of w, not (2, 6)."),
        ("edge_types", "take_rows(x.b, 0, 1)", "take_rows: takes a matrix, or a stack of them, and two integers"),
        ("edge_types", "pad_rows(x.A, 1, -1)", "pad_rows: takes (w, before, after), numbers of rows that are added"),
        ("edge_types", "x.b.T", '"b" has row shape (3,); only matrices and stacks of them are transposed.'),
        ("edge_types", "reshape(x.A.T, 30)", "a matrix is reshaped before it is transposed: reshape(W, ...).T"),
        ("edge_types", "x.src.A", "rows of this loop (R) have no .src"),
        ("edges", "compose(A[x.etype], B[x.etype])", "compose: multiplies the weights of one type, in a loop over"),
        (
            "edges",
            "linear(x.M.T, C[x.etype])",
            'linear: "M" is a row value, which is not transposed; only weights are.',
        ),
    ],
)
def test_refusals(space: str, line: str, message: str) -> None:
    text = f"""def p(g, A: R[5, 6], B: R[6, 7], b: R[3], M: E[3, 2], C: R[2, 3, 4]):
    for x in g.{space}():
        x["y"] = {line}
    return y
"""
    with pytest.raises(ProgramError) as caught:
        parse(text)
    assert message in str(caught.value)


def test_edge_types_that_tell_no_node_type() -> None:
    text = "def p(g, K: T[2]):\n    for r in g.edge_types():\n        r['y'] = 2.0 * K[r.src.ntype]\n    return y\n"
    mixed = RawGraph(*(np.array(a) for a in ([0, 1], [0, 0], [0, 0], [0, 1], [0, 1])), 1, 2)
    with pytest.raises(GraphError, match="Edge type 0 has source nodes of several types"):
        interpret(parse(text), mixed.hetero(), K=np.zeros((2, 2)))

"""One form: what becomes of programs that say the same differently, and that values stay."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from dacergnn import interpret, parse, print_program
from dacergnn.program import Program, verify
from dacergnn.sdfg_passes import Context
from dacergnn.sdfg_passes.canonical_form import CanonicalForm
from tests.support.random_chains import random_chains
from tests.support.random_graphs import random_graph
from tests.support.torch_evaluate import torch_evaluate

BEFORE = """def p(g, x: NS[6], W: R[6, 6], F: R[2, 3, 3], s: E, a: ONE[2, 3], t: T):
    for e in g.edges():
        e["hs"] = linear(e.src.x, W[e.etype])
        e["score"] = dot_prd(reshape(e["hs"], 2, 3), a)
        e["sum"] = e["score"] + e.s
        e["att"] = leakyrelu(e["sum"], 0.2)
        e["copy"] = e["att"]
        e["of_source"] = tanh(0.5 * e.src.x)
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["out"] += e["of_source"] * (e.s / n.x)
            n["agg"] += e["copy"] * linear(reshape(e.src.x, 2, 3), F[e.etype])
            n["total"] += reshape(e["hs"], 2, 3) * (2.0 * e["copy"])
        n["gate"] = sigmoid(t[n.ntype])
        n["own"] = n["gate"] * n["out"]
        n["y"] = n["own"] + n.x
    return y, agg, total
"""
AFTER = """def p(g, x: NS[6], W: R[6, 6], F: R[2, 3, 3], s: E, a: ONE[2, 3], t: T):
    for e in g.edges():
        e["hs"] = reshape(linear(e.src["x"], W[e.etype]), 2, 3)
    for e in g.edges():
        e["score"] = dot_prd(e["hs"], a)
    for e in g.edges():
        e["att"] = leakyrelu(e["score"] + e["s"], 0.2)
    for e in g.edges():
        e["of_source"] = tanh(e.src["x"] * 0.5)
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["out"] += e["of_source"] * (e["s"] / n["x"])
    for e in g.edges():
        e["rows"] = linear(reshape(e.src["x"], 2, 3), F[e.etype])
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["agg"] += e["att"] * e["rows"]
    for e in g.edges():
        e["factor"] = e["att"] * 2.0
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["total"] += e["factor"] * e["hs"]
    for n in g.dst_nodes():
        n["y"] = sigmoid(t[n.ntype]) * n["out"] + n["x"]
    return y, agg, total
"""


def test_listing() -> None:
    sdfg = parse(BEFORE)
    assert CanonicalForm().run(sdfg, Context()) > 0
    verify(sdfg)
    assert "".join(f"{line}\n" for line in print_program(sdfg).splitlines() if "#" not in line) == AFTER
    assert CanonicalForm().run(sdfg, Context()) == 0


def test_a_value_that_could_live_in_fewer_rows_stays() -> None:
    text = """def p(g, x: NS[6], s: E[6]):
    for e in g.edges():
        e["a"] = tanh(e.src.x)
        e["b"] = exp(e["a"])
        e["c"] = e["b"] + e.s
    return c
"""
    sdfg = parse(text)
    CanonicalForm().run(sdfg, Context())
    assert [len(list(o.read_arrays)) for o in Program(sdfg).operators] == [1, 2]
    assert 'e["b"] = exp(tanh(e.src["x"]))' in print_program(sdfg)


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_values_stay_and_the_form_is_final(first: int) -> None:
    for seed in range(first, first + 50):
        case = random_chains(seed)
        sdfg = parse(case.text)
        outputs = Program(sdfg).outputs
        CanonicalForm().run(sdfg, Context())
        verify(sdfg)
        values = interpret(sdfg, case.graph.hetero(), **case.inputs)
        expected, _ = torch_evaluate(case.text, case.graph, {n: torch.as_tensor(a) for n, a in case.inputs.items()})
        for name, result in zip(outputs, expected, strict=True):
            np.testing.assert_allclose(values[name], result.numpy(), rtol=1e-9, atol=1e-10, err_msg=f"{seed}: {name}")
        assert CanonicalForm().run(sdfg, Context()) == 0, case.text


def test_listing_keeps_values() -> None:
    values, rng = np.random.default_rng(1), random.Random(1)
    before, after = parse(BEFORE), parse(BEFORE)
    CanonicalForm().run(after, Context())
    graph = random_graph(rng).hetero()
    program = Program(before)
    inputs = {n: values.uniform(0.5, 1.0, (graph.size(program.space(n)), *program.shape(n))) for n in program.inputs}
    expected, found = interpret(before, graph, **inputs), interpret(after, graph, **inputs)
    for name in program.outputs:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-12, atol=1e-12)

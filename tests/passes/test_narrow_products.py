"""Narrow products: which products turn into row-wise statements, and that values stay."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dacergnn import interpret, parse, print_program
from dacergnn.program import verify
from dacergnn.sdfg_passes import Context
from dacergnn.sdfg_passes.narrow_products import NarrowProducts
from tests.support.random_graphs import random_graph

TEXT = """def p(g, x: NS[6], W: R[6, 1], Y: R[1, 5], s: E, q: ONE[1, 6], F: R[6, 6], v: ONE[1, 6, 1]):
    for p in g.src_pairs():
        p["a"] = linear(p.src.x, W[p.etype])
    for p in g.src_pairs():
        p["b"] = linear(p.src.x, q.T)
    for p in g.src_pairs():
        p.src["y"] += linear(p["a"], Y[p.etype])
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["z"] += e.s * linear(e.src.x, W[e.etype])
    for r in g.edge_types():
        r["f"] = compose(r["W"], q)
    for r in g.edge_types():
        r["o"] = r["F"] + r["f"]
    for r in g.edge_types():
        r["w"] = compose(r["F"], v)
    for p in g.src_pairs():
        p["c"] = linear(p.src.x, w[p.etype])
    for p in g.src_pairs():
        p["d"] = sum(reshape(w[p.etype], 6)) + p["c"]
    return b, y, z, o, d
"""


def test_products_and_values() -> None:
    sdfg, before = parse(TEXT), parse(TEXT)
    assert NarrowProducts().run(sdfg, Context()) == 7
    verify(sdfg)
    text = print_program(sdfg)
    assert "linear" not in text
    assert "compose" not in text
    assert NarrowProducts().run(sdfg, Context()) == 0
    rng, values = random.Random(1), np.random.default_rng(1)
    for _ in range(5):
        graph = random_graph(rng).hetero()
        shapes = {
            "x": ("NS", 6), "W": ("R", 6, 1), "Y": ("R", 1, 5), "s": ("E",), "q": ("ONE", 1, 6), "F": ("R", 6, 6),
            "v": ("ONE", 1, 6, 1),
        }  # fmt: skip
        inputs = {n: values.standard_normal((graph.size(space), *shape)) for n, (space, *shape) in shapes.items()}
        expected, found = interpret(before, graph, **inputs), interpret(sdfg, graph, **inputs)
        for name in ("b", "y", "z", "o", "d"):
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("weights", ["R[6, 2]", "R[2, 3, 1]"])
def test_wider_products_and_heads_stay(weights: str) -> None:
    x = "NS[2, 3]" if weights.startswith("R[2") else "NS[6]"
    text = f"""def p(g, x: {x}, W: {weights}):
    for p in g.src_pairs():
        p["a"] = linear(p.src.x, W[p.etype])
    return a
"""
    assert NarrowProducts().run(parse(text), Context()) == 0

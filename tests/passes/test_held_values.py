"""Gradients of biases read the gradient that a gather or a product needs as an array."""

from __future__ import annotations

import pytest

from dacergnn import parse, print_program
from dacergnn.sdfg_passes import differentiate

GATHERED = """def p(g, x: NS[5], b: ONE[5]):
    for e in g.edges():
        e.dst["s"] += e.src["x"]
    for n in g.dst_nodes():
        n["out"] = relu(n["s"] + b)
    return out
"""
PRODUCT = """def p(g, x: NS[5], W: ONE[5, 5], b: ONE[5]):
    for n in g.src_nodes():
        n["s"] = linear(n["x"], W)
    for n in g.src_nodes():
        n["out"] = relu(n["s"] + b)
    return out
"""
ALONE = """def p(g, s: ND[5], b: ONE[5]):
    for n in g.dst_nodes():
        n["out"] = relu(n["s"] + b)
    return out
"""


@pytest.mark.parametrize(
    ("text", "wrt", "reads"),
    [
        (GATHERED, ["x", "b"], True),
        (PRODUCT, ["x", "W", "b"], True),
        (GATHERED, ["b"], False),
        (ALONE, ["s", "b"], False),
    ],
)
def test_sums(text: str, wrt: list[str], *, reads: bool) -> None:
    backward = differentiate(parse(text), wrt).backward
    (line,) = [line for line in print_program(backward).splitlines() if "grad_b" in line and "+=" in line]
    assert ('n["out"]' not in line) is reads, line

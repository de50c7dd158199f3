"""What one operator costs: the costs of a program's operators are its cost, and what one keeps to itself is free."""

from __future__ import annotations

import dace

from dacergnn import Config, parse
from dacergnn.cost import Cost, operator_cost, program_cost
from dacergnn.graph.profile import TYPICAL
from dacergnn.program import Program
from dacergnn.sdfg_passes import compile_program
from tests.support.rewrites import sizes

SIZES = sizes(NS=10, ND=10, E=100)
TEXT = """
def layer(g, x: NS[4], W: ONE[4, 8], s: E):
    for n in g.src_nodes():
        n["h"] = linear(n.x, W)
    for e in g.edges():
        e["t"] = e.s * 2.0
    for n in g.dst_nodes():
        n["y"] = sum(e["t"] * e.src["h"] for e in n.incoming_edges())
    return y
"""
PRODUCT = Cost(flops=10 * 2 * 4 * 8, streamed=4 * (10 * 4 + 4 * 8 + 10 * 8))
GATHERED = Cost(flops=100 * 2 * 8, streamed=4 * (100 + 100 + 10 * 8), gathered=100 * 32, rows=100)
"""Of the sum: indices of sources and destinations, what is written, the rows of `h`."""


def costs(sdfg: dace.SDFG) -> list[Cost]:
    return [operator_cost(sdfg, operator, SIZES) for operator in Program(sdfg).operators]


def test_an_operator_reads_and_writes_what_its_statements_name() -> None:
    scaled = Cost(flops=100, streamed=4 * (100 + 100))
    summed = GATHERED + Cost(streamed=4 * 100)
    assert costs(parse(TEXT)) == [PRODUCT, scaled, summed]
    assert program_cost(parse(TEXT), SIZES) == PRODUCT + scaled + summed


def test_values_inside_an_operator_cost_no_bytes() -> None:
    config = Config(passes=("traversal_fusion",))
    fused = compile_program(parse(TEXT), [], config, dace.int32, TYPICAL, keep=False).forward
    inside = GATHERED + Cost(flops=100, streamed=4 * 100)
    assert [n for o in Program(fused).operators for n in o.locals] == ["t"]
    assert costs(fused) == [PRODUCT, inside]
    assert program_cost(fused, SIZES) == PRODUCT + inside

"""Products of nodes before or after sums over edges: the conditions of Cached Operator Reordering, tables 1 and 2."""

from __future__ import annotations

from dataclasses import replace

import dace
import pytest

from dacergnn import Config, parse
from dacergnn.graph.profile import TYPICAL
from dacergnn.library_nodes.form import size
from dacergnn.program.listing import Listing
from dacergnn.sdfg_passes import compile_program
from dacergnn.sdfg_passes.aggregation_order import AggregationOrder
from tests.support.rewrites import on_graph, rewritten, unchanged

NODES, EDGES = 169_343, 1_166_243  # of ogbn-arxiv
SIZES = {"NS": NODES, "ND": NODES, "E": EDGES, "U": NODES, "V": NODES, "RNS": NODES, "R": 1, "T": 1, "ONE": 1}
CONVOLUTION = """def p(g, x: NS[{m}], W: ONE[{m}, {k}], a: E):
    for n in g.src_nodes():
        n["h"] = linear(n.x, W)
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["out"] += e.a * e.src["h"]
    return out
"""
MEAN = """def p(g, x: NS[{m}], W: ONE[{m}, {k}], root: ONE[{m}, {k}], eps: ONE, degree: ND):
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["total"] += e.src.x
        n["mean"] = n["total"] / n.degree - n.x * eps
        n["out"] = linear(n["mean"], W) + linear(n.x, root)
    return out
"""


def widths(m: int, k: int, text: str = CONVOLUTION) -> str:
    return text.format(m=m, k=k)


def summed(text: str, wrt: list[str]) -> tuple[int, int]:
    """Elements of the rows that forward and backward sum over the edges of ogbn-arxiv; 0 for no such sum."""
    arxiv = replace(TYPICAL, rows=tuple({**dict(TYPICAL.rows), **SIZES}.items()), single_typed=True)
    plan = compile_program(parse(text), wrt, Config(), dace.int32, arxiv)
    step = next(s for s in plan.steps if s.name == "cache_or_recompute")
    found = [Listing.of(step.sdfgs[role]) for role in ("forward", "backward")]
    widths = [[size(li.shape(s.target)) for s in li.statements if s.space == "E" and s.op == "+="] for li in found]
    return sum(widths[0]), sum(widths[1])


@pytest.mark.parametrize(
    ("m", "k", "wrt", "expected"),
    [
        (128, 32, ["W"], (32, 32)),  # k < m / 2: products first, gradients are summed
        (128, 256, ["W"], (128, 0)),  # the sums A X are kept for the gradient of W
        (128, 100, ["W"], (128, 0)),
        (128, 64, ["x", "W"], (64, 64)),  # k < m
        (128, 256, ["x", "W"], (128, 128)),
    ],
)
def test_orders_of_a_convolution_are_those_of_table_2(
    m: int, k: int, wrt: list[str], expected: tuple[int, int]
) -> None:
    assert summed(widths(m, k), wrt) == expected


ordered = on_graph(AggregationOrder(), E=10_000_000)


def test_narrower_rows_are_summed() -> None:
    assert rewritten(widths(4, 8), ordered) == (
        1,
        """for n in g.dst_nodes():
    for e in n.incoming_edges():
        n["sum"] += e["a"] * e.src["x"]
for n in g.dst_nodes():
    n["out"] = linear(n["sum"], W)
return out""",
    )
    assert unchanged(widths(8, 4), ordered)


def test_products_move_through_quotients_and_differences() -> None:
    assert unchanged(widths(4, 8, MEAN), ordered)
    count, after = rewritten(widths(8, 4, MEAN), ordered)
    assert count == 1
    assert (
        after
        == """for n in g.src_nodes():
    n["rows"] = linear(n["x"], W)
for n in g.dst_nodes():
    for e in n.incoming_edges():
        n["total_1"] += e.src["rows"]
for n in g.dst_nodes():
    n["rows_1"] = linear(n["x"], W)
for n in g.dst_nodes():
    n["tmp"] = n["total_1"] / n["degree"] - n["rows_1"] * eps
for n in g.dst_nodes():
    n["tmp_1"] = linear(n["x"], root)
for n in g.dst_nodes():
    n["out"] = n["tmp"] + n["tmp_1"]
return out"""
    )


def test_sums_of_heads_stay() -> None:
    """A weight of edges for each head mixes no heads, but the product of all columns would."""
    assert unchanged(
        """def p(g, x: NS[4], W: ONE[4, 16], a: E[2]):
    for n in g.src_nodes():
        n["h"] = linear(n.x, W)
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["out"] += e.a * reshape(e.src["h"], 2, 8)
    return out
""",
        ordered,
    )


TRANSFORMED = """def p(
    g, x: NS[4], z: NS[2, 4], t: T[4], a: E[4], s: NS, W: ONE[4, 4], V: ONE[8, 4], U: ONE[4, 8], K: T[4, 4]
):
    for n in g.src_nodes():
        n["h"] = {product}
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["out"] += {summed}
    return out
"""


@pytest.mark.parametrize(
    ("product", "summed"),
    [
        ("linear(n.x, W)", 'e.a * e.src["h"]'),  # a weight for each column
        ("linear(n.x, U)", 'reshape(e.src["h"], 2, 4)'),
        ("linear(n.x, W)", 'tanh(e.src["h"])'),
        ("n.s * linear(n.x, W)", 'e.src["h"]'),
        ("linear(n.x, K[n.ntype])", 'e.src["h"]'),  # of the type of the source
        ("linear(t[n.ntype], W)", 'e.src["h"]'),
        ("linear(reshape(n.z, 8), V)", 'e.src["h"]'),
    ],
)
def test_products_that_stay_in_front_of_sums(product: str, summed: str) -> None:
    text = TRANSFORMED.format(product=product, summed=summed)
    assert unchanged(text, on_graph(AggregationOrder("aggregate_first")))


def test_products_that_are_summed_twice() -> None:
    """Rows of edges are no rows of the nodes that they are summed at."""
    text = """def p(g, f: E[4], W: ONE[4, 2]):
    for e in g.edges():
        e.src["h"] += linear(e.f, W)
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["out"] += e.src["h"]
    return out
"""
    _, after = rewritten(text, on_graph(AggregationOrder("aggregate_first")))
    assert after.endswith('n["out"] += e.src["h"]\nreturn out')


SUMMED = """def p(g, x: NS[4], f: E[4], y: NS, a: E[1], W: ONE[4, 2], w: ONE[1, 2], K: T[4, 2]):
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["s"] += e.src.x
            n["f_sum"] += e.f
            n["most"] = max(n["most"], e.src.x)
            n["one"] += e.a * e.src.y
        {lines}
    return out
"""


def moved(lines: str) -> int:
    """How many products move in front of sums; the program computes what it did."""
    text = SUMMED.format(lines=lines.replace("; ", "\n        "))
    return rewritten(text, on_graph(AggregationOrder("transform_first")))[0]


@pytest.mark.parametrize(
    "lines",
    [
        'n["h"] = n["s"] + 1.0; n["out"] = linear(n["h"], W)',
        'n["h"] = n["s"] * n["s"]; n["out"] = linear(n["h"], W)',
        'n["h"] = n["s"] + 2.0 / n.x; n["out"] = linear(n["h"], W)',
        'n["h"] = relu(n["s"]) - n.x; n["out"] = linear(n["h"], W)',
        'n["out"] = linear(n["most"], W)',
        'n["out"] = linear(n["one"], w)',
        'n["out"] = linear(n["s"], K[n.ntype])',
    ],
)
def test_products_that_stay_behind_sums(lines: str) -> None:
    assert moved(lines) == 0


@pytest.mark.parametrize(
    "lines",
    [
        'n["h"] = n["s"] + n["f_sum"]; n["out"] = linear(n["h"], W)',  # values of edges are no rows of nodes
        'n["h"] = -n["s"] / 2.0 - n.x; n["out"] = linear(n["h"], W)',
        'n["h"] = relu(n["f_sum"]); n["k"] = n["s"] + n["h"]; n["out"] = linear(n["k"], W)',
    ],
)
def test_rows_among_sums_are_multiplied_where_they_are(lines: str) -> None:
    assert moved(lines) == 1

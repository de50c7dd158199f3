"""Products with matrices of edges, and sums over edges: which comes first, and what that costs."""

from __future__ import annotations

import dace
import pytest

from dacergnn import Config, parse
from dacergnn.graph.profile import Profile
from dacergnn.sdfg_passes import compile_program
from dacergnn.sdfg_passes.aggregation_order import AggregationOrder
from dacergnn.sdfg_passes.matrix_orders import WIDEST
from tests.support.rewrites import on_graph, rewritten, sizes, unchanged

WEIGHTS = {
    "transposed": "A: ONE[12, 5], b: ONE[12]): linear(e.h, A.T) + b",
    "as it is": "A: ONE[5, 12], b: ONE[12]): linear(e.h, A) + b",
    "no bias": "A: ONE[12, 5]): linear(e.h, A.T)",
    "of types": "A: R[12, 5], b: R[12]): linear(e.h, A[e.etype].T) + b[e.etype]",
    "of types, one bias": "A: R[5, 12], b: ONE[12]): linear(e.h, A[e.etype]) + b",
    "a bias of edges": "A: ONE[12, 5], b: E[12]): linear(e.h, A.T) + e.b",
}


def program(
    weights: str = "transposed", message: str = "sum_heads(e.src.x * reshape(e.W, 3, 4))", to: str = "dst"
) -> str:
    arrays, matrix = WEIGHTS[weights].split("): ")
    return f"""def p(g, x: NS[3], h: E[5], z: E[3], {arrays}):
    for e in g.edges():
        e["W"] = {matrix}
    for e in g.edges():
        e.{to}["out"] += {message}
    return out
"""


def on(**rows: int) -> list[str]:
    """The order that the pass chooses for a layer of 32 to 32 channels, whose network has 32 values inside."""
    text = """def p(g, x: NS[32], h: E[32], A: ONE[1024, 32]):
    for e in g.edges():
        e["W"] = linear(e.h, A.T)
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["out"] += sum_heads(e.src.x * reshape(e.W, 32, 32))
    return out
"""
    profile = Profile(tuple(sizes(R=1, T=1, **rows).items()))
    found = compile_program(parse(text), ["x", "h", "A"], Config(), dace.int32, profile)
    return [q.answer for name, q in found.asked.items() if name == "forward/aggregation_order/0/out"]


def test_sums_of_outer_products() -> None:
    assert rewritten(program(), on_graph(AggregationOrder(), R=1)) == (
        1,
        """\
for o in g.once():
    o["A_1"] = reshape(o["A"], 3, 4, 5).T
for n in g.dst_nodes():
    for e in n.incoming_edges():
        n["sums"] += outer_prod(e.src["x"], e["h"])
for o in g.once():
    o["A_1_1"] = reshape(o["A_1"], 15, 4)
for o in g.once():
    o["b_1"] = reshape(o["b"], 3, 4)
for n in g.dst_nodes():
    for e in n.incoming_edges():
        n["sum"] += e.src["x"]
for n in g.dst_nodes():
    n["out_1"] = linear(reshape(n["sums"], 15), A_1_1)
for n in g.dst_nodes():
    n["out_2"] = linear(n["sum"], b_1)
for n in g.dst_nodes():
    n["out"] = n["out_1"] + n["out_2"]
return out""",
    )


@pytest.mark.parametrize("weights", WEIGHTS)
def test_weights_of_all_kinds(weights: str) -> None:
    """In every case no matrix of an edge is left; values and gradients are those of before."""
    count, text = rewritten(program(weights), on_graph(AggregationOrder(), R=1))
    assert (count > 0, "outer_prod(" in text) == (weights != "a bias of edges",) * 2


@pytest.mark.parametrize(
    ("message", "to"),
    [
        ("e.src.x * reshape(e.W, 3, 4)", "dst"),  # something else adds up the rows
        ("sum_heads(reshape(e.W, 3, 4) * e.dst.x)", "src"),
        ("sum_heads(e.z * reshape(e.W, 3, 4))", "dst"),  # rows of edges
    ],
)
def test_messages_of_all_kinds(message: str, to: str) -> None:
    count, text = rewritten(program(message=message, to=to), on_graph(AggregationOrder(), R=1))
    assert count > 0
    assert "outer_prod(" in text


@pytest.mark.parametrize(
    "message",
    [
        "relu(sum_heads(e.src.x * reshape(e.W, 3, 4)))",  # not linear
        "sum_heads(e.src.x * relu(reshape(e.W, 3, 4)))",
        "e.src.x * sum(reshape(e.W, 3, 4))",
    ],
)
def test_other_messages(message: str) -> None:
    assert unchanged(program(message=message), on_graph(AggregationOrder(), R=1))


def test_maxima_and_wide_networks_stay() -> None:
    message = "sum_heads(e.src.x * reshape(e.W, 3, 4))"
    maximum = program().replace(f"+= {message}", f'= max(e.dst["out"], {message})')
    assert unchanged(maximum, on_graph(AggregationOrder(), R=1))
    wide = WIDEST // 3 + 1
    text = program("no bias").replace("12, 5", f"12, {wide}").replace("E[5]", f"E[{wide}]")
    assert unchanged(text, on_graph(AggregationOrder(), R=1))


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [(6_000, "sum_outer_products"), (30_000, "sum_outer_products"), (120_000, "keep"), (600_000, "keep")],
)
def test_chosen_by_cost(nodes: int, expected: str) -> None:
    assert on(E=60_000, NS=nodes, ND=nodes, U=60_000, V=min(nodes, 60_000)) == [expected]

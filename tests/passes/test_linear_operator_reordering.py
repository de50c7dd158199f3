"""Linear operator reordering: products of weights, products on the other side of a dot product, and what stays."""

from __future__ import annotations

import pytest

from dacergnn.sdfg_passes.linear_operator_reordering import LinearOperatorReordering
from tests.support.rewrites import on_graph, rewritten, unchanged

wherever = on_graph(LinearOperatorReordering(merge_all=True))
joined = on_graph(LinearOperatorReordering(merge_all=True), single_typed=True)
PARTED = dict.fromkeys(("U", "V", "Es", "Vs", "Ed", "Ud"), 900_000) | {"Us": 1_000, "Vd": 1_000}


def test_a_linear_after_a_linear() -> None:
    assert rewritten(
        """def p(g, x: NS[8], W: R[8, 6], Z: R[6, 3]):
    for e in g.edges():
        e["h"] = linear(e.src.x, W[e.etype])
        e["s"] = linear(e["h"], Z[e.etype])
    return s
""",
        wherever,
    ) == (
        1,
        """for r in g.edge_types():
    r["W_Z"] = compose(r["W"], r["Z"])
for e in g.edges():
    e["s"] = linear(e.src["x"], W_Z[e.etype])
return s""",
    )


def test_a_dot_product_with_a_weight_per_head() -> None:
    """RGAT's scores: the weights of all relations meet a weight that has no type."""
    assert rewritten(
        """def p(g, x: NS[8], W: R[8, 6], q: ONE[2, 3]):
    for e in g.edges():
        e["h"] = reshape(linear(e.dst.x, W[e.etype]), 2, 3)
        e["s"] = dot_prd(e["h"], q)
    return s
""",
        wherever,
    ) == (
        1,
        """for r in g.edge_types():
    r["W_q"] = compose(r["W"], reshape(q, 2, 3, 1))
for e in g.edges():
    e["s"] = linear(e.dst["x"], W_q[e.etype])
return s""",
    )


def test_operands_of_a_dot_product_may_stand_the_other_way() -> None:
    text = """def p(g, x: NS[8], W: R[8, 6], q: R[6]):
    for e in g.edges():
        e["h"] = linear(e.src.x, W[e.etype])
        e["s"] = dot_prd(q[e.etype], e["h"])
    return s
"""
    assert rewritten(text, wherever)[1].startswith('for r in g.edge_types():\n    r["W_q"] = compose(r["W"], reshape(')


def test_a_bias_in_between_is_transformed_alone() -> None:
    count, after = rewritten(
        """def p(g, x: NS[8], K: T[8, 6], b: T[6], A: R[2, 3, 4]):
    for n in g.src_nodes():
        n["k"] = linear(n.x, K[n.ntype]) + b[n.ntype]
    for e in g.edges():
        e["s"] = linear(reshape(e.src.k, 2, 3), A[e.etype])
    return s
""",
        joined,
    )
    assert count == 1
    assert 'r["K_A"] = compose(K[r.src.ntype], r["A"])' in after
    assert "linear(reshape(b[e.src.ntype], 2, 3), A[e.etype])" in after
    assert 'linear(e.src["x"], K_A[e.etype])' in after


def test_three_in_a_row() -> None:
    count, after = rewritten(
        """def p(g, x: NS[8], A: R[8, 6], B: ONE[6, 5], C: R[5, 2]):
    for e in g.edges():
        e["s"] = linear(linear(linear(e.src.x, A[e.etype]), B), C[e.etype])
    return s
""",
        wherever,
    )
    assert count >= 2
    assert after.count("linear(") == 1


def test_types_of_nodes_meet_relations_where_these_join_one_with_one() -> None:
    text = """def p(g, x: NS[8], K: T[8, 6], A: R[6, 3]):
    for n in g.src_nodes():
        n["k"] = linear(n.x, K[n.ntype])
    for e in g.edges():
        e["s"] = linear(e.src.k, A[e.etype])
    return s
"""
    assert rewritten(text, joined) == (
        1,
        """for r in g.edge_types():
    r["K_A"] = compose(K[r.src.ntype], r["A"])
for e in g.edges():
    e["s"] = linear(e.src["x"], K_A[e.etype])
return s""",
    )
    assert unchanged(text, wherever)


SCORE = """def p(g, k: NS[64], q: ND[64], A: R[64, 64]):
    for e in g.edges():
        e["k2"] = linear(e.src.k, A[e.etype])
        e["s"] = dot_prd(e["k2"], e.dst.q)
    return s
"""


def test_a_product_serves_the_operand_with_fewer_rows() -> None:
    assert rewritten(SCORE, on_graph(LinearOperatorReordering(), U=900_000, V=1_000)) == (
        1,
        """for e in g.edges():
    e["q_1"] = linear(e.dst["q"], A[e.etype].T)
for e in g.edges():
    e["s"] = dot_prd(e.src["k"], e["q_1"])
return s""",
    )
    assert unchanged(SCORE, on_graph(LinearOperatorReordering(), U=1_000, V=900_000))
    assert unchanged(SCORE, wherever), "no product of weights"


def test_a_product_that_is_needed_anyway_is_shared() -> None:
    """Where messages take x W, a score of them is cheap; where nobody else does, weights are multiplied."""
    text = """def p(g, x: NS[64], W: R[64, 64], q: R[64]):
    for e in g.edges():
        e["h"] = linear(e.src.x, W[e.etype])
        e["s"] = dot_prd(e["h"], q[e.etype])
        e.dst["out"] += {message}
    return out
"""
    run = on_graph(LinearOperatorReordering(), U=2_000)
    assert unchanged(text.format(message='e["s"] * e["h"]'), run)
    count, after = rewritten(text.format(message='e["s"]'), run)
    assert count == 1
    assert "compose(" in after


@pytest.mark.parametrize(
    "lines",
    [
        'e["h"] = tanh(linear(e.src.x, W[e.etype])); e["s"] = linear(e["h"], V[e.etype]); return s',
        'e["h"] = e.f * linear(e.src.x, W[e.etype]); e["s"] = linear(e["h"], V[e.etype]); return s',
        # Weights by different types have no common row.
        'e["h"] = linear(e.src.x, W[e.etype]); e["s"] = linear(e["h"], K[e.dst.ntype]); return s',
        # A product inside an expression.
        'e["h"] = linear(e.src.x, W[e.etype]); e["s"] = e["h"] * V6; return s',
        # A bias that is one value for all features.
        'e["h"] = linear(e.src.x, W[e.etype]) + b[e.etype]; e["s"] = linear(e["h"], V[e.etype]); return s',
        # No sum with a bias, or one of other rows than those of the product.
        'e["h"] = linear(e.src.x, W[e.etype]) - b6[e.etype]; e["s"] = linear(e["h"], V[e.etype]); return s',
        'e["h"] = e.src.t + b6[e.etype]; e["s"] = linear(e["h"], V[e.etype]); return s',
        # A sum over edges.
        'e["h"] = linear(e.src.x, W[e.etype]); e.dst["s"] += linear(e["h"], V[e.etype]); return s',
        # Heads before the first product.
        'e["h"] = linear(reshape(e.src.x, 2, 4), H[e.etype]); e["s"] = dot_prd(reshape(e["h"], 6), V6); return s',
        # A matrix of the row, transposed.
        'e["h"] = reshape(linear(e.src.x, S[e.etype]), 2, 2); e["s"] = dot_prd(e["h"].T, Q[e.etype]); return s',
        'e["h"] = reshape(linear(e.src.x, S[e.etype]), 2, 2); e["s"] = dot_prd(e["h"], Q[e.etype].T); return s',
        'e["h"] = linear(e.src.z, Q3[e.etype]); e["s"] = dot_prd(e["h"].T, e.dst.z); return s',
        'e["h"] = linear(e.src.z, Q3[e.etype]); e["s"] = dot_prd(e["h"], e.dst.z.T); return s',
    ],
)
def test_what_stays(lines: str) -> None:
    *body, result = lines.split("; ")
    text = """def p(g, x: NS[8], z: NS[2, 2], f: E, b: R, b6: R[6], W: R[8, 6], V: R[6, 3], V6: ONE[6], W1: ONE[8, 6],
        K: T[6, 3], H: R[2, 4, 3], S: R[8, 4], Q: R[2, 2], Q3: R[2, 2, 2]):
    for n in g.nodes():
        n["t"] = linear(n.x, W1)
    for e in g.edges():
"""
    text += "\n".join(f"        {line}" for line in body) + f"\n    {result}\n"
    assert unchanged(text, wherever)
    for rows in ({}, {"U": 900_000, "V": 1_000}, {"U": 1_000, "V": 900_000}):
        assert unchanged(text, on_graph(LinearOperatorReordering(), **rows))


def test_destinations_that_write_rows_of_sources() -> None:
    """As second derivatives do: the rows of destinations are not those of the sources that they are written to."""
    text = """def p(g, d: ND[8], x: NS[3], W: ONE[8, 6], V: ONE[6, 3]):
    for n in g.dst_nodes():
        n.src["h"] = linear(n.d, W)
    for n in g.src_nodes():
        n["y"] = linear(n["h"], V)
        n["s"] = dot_prd(reshape(n["h"], 2, 3), reshape(n["h"], 2, 3))
    return y, s
"""
    assert unchanged(text, wherever)
    assert unchanged(text, on_graph(LinearOperatorReordering()))


def test_each_part_of_the_relations_multiplies_its_own_side() -> None:
    text = """def p(g, k: NS[32], q: ND[32], A: R[32, 32]):
    for e in g.edges():
        e["ka"] = linear(e.src.k, A[e.etype])
        e["s"] = dot_prd(e["ka"], e.dst.q)
    return s
"""
    count, listing = rewritten(text, on_graph(LinearOperatorReordering(), **PARTED))
    assert count == 1
    assert (
        listing
        == """for e in g.edges_s():
    e["q_1"] = linear(e.src["k"], A[e.etype])
for e in g.edges_s():
    e["s_1"] = dot_prd(e["q_1"], e.dst["q"])
for e in g.edges_s():
    e.edge["s_2"] += e["s_1"]
for e in g.edges_d():
    e["q_2"] = linear(e.dst["q"], A[e.etype].T)
for e in g.edges_d():
    e["s_3"] = dot_prd(e.src["k"], e["q_2"])
for e in g.edges_d():
    e.edge["s_4"] += e["s_3"]
for e in g.edges():
    e["s"] = e["s_2"] + e["s_4"]
return s"""
    )


BIASED = """def p(g, k: NS[32], q: ND[32], A: R[32, 32], b: R[32]):
    for e in g.edges():
        e["ka"] = linear(e.src.k, A[e.etype])
        e["kb"] = e["ka"] + b[e.etype]
        e["s"] = dot_prd(e["kb"], e.dst.q)
    return s
"""


def test_a_bias_meets_the_other_operand_alone() -> None:
    count, listing = rewritten(BIASED, on_graph(LinearOperatorReordering(), U=900_000, V=1_000))
    assert count == 1
    assert (
        listing
        == """for e in g.edges():
    e["q_1"] = linear(e.dst["q"], A[e.etype].T)
for e in g.edges():
    e["b_1"] = dot_prd(b[e.etype], e.dst["q"])
for e in g.edges():
    e["s"] = dot_prd(e.src["k"], e["q_1"]) + e["b_1"]
return s"""
    )


def test_a_bias_joins_the_rows_or_meets_the_other_operand_by_relation() -> None:
    count, listing = rewritten(BIASED, on_graph(LinearOperatorReordering(), **PARTED))
    assert count == 1
    assert (
        listing
        == """for e in g.edges_s():
    e["q_1"] = linear(e.src["k"], A[e.etype])
for e in g.edges_s():
    e["q_2"] = e["q_1"] + b[e.etype]
for e in g.edges_s():
    e["s_1"] = dot_prd(e["q_2"], e.dst["q"])
for e in g.edges_s():
    e.edge["s_2"] += e["s_1"]
for e in g.edges_d():
    e["q_3"] = linear(e.dst["q"], A[e.etype].T)
for e in g.edges_d():
    e["b_1"] = dot_prd(b[e.etype], e.dst["q"])
for e in g.edges_d():
    e["s_3"] = dot_prd(e.src["k"], e["q_3"]) + e["b_1"]
for e in g.edges_d():
    e.edge["s_4"] += e["s_3"]
for e in g.edges():
    e["s"] = e["s_2"] + e["s_4"]
return s"""
    )


def test_merged_weights_multiply_each_part_of_the_relations_on_its_own_side() -> None:
    """Products of nodes that both parts would need are saved, where there are many nodes and few relations."""
    text = """def p(g, x: NS[32], q: ND[32], K: T[32, 32], c: T[32], A: R[32, 32]):
    for n in g.src_nodes():
        n["xk"] = linear(n.x, K[n.ntype])
        n["k"] = n["xk"] + c[n.ntype]
    for e in g.edges():
        e["ka"] = linear(e.src["k"], A[e.etype])
        e["s"] = dot_prd(e["ka"], e.dst.q)
    return s
"""
    run = on_graph(LinearOperatorReordering(), single_typed=True, NS=900_000, R=10, **PARTED)
    count, listing = rewritten(text, run)
    assert count > 0
    assert (
        listing
        == """for r in g.edge_types():
    r["K_A"] = compose(K[r.src.ntype], r["A"])
for e in g.edges():
    e["ka_2"] = linear(reshape(c[e.src.ntype], 32), A[e.etype])
for e in g.edges_s():
    e["q_1"] = linear(e.src["x"], K_A[e.etype])
for e in g.edges_s():
    e["q_2"] = e["q_1"] + e.edge["ka_2"]
for e in g.edges_s():
    e["s_1"] = dot_prd(e["q_2"], e.dst["q"])
for e in g.edges_s():
    e.edge["s_2"] += e["s_1"]
for e in g.edges_d():
    e["q_3"] = linear(e.dst["q"], K_A[e.etype].T)
for e in g.edges_d():
    e["ka_2_1"] = dot_prd(e.edge["ka_2"], e.dst["q"])
for e in g.edges_d():
    e["s_3"] = dot_prd(e.src["x"], e["q_3"]) + e["ka_2_1"]
for e in g.edges_d():
    e.edge["s_4"] += e["s_3"]
for e in g.edges():
    e["s"] = e["s_2"] + e["s_4"]
return s"""
    )

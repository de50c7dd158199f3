"""Compact materialization: where values go, and what stays on the edges."""

from __future__ import annotations

import pytest

from dacergnn import parse
from dacergnn.errors import ProgramError
from dacergnn.sdfg_passes import Context, GemmScaleFusion
from dacergnn.sdfg_passes.compact_materialization import CompactMaterialization
from dacergnn.sdfg_passes.traversal_fusion import TraversalFusion
from tests.support.rewrites import on_graph, rewritten, unchanged

compacted = on_graph(CompactMaterialization())
joined = on_graph(CompactMaterialization(), single_typed=True)
hector = on_graph(CompactMaterialization(("srcpair",)))

BOTH_SIDES = """def p(g, x: NS[4], y: ND[4], W: R[4, 3], q: R[4]):
    for e in g.edges():
        e["hs"] = linear(e.src.x, W[e.etype])
        e["t"] = dot_prd(e.dst.y, q[e.etype])
        e["c"] = tanh(e["t"] * 2.0)
        e["s"] = e["hs"] * e["c"]
    return s
"""


def test_values_of_one_end_point_go_to_its_pairs() -> None:
    assert rewritten(BOTH_SIDES, compacted) == (
        3,
        """for p in g.src_pairs():
    p["hs"] = linear(p.src["x"], W[p.etype])
for p in g.dst_pairs():
    p["t"] = dot_prd(p.dst["y"], q[p.etype])
for p in g.dst_pairs():
    p["c"] = tanh(p["t"] * 2.0)
for e in g.edges():
    e["s"] = e.src_pair["hs"] * e.dst_pair["c"]
return s""",
    )


def test_hector_knows_one_side() -> None:
    count, after = rewritten(BOTH_SIDES, hector)
    assert count == 1
    assert 'for p in g.src_pairs():\n    p["hs"]' in after
    assert 'for e in g.edges():\n    e["t"]' in after


def test_values_of_a_type_go_to_the_type() -> None:
    assert rewritten(
        """def p(g, x: NS[4], w: R[4], b: ONE[4], u: T[4]):
    for e in g.edges():
        e["a"] = tanh(w[e.etype])
        e["c"] = tanh(b)
        e["s"] = e.src.x * e["a"] + e["c"]
    for n in g.nodes():
        n["d"] = exp(u[n.ntype])
        n["z"] = n.x + n["d"]
    return s, z
""",
        compacted,
    ) == (
        3,
        """for r in g.edge_types():
    r["a"] = tanh(r["w"])
for o in g.once():
    o["c"] = tanh(o["b"])
for e in g.edges():
    e["s"] = e.src["x"] * a[e.etype] + c
for t in g.node_types():
    t["d"] = exp(t["u"])
for n in g.src_nodes():
    n["z"] = n["x"] + d[n.ntype]
return s, z""",
    )


def test_readers_go_the_whole_way() -> None:
    text = """def p(g, u: T[4], x: NS[4]):
    for n in g.src_nodes():
        n["d"] = exp(u[n.ntype])
    for e in g.edges():
        e["s"] = e.src.d * e.dst.x
    return s
"""
    assert rewritten(text, compacted)[1].endswith('e["s"] = d[e.src.ntype] * e.dst["x"]\nreturn s')


def test_pairs_go_further_to_the_type() -> None:
    text = """def p(g, w: R, x: NS):
    for p in g.src_pairs():
        p["a"] = exp(w[p.etype])
        p["y"] = p.src.x * p["a"]
    return y
"""
    assert rewritten(text, compacted)[1].startswith('for r in g.edge_types():\n    r["a"] = exp(r["w"])')


def test_end_types_belong_to_the_relation_where_it_joins_one_with_one() -> None:
    text = """def p(g, x: NS[4], w: R[4], u: T[4]):
    for e in g.edges():
        e["a"] = w[e.etype] * u[e.src.ntype] * u[e.dst.ntype]
        e["s"] = e.dst.x * e["a"]
    return s
"""
    count, after = rewritten(text, joined)
    assert count == 1
    assert after.startswith(
        'for r in g.edge_types():\n    r["a"] = r["w"] * u[r.src.ntype] * u[r.dst.ntype]\nfor e in g.edges():'
    )
    assert unchanged(text, compacted)


def test_equal_values_are_kept_once() -> None:
    count, after = rewritten(
        """def p(g, x: NS[4], W: R[4, 3]):
    for e in g.edges():
        e["a"] = linear(e.src.x, W[e.etype])
    for p in g.src_pairs():
        p["b"] = linear(p.src.x, W[p.etype])
    for e in g.edges():
        e["s"] = e["a"] * e.src_pair["b"]
    return s
""",
        compacted,
    )
    assert count == 1
    assert after.count("linear(") == 1
    assert 'e["s"] = e.src_pair["b"] * e.src_pair["b"]' in after or 'e.src_pair["a"] * e.src_pair["a"]' in after


def test_copies_are_read_where_they_come_from() -> None:
    count, after = rewritten(
        """def p(g, x: NS[4], f: E[4]):
    for e in g.edges():
        e["c"] = e.src.x
        e["s"] = e["c"] * e.f
    return s
""",
        hector,
    )
    assert after == 'for e in g.edges():\n    e["s"] = e.src["x"] * e["f"]\nreturn s'
    assert count == 1


@pytest.mark.parametrize(
    "lines",
    [
        # A result stays where it was asked for.
        'e["a"] = exp(e.src.x); return a',
        # Both end points, or the edge itself.
        'e["a"] = e.src.x * e.dst.x; e["s"] = exp(e["a"]); return s',
        'e["a"] = e.src.x * e.f; e["s"] = exp(e["a"]); return s',
        # A sum over edges is no value of an edge.
        'e.src["a"] += e.src.x; return a',
        # A pair and an end point of the other side.
        'e["a"] = e.src_pair["u"] * e.dst.x; e["s"] = exp(e["a"]); return s',
        # What scales a product is a value of its own rows.
        'e["a"] = tanh(e.dst.f4); e.src["s"] += e["a"] * linear(e.dst.x, W[e.etype]); return s',
    ],
)
def test_what_stays(lines: str) -> None:
    *body, result = lines.split("; ")
    text = "def p(g, x: NS[4], f: E[4], u: U[4], f4: ND, W: R[4, 3]):\n    for e in g.edges():\n"
    assert unchanged(text + "\n".join(f"        {line}" for line in body) + f"\n    {result}\n", joined)


def test_rows_of_destinations_among_the_sources_stay() -> None:
    """Rows of the other sources are 0, not the value of their type."""
    assert unchanged(
        """def p(g, x: NS[4], u: T[4]):
    for n in g.dst_nodes():
        n.src["a"] = tanh(u[n.ntype])
    for e in g.edges():
        e["y"] = e.src.a * e.src.x
    return y
""",
        compacted,
    )


def test_copies_of_weights_in_another_shape_stay() -> None:
    """A product takes weights in the shape that they have."""
    assert unchanged(
        """def p(g, x: NS[4], W: R[3, 4]):
    for r in g.edge_types():
        r["B"] = reshape(r["W"], 4, 3)
    for e in g.edges():
        e["y"] = linear(e.src.x, B[e.etype])
    return y
""",
        compacted,
    )


def test_runs_before_fusion() -> None:
    sdfg = parse(BOTH_SIDES)
    assert TraversalFusion().run(sdfg, Context()) > 0
    with pytest.raises(ProgramError, match="runs before traversal_fusion"):
        CompactMaterialization().run(sdfg, Context())


def test_scaled_products_may_come_first() -> None:
    text = """def p(g, x: NS[4], W: R[4, 3], f: E):
    for e in g.edges():
        e["a"] = sigmoid(e.f)
        e["m"] = linear(e.src.x, W[e.etype])
        e.dst["s"] += e["a"] * e["m"]
    return s
"""
    assert rewritten(text, lambda sdfg: GemmScaleFusion().run(sdfg, Context()) + compacted(sdfg))[0] == 1

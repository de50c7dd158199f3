"""Aggregation order: both orders on both sides, chosen by the sizes of the graph."""

from __future__ import annotations

import dace
import pytest

from dacergnn import Config
from dacergnn.program import parse
from dacergnn.sdfg_passes import compile_program
from dacergnn.sdfg_passes.aggregation_order import AggregationOrder
from tests.support.rewrites import Rewrite, on_graph, rewritten, unchanged

HUGE, TINY = 900_000, 1_000


def ordered(*wrt: str, **rows: int) -> Rewrite:
    return on_graph(AggregationOrder(wrt=wrt), **rows)


TRANSFORMED = """def p(g, x: NS[64], W: R[64, 64], a: E):
    for p in g.src_pairs():
        p["m"] = linear(p.src.x, W[p.etype])
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["out"] += e.a * e.src_pair["m"]
    return out
"""


ON_EDGES = """for n in g.dst_nodes():
    for e in n.incoming_edges():
        n["out"] += e["a"] * linear(e.src["x"], W[e.etype])
return out"""
THROUGH_PAIRS = """for p in g.dst_pairs():
    for e in p.incoming_edges():
        p["sum"] += e["a"] * e.src["x"]
for p in g.dst_pairs():
    p.dst["out"] += linear(p["sum"], W[p.etype])
return out"""


def test_sums_are_transformed_where_they_are_fewer() -> None:
    """By the kernel, which sums what shares a destination and a type, or as a step of its own."""
    assert rewritten(TRANSFORMED, ordered(U=HUGE, V=TINY)) in ((1, ON_EDGES), (2, THROUGH_PAIRS))
    assert unchanged(TRANSFORMED, ordered(U=TINY, V=HUGE))


def test_rows_are_transformed_where_they_are_fewer() -> None:
    text = """def p(g, x: NS[2, 32], W: R[2, 32, 32], a: E[2]):
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["out"] += e.a * linear(e.src.x, W[e.etype])
    return out
"""
    assert rewritten(text, ordered(U=TINY, V=HUGE)) == (
        1,
        """for p in g.src_pairs():
    p["rows"] = linear(p.src["x"], W[p.etype])
for n in g.dst_nodes():
    for e in n.incoming_edges():
        n["out"] += e["a"] * e.src_pair["rows"]
return out""",
    )
    assert unchanged(text, ordered(U=HUGE, V=TINY))


def test_mirror_for_sums_at_sources() -> None:
    text = """def p(g, x: NS[64], W: R[64, 64], a: E):
    for p in g.dst_pairs():
        p["m"] = linear(p.dst.x, W[p.etype])
    for e in g.edges():
        e.src["out"] += e.a * e.dst_pair["m"]
    return out
"""
    count, after = rewritten(text, ordered(U=TINY, V=HUGE))
    assert count >= 1
    assert "linear(p.dst" not in after
    assert unchanged(text, ordered(U=HUGE, V=TINY))


WEIGHTS = """def p(g, x: NS[64], y: ND[64], a: E):
    for e in g.edges():
        D[e.etype] += e.a * outer_prod(e.src.x, e.dst.y)
    return D
"""


def test_outer_products_through_the_pairs_of_sources() -> None:
    assert rewritten(WEIGHTS, ordered(U=TINY, V=HUGE)) == (
        1,
        """for p in g.src_pairs():
    for e in p.outgoing_edges():
        p["sum"] += e["a"] * e.dst["y"]
for p in g.src_pairs():
    D[p.etype] += outer_prod(p.src["x"], p["sum"])
return D""",
    )
    assert "src_pairs" not in rewritten(WEIGHTS, ordered(U=HUGE, V=TINY))[1]
    assert unchanged(WEIGHTS.replace("e.a * ", ""), ordered(U=HUGE, V=HUGE, E=HUGE))


def test_sums_per_head_go_to_the_rows_of_pairs() -> None:
    text = """def p(g, x: NS[2, 32], W: R[2, 32, 32], a: E[2]):
    for e in g.edges():
        e.src_pair["out"] += e.a * linear(e.dst.x, W[e.etype])
    return out
"""
    assert rewritten(text, ordered(U=TINY, V=HUGE)) == (
        1,
        """for p in g.src_pairs():
    for e in p.outgoing_edges():
        p["sum"] += e["a"] * e.dst["x"]
for p in g.src_pairs():
    p["out"] = linear(p["sum"], W[p.etype])
return out""",
    )
    text = text.replace("e.src_pair", "e.dst_pair").replace("e.dst.x", "e.src.x")
    count, after = rewritten(text, ordered(U=HUGE, V=TINY))
    assert count == 1
    assert 'p["sum"] += e["a"] * e.src["x"]' in after
    assert unchanged(text, ordered(U=TINY, V=HUGE))


def test_equal_sums_are_formed_once() -> None:
    text = """def p(g, x: NS[64], z: NS[64], y: ND[64], a: E):
    for e in g.edges():
        D[e.etype] += e.a * outer_prod(e.src.x, e.dst.y)
        F[e.etype] += e.a * outer_prod(e.src.z, e.dst.y)
    return D, F
"""
    count, after = rewritten(text, ordered(U=TINY, V=HUGE))
    assert count == 2
    assert after.count("+= e[") == 1


@pytest.mark.parametrize(
    "lines",
    [
        # Not linear.
        'e.dst["out"] = max(e.dst["out"], e.src_pair["m"]); return out',
        # One factor for each feature.
        'e.dst["out"] += e.f * e.src_pair["m"]; return out',
        # The sum reaches the same pairs anyway.
        'e.src["out"] += e.a * e.src_pair["m"]; return out',
        # Weights by the type of the source differ within a pair of the destination.
        'e.dst["out"] += e.a * e.src_pair["k"]; return out',
        # A row of the edge is no row of a pair.
        "D[e.etype] += outer_prod(e.f, e.f); return D",
    ],
)
def test_what_stays(lines: str) -> None:
    *body, result = lines.split("; ")
    weights = "K[p.src.ntype]" if '"k"' in lines else "W[p.etype]"
    product = f"""    for p in g.src_pairs():
        p["{"k" if '"k"' in lines else "m"}"] = linear(p.src.x, {weights})
"""
    text = f"""def p(g, x: NS[64], W: R[64, 64], K: T[64, 64], a: E, f: E[64]):
{product if "src_pair" in lines else ""}    for e in g.edges():
"""
    text += "".join(f"        {line}\n" for line in body) + f"    {result}\n"
    for rows in ({"U": TINY, "V": HUGE}, {"U": HUGE, "V": TINY}):
        assert unchanged(text, ordered(**rows))


FEW = HUGE // 10
PARTED = {"U": HUGE, "V": HUGE, "Es": HUGE, "Us": FEW, "Vs": HUGE, "Ed": HUGE, "Ud": HUGE, "Vd": FEW}
SCALE = """for e in g.edges_d():
    e["a_2"] = e.edge["a"]
"""
BY_RELATION = f"""{SCALE}for p in g.src_pairs_s():
    p["rows"] = linear(p.src["x"], W[p.etype])
for n in g.dst_nodes():
    for e in n.incoming_edges_s():
        n["out_1"] += e.edge["a"] * e.src_pair["rows"]
"""
IN_THE_KERNEL = """for n in g.dst_nodes():
    for e in n.incoming_edges_d():
        n["out_2"] += e["a_2"] * linear(e.src["x"], W[e.etype])
for n in g.dst_nodes():
    n["out"] = n["out_1"] + n["out_2"]
return out"""
KEPT_FOR_GRADIENTS = """for p in g.dst_pairs_d():
    for e in p.incoming_edges_d():
        p["sum"] += e.edge["a"] * e.src["x"]
for p in g.dst_pairs_d():
    p.dst["out_2"] += linear(p["sum"], W[p.etype])
for n in g.dst_nodes():
    n["out"] = n["out_1"] + n["out_2"]
return out"""


@pytest.mark.parametrize(
    ("wrt", "expected"),
    [
        ((), BY_RELATION + IN_THE_KERNEL),
        (("x", "W"), BY_RELATION.removeprefix(SCALE) + KEPT_FOR_GRADIENTS),
    ],
    ids=["inference", "training"],
)
def test_each_part_of_the_relations_has_its_order(wrt: tuple[str, ...], expected: str) -> None:
    """Sums of pairs that gradients read again are kept, so that nothing is gathered twice."""
    count, text = rewritten(TRANSFORMED, ordered(*wrt, **PARTED))
    assert count > 0
    assert text == expected


def test_parts_without_edges_change_nothing() -> None:
    assert unchanged(TRANSFORMED, ordered(**PARTED | {"U": TINY, "Ed": 0}))


WITH_CONSTANTS = """def p(g, x: NS[64], W: R[64, 64], b: R[64], a: E):
    for p in g.src_pairs():
        p["m"] = linear(p.src.x, W[p.etype])
        p["mb"] = p["m"] + b[p.etype]
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["out"] += e.a * e.src_pair["mb"]
    return out
"""


def test_constants_of_a_type_are_summed_by_their_factors() -> None:
    count, text = rewritten(WITH_CONSTANTS, ordered(U=HUGE, V=TINY))
    assert count > 0
    assert (
        text
        == """for n in g.dst_nodes():
    for e in n.incoming_edges():
        n["out_1"] += e["a"] * linear(e.src["x"], W[e.etype])
for p in g.dst_pairs():
    for e in p.incoming_edges():
        p["a_1"] += e["a"]
for p in g.dst_pairs():
    p.dst["out_2"] += p["a_1"] * b[p.etype]
for n in g.dst_nodes():
    n["out"] = n["out_1"] + n["out_2"]
return out"""
    )
    assert unchanged(WITH_CONSTANTS, ordered(U=TINY, V=HUGE))


def test_constants_join_the_rows_or_the_sums_by_relation() -> None:
    count, text = rewritten(WITH_CONSTANTS, ordered("x", "W", "b", **PARTED))
    assert count > 0
    assert (
        text
        == """for p in g.src_pairs_s():
    p["rows"] = linear(p.src["x"], W[p.etype])
for p in g.src_pairs_s():
    p["rows_1"] = p["rows"] + b[p.etype]
for n in g.dst_nodes():
    for e in n.incoming_edges_s():
        n["out_1"] += e.edge["a"] * e.src_pair["rows_1"]
for p in g.dst_pairs_d():
    for e in p.incoming_edges_d():
        p["sum"] += e.edge["a"] * e.src["x"]
for p in g.dst_pairs_d():
    p.dst["out_2"] += linear(p["sum"], W[p.etype])
for p in g.dst_pairs_d():
    for e in p.incoming_edges_d():
        p["a_2_1"] += e.edge["a"]
for p in g.dst_pairs_d():
    p.dst["out_3"] += p["a_2_1"] * b[p.etype]
for n in g.dst_nodes():
    n["out"] = n["out_1"] + n["out_2"] + n["out_3"]
return out"""
    )


@pytest.mark.parametrize("heads", [1, 2])
def test_rows_with_a_constant_in_another_shape_are_summed_as_they_are(heads: int) -> None:
    text = f"""def p(g, x: NS[64], W: R[64, 64], b: R[64], a: E[{heads}]):
    for e in g.edges():
        e["h"] = reshape(linear(e.src.x, W[e.etype]) + b[e.etype], {heads}, {64 // heads})
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["s"] += e.a * e["h"]
        n["out"] = reshape(n["s"], 64)
    return out
"""
    plan = compile_program(parse(text), ["x", "W", "b", "a"], Config(), dace.int32)
    assert plan.backward is not None


def test_products_with_a_factor_of_pairs_stay() -> None:
    text = TRANSFORMED.replace("a: E", "a: E, s: U").replace("linear(p.src", "p.s * linear(p.src")
    for rows in ({"U": TINY, "V": HUGE}, {"U": HUGE, "V": TINY}):
        assert unchanged(text, ordered(**rows))

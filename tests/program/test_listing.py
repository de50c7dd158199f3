"""Listings: from an SDFG and back, and what settling does to copies, equal values and dead ones."""

from __future__ import annotations

import pytest

from dacergnn import parse
from dacergnn.errors import ProgramError
from dacergnn.library_nodes.form import Op, Ref, Statement
from dacergnn.library_nodes.plan import Rows
from dacergnn.program import Program, verify
from dacergnn.program.listing import Listing, map_refs, rebase
from dacergnn.sdfg_passes import Context
from dacergnn.sdfg_passes.traversal_fusion import TraversalFusion
from tests.program.golden import PROGRAMS, parsed
from tests.support.rewrites import assert_equal, loops


def settled(text: str) -> str:
    """The loops of a program after `settle`, which changes no value."""
    before, after = parse(text), parse(text)
    listing = Listing.of(after)
    listing.settle()
    listing.write(after)
    verify(after)
    after.validate()
    assert_equal(before, after)
    return loops(after)


def edges(body: str, result: str) -> str:
    lines = "".join(f"        {line}\n" for line in body.split("; "))
    head = "def p(g, x: NS[4], y: NS[4], f: E[4], W: R[4, 3], one: E[1], k: U):\n    for e in g.edges():\n"
    return f"{head}{lines}    return {result}\n"


@pytest.mark.parametrize("name", PROGRAMS)
def test_back_into_the_program(name: str) -> None:
    sdfg = parsed(name)
    before, arguments = loops(sdfg), list(sdfg.arg_names)
    listing = Listing.of(sdfg)
    assert (listing.inputs, listing.outputs) == (tuple(Program(sdfg).inputs), tuple(Program(sdfg).outputs))
    listing.write(sdfg)
    sdfg.validate()
    assert loops(sdfg) == before
    assert sdfg.arg_names == arguments


def test_fused_operators_have_no_listing() -> None:
    sdfg = parsed("rgat")
    TraversalFusion().run(sdfg, Context())
    with pytest.raises(ProgramError, match="is fused; this pass runs before traversal_fusion"):
        Listing.of(sdfg)


def test_a_copy_of_a_listing_is_independent() -> None:
    listing = Listing.of(parsed("rgcn"))
    other = listing.copy()
    other.add("new", "E", (3,))
    other.exchange(other.statements[0])
    assert len(listing.statements) == len(other.statements) + 1
    assert "new" not in listing.arrays


def test_names_stay_unique() -> None:
    listing = Listing.of(parsed("rgcn"))
    assert listing.add("msg", "U", ()) == "msg_1"
    assert listing.add("msg", "U", ()) == "msg_2"
    assert listing.add("E", "U", ()) == "E_", "the name of a row space"
    assert listing.arrays["msg_1"] == Rows("U", ())


def test_questions() -> None:
    listing = Listing.of(parsed("rgcn"))
    message = listing.statements[0]
    assert listing.producer("msg") is message
    assert listing.producer("x") is None
    assert [s.target.name for s in listing.consumers("msg")] == ["out"]
    assert listing.space("norm") == "E"
    assert listing.shape(Ref("root", "one")) == (64, 64)
    assert listing.shape(Ref("bias", "one", (8, 8))) == (8, 8)
    assert [listing.is_internal(n) for n in ("msg", "x", "out_2")] == [True, False, False]


# Settling


def test_copies_are_forwarded() -> None:
    after = settled(edges('e["a"] = e.src.x; e["b"] = e["a"]; e["s"] = e["b"] * e.f', "s"))
    assert after == 'for e in g.edges():\n    e["s"] = e.src["x"] * e["f"]\nreturn s'


def test_copies_through_two_maps_are_forwarded() -> None:
    text = """def p(g, x: NS[4], u: T[4]):
    for n in g.src_nodes():
        n["a"] = u[n.ntype]
    for p in g.src_pairs():
        p["b"] = p.src.a
    for e in g.edges():
        e["s"] = e.src_pair["b"] * e.src.a
    return s
"""
    assert settled(text) == 'for e in g.edges():\n    e["s"] = u[e.src.ntype] * u[e.src.ntype]\nreturn s'


def test_views_of_copies_stay_views() -> None:
    after = settled(edges('e["a"] = e["one"]; e["s"] = reshape(e["a"]) * e.f', "s"))
    assert 'e["s"] = reshape(e["one"]) * e["f"]' in after
    after = settled(
        edges('e["a"] = reshape(e.src.x, 2, 2); e["b"] = exp(e["a"]); e["s"] = reshape(e["b"], 4) * e.f', "s")
    )
    assert 'e["b"] = exp(reshape(e.src["x"], 2, 2))' in after


@pytest.mark.parametrize(
    "text",
    [
        # A result.
        edges('e["a"] = e.src.x', "a"),
        # The scale of a product is a value of its rows.
        edges('e["c"] = e.src_pair["k"]; e.dst["s"] += e["c"] * linear(e.src.x, W[e.etype])', "s"),
        # Weights of a product have the shape that they are declared with.
        """def p(g, x: NS[4], M: R[3, 4]):
    for r in g.edge_types():
        r["B"] = reshape(r["M"], 4, 3)
    for e in g.edges():
        e["y"] = linear(e.src.x, B[e.etype])
    return y
""",
        # Rows of destinations among those of the sources: the others are 0.
        """def p(g, x: NS[4], y: ND[4]):
    for n in g.dst_nodes():
        n.src["a"] = n.y
    for e in g.edges():
        e["s"] = e.src.a * e.src.x
    return s
""",
    ],
)
def test_copies_that_stay(text: str) -> None:
    assert settled(text) == loops(parse(text))


def test_equal_values_are_merged_and_what_follows_from_them() -> None:
    twice = 'e["a"] = exp(e.src.x); e["b"] = exp(e.src.x); e["c"] = tanh(e["a"]); e["d"] = tanh(e["b"])'
    after = settled(edges(f'{twice}; e["s"] = e["c"] * e["d"]', "s"))
    assert after.count("exp(") == after.count("tanh(") == 1


def test_results_are_not_merged() -> None:
    after = settled(edges('e["a"] = exp(e.src.x); e["b"] = exp(e.src.x)', "a, b"))
    assert after.count("exp(") == 2


def test_equal_sums_to_different_rows_are_two() -> None:
    text = """def p(g, f: E[4]):
    for n in g.nodes():
        for e in n.incoming_edges():
            n["a"] += e.f
        for e in n.outgoing_edges():
            n["b"] += e.f
        n["s"] = n["a"] - n["b"]
    return s
"""
    assert settled(text).count("+=") == 2


def test_a_sum_and_a_maximum_are_two() -> None:
    text = edges('e.src["a"] += e.f; e.src["b"] = max(e.src["b"], e.f); e["s"] = e.src["a"] * e.src["b"]', "s")
    after = settled(text)
    assert after.count("+=") == after.count("max(") == 1


def test_equal_sums_over_different_rows_are_two() -> None:
    text = """def p(g, f: ND[4]):
    for e in g.edges():
        e.dst["edges"] += 1.0
    for v in g.dst_pairs():
        v.dst["relations"] += 1.0
    for n in g.dst_nodes():
        n["s"] = n["edges"] - n["relations"] * n.f
    return s
"""
    assert settled(text).count("+=") == 2


def test_dead_values_go() -> None:
    after = settled(edges('e["a"] = exp(e.src.x); e["b"] = tanh(e["a"]); e["s"] = e.f + 1.0', "s"))
    assert after == 'for e in g.edges():\n    e["s"] = e["f"] + 1.0\nreturn s'


def test_statements_follow_their_data() -> None:
    listing = Listing.of(parse(edges('e["a"] = exp(e.src.x); e["s"] = e["a"] * e.f', "s")))
    listing.statements.reverse()
    listing.settle()
    assert [s.target.name for s in listing.statements] == ["a", "s"]


def test_a_circle_has_no_order() -> None:
    listing = Listing.of(parse(edges('e["a"] = exp(e.src.x); e["s"] = e["a"] * e.f', "s")))
    listing.statements[0] = Statement("E", Ref("a"), "=", Op("exp", (Ref("s"),)))
    with pytest.raises(ProgramError, match='"a" depends on itself'):
        listing.settle()


# Expressions


def test_rebase() -> None:
    expr = Op("linear", (Ref("x", "src"), Ref("W", "etype")))
    assert rebase(expr, "E", "srcpair") == expr
    assert rebase(expr, "E", "dstpair") is None
    assert rebase(Op("exp", (Ref("m", "srcpair"),)), "E", "srcpair") == Op("exp", (Ref("m"),))
    assert rebase(Op("exp", (Ref("u", "srctype"),)), "E", "src") == Op("exp", (Ref("u", "ntype"),))
    assert rebase(Op("exp", (Ref("f"),)), "E", "srcpair") is None


def test_map_refs_keeps_the_rest() -> None:
    expr = Op("slice", (Op("mul", (Ref("a"), Ref("b", "src"))),), (1, 2))
    renamed = Op("slice", (Op("mul", (Ref("c"), Ref("c", "src"))),), (1, 2))
    assert map_refs(expr, lambda ref: Ref("c", ref.path)) == renamed

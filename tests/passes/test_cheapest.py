"""Choices by the price of the whole program: what is shared, what the sizes of a graph flip, and many sites at once."""

from __future__ import annotations

from dataclasses import replace

import dace
import pytest

from dacergnn import Config, Rates, parse
from dacergnn.config import TYPICAL_RATES
from dacergnn.errors import DacergnnError
from dacergnn.graph.profile import Profile
from dacergnn.library_nodes.form import Const, Op, Ref, Statement
from dacergnn.program.listing import Listing
from dacergnn.sdfg_passes import Compilation, cheapest, compile_program
from dacergnn.sdfg_passes.cheapest import Option, Price, choose
from dacergnn.sdfg_passes.listing_cost import listing_cost, listing_seconds
from dacergnn.sdfg_passes.questions import Questions
from tests.program.golden import bare, learned, parsed
from tests.support.rewrites import sizes

ORDERS = ("linear_operator_reordering", "propagation_postponing", "compact_materialization", "aggregation_order")
MANY_SOURCES, MANY_DESTINATIONS = {"U": 900_000, "V": 2_000}, {"U": 2_000, "V": 900_000}


def listing(body: str, result: str) -> Listing:
    head = "def p(g, x: NS[64], y: NS[64], W: R[64, 64], a: E, b: E, z: V[64], Z: RNS[64]):\n    for e in g.edges():\n"
    lines = "".join(f"        {line}\n" for line in body.split("; "))
    return Listing.of(parse(f"{head}{lines}    return {result}\n"))


def ordered(name: str, **rows: int) -> Compilation:
    profile = Profile(tuple(sizes(**rows).items()), single_typed=True)
    return compile_program(parsed(name), learned(name), Config(passes=ORDERS), dace.int32, profile, keep=False)


def typical_price(**rows: int) -> Price:
    return lambda found: listing_seconds(found, sizes(**rows), TYPICAL_RATES["cpu"])


# Prices


def test_a_row_is_gathered_once_by_loops_that_can_fuse() -> None:
    alone = listing('e.dst["s"] += e.a * e.src.x', "s")
    both = listing('e.dst["s"] += e.a * e.src.x; e.dst["t"] += e.b * e.src.x', "s, t")
    sides = listing('e.dst["s"] += e.a * Z[e.etype, e.src]; e.src["t"] += e.b * Z[e.etype, e.src]', "s, t")
    own = listing('e.src["s"] += e.a * e.src.x', "s")
    rows = sizes()
    once, value = rows["E"] * 64 * 4, rows["E"] * 4
    assert listing_cost(alone, rows).gathered == once + value
    assert listing_cost(both, rows).gathered == once + 2 * value
    assert listing_cost(sides, rows).gathered == 2 * (once + value)
    assert listing_cost(own, rows).gathered == value


def test_values_of_edges_are_gathered_where_loops_visit_edges_in_another_order() -> None:
    by_destination = listing('e.dst["s"] += e.a * e.src.x', "s")
    by_source = listing('e.src["s"] += e.a * e.dst.x', "s")
    rows, typed = sizes(R=1), sizes(R=2)
    assert listing_cost(by_destination, rows).rows == rows["E"]
    assert listing_cost(by_source, rows).rows == 2 * rows["E"]
    assert listing_cost(by_destination, typed).rows == 2 * rows["E"], "edges stand by type, then destination"


def test_rows_of_pairs_are_looked_for_once_each() -> None:
    by_destination = listing('e.dst["s"] += e.a * e.dst_pair.z', "s")
    by_pair = listing('e.dst_pair["s"] += e.a * e.dst_pair.z', "s")
    typed = sizes(R=2)
    assert listing_cost(by_destination, typed).rows == typed["V"] + typed["E"], "and the values of edges"
    assert listing_cost(by_pair, typed).rows == 0


def test_values_that_merged_loops_keep_cost_nothing() -> None:
    softmax = 'e["w"] = exp(e.a); e.dst["t"] += e["w"]; e["v"] = e["w"] / e.dst["t"]; e.dst["s"] += e["v"] * e.src.x'
    inside, returned = listing(softmax, "s"), listing(softmax, "s, v")
    rows = sizes(R=2)
    written = listing_cost(returned, rows) - listing_cost(inside, rows)
    assert written.rows == rows["E"], "in the order of destinations"
    assert written.streamed == 2 * rows["E"] * 4, "and read"


def test_rows_that_memory_has_are_summed_once_for_both_gradients() -> None:
    """With tables beyond the cache, sums of pairs that two gradients share are worth an array; else they are not."""
    am = {"NS": 1_885_136, "ND": 1_885_136, "E": 5_668_682, "U": 3_231_148, "V": 3_231_148}
    parts = {"Es": 2_834_341, "Us": 1_455_204, "Vs": 1_775_944, "Ed": 2_834_341, "Ud": 1_775_944, "Vd": 1_455_204}
    for scale in (1, 100):
        backward = bare(ordered("rgcn", **{space: rows // scale for space, rows in (am | parts).items()}).backward)
        shared = '        grad_W[p.etype] += outer_prod(p.src["x"], p["grad_msg"])' in backward
        assert shared == (scale == 1)


def test_equal_computations_are_paid_once() -> None:
    """A rewrite that forms what another forms too costs nothing more."""
    found = listing("D[e.etype] += outer_prod(e.src.x, e.dst.y); F[e.etype] += outer_prod(e.src.y, e.dst.y)", "D, F")

    def through_sums(statement: Statement, operand: str) -> Option:
        def apply(candidate: Listing) -> None:
            name = candidate.add("sum", "U", (64,))
            candidate.exchange(
                statement,
                Statement("E", Ref(name, "srcpair"), "+=", Ref("y", "dst")),
                Statement("U", statement.target, "+=", Op("outer_prod", (Ref(operand, "src"), Ref(name)))),
            )

        return Option("through_sums", apply)

    sites = {s.target.name: [through_sums(s, y)] for s, y in zip(found.statements, ("x", "y"), strict=True)}
    best, taken = choose(found, sites, typical_price(**MANY_DESTINATIONS), Questions())
    assert taken == 2
    assert [s.space for s in best.statements].count("E") == 1


def test_two_that_pay_together_only() -> None:
    """Neither rewrite is worth its sum alone; both share it."""
    found = listing('e.dst["s"] += e.a * e.src.x; e.dst["t"] += e.b * e.src.x', "s, t")

    def by(name: str) -> Option:
        return Option("both", lambda candidate: _put(candidate, name, "both"))

    def price(candidate: Listing) -> float:
        targets = [s.target.name for s in candidate.statements]
        return 3.0 * ("both" in targets) + 2.0 * sum(s.expr != Ref("both") for s in candidate.statements if _is(s))

    def _is(statement: Statement) -> bool:
        return statement.target.name in ("s", "t")

    best, taken = choose(found, {"s": [by("s")], "t": [by("t")]}, price, Questions())
    assert taken == 2
    assert price(best) == 3.0


def _put(candidate: Listing, name: str, shared: str) -> None:
    """Let a result read a shared array, which is formed with the first reader."""
    old = candidate.producer(name)
    assert old is not None
    new = Statement("ND", Ref(name), "=", Ref(shared))
    if shared in candidate.arrays:
        candidate.exchange(old, new)
    else:
        candidate.add(shared, "ND", (64,))
        candidate.exchange(old, Statement("E", Ref(shared, "dst"), "+=", Ref("x", "src")), new)


@pytest.mark.parametrize("most", [1, 1024])
def test_one_after_the_other_beyond_a_limit(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Independent sites come out the same; at most one option of a site is taken."""
    monkeypatch.setattr(cheapest, "MOST_COMBINATIONS", most)
    found = listing('e["s"] = exp(e.a); e["t"] = exp(e.b); e["u"] = exp(e.a + e.b)', "s, t, u")

    def to(name: str, value: float) -> Option:
        statement = next(s for s in found.statements if s.target.name == name)
        return Option(str(value), lambda listing: listing.exchange(statement, replace(statement, expr=Const(value))))

    def price(candidate: Listing) -> float:
        return sum(s.expr.value if isinstance(s.expr, Const) else 2.0 for s in candidate.statements)

    sites = {"s": [to("s", v) for v in (1.0, 0.5, 0.7)], "t": [to("t", 3.0)], "u": [to("u", v) for v in (1.5, 1.75)]}
    best, taken = choose(found, sites, price, Questions())
    assert taken == 2
    assert [s.expr for s in best.statements if isinstance(s.expr, Const)] == [Const(0.5), Const(1.5)]


def test_nothing_cheaper_leaves_the_listing() -> None:
    found = listing('e["s"] = exp(e.a)', "s")
    nothing = Option("nothing", lambda candidate: None)
    assert choose(found, {"s": [nothing]}, typical_price(), Questions()) == (found, 0)


# Models


def test_rgcn_multiplies_the_side_with_fewer_pairs() -> None:
    plan = ordered("rgcn", **MANY_SOURCES)
    # Over edges, where the kernel sums what shares a destination and a type, or over those pairs.
    assert not [line for line in bare(plan.forward) if "src_pairs" in line]
    assert not [line for line in bare(plan.backward) if "outer_prod(p.src" in line]
    plan = ordered("rgcn", **MANY_DESTINATIONS)
    assert '        p["msg"] = linear(p.src["x"], W[p.etype])' in bare(plan.forward)
    assert '        grad_W[p.etype] += outer_prod(p.src["x"], p["grad_msg"])' in bare(plan.backward)


def test_rgat_folds_the_score_of_the_side_with_more_pairs() -> None:
    """Messages need x W at the source pairs in any case; few of them are read again, many are not."""
    shared = '        p["tmp_1"] = dot_prd(p["hs"], k)'
    few, many = ordered("rgat", **MANY_DESTINATIONS), ordered("rgat", **MANY_SOURCES)
    for plan in (few, many):
        assert '        r["W_q"] = compose(r["W"], reshape(q, 2, 32, 1))' in bare(plan.forward)
        assert '        p["hs"] = reshape(linear(p.src["x"], W[p.etype]), 2, 32)' in bare(plan.forward)
    assert shared in bare(few.forward)
    assert shared not in bare(many.forward)


def test_hgt_moves_the_weights_of_the_logit_to_the_side_with_fewer_pairs() -> None:
    plan = ordered("hgt", **MANY_SOURCES)
    assert '        r["W_q_W_att"] = compose(W_q[r.dst.ntype], r["W_att"].T)' in bare(plan.forward)
    assert '        p["q_1"] = reshape(linear(p.dst["x"], W_q_W_att[p.etype]), 2, 32)' in bare(plan.forward)
    plan = ordered("hgt", **MANY_DESTINATIONS)
    assert '        r["W_k_W_att"] = compose(W_k[r.src.ntype], r["W_att"])' in bare(plan.forward)
    assert not [line for line in bare(plan.forward) if "W_q_W_att" in line]


def test_the_rates_of_the_machine_choose() -> None:
    """Summing first saves products and costs additions out of order: worth it where products are slow."""
    found = []
    for flops in (1e9, 1e15):
        config = Config(passes=ORDERS, rates=Rates(flops, 2e10, 3e10, 1e12))
        rows = sizes(E=100_000, U=52_000, V=50_000)
        plan = compile_program(parsed("rgcn"), (), config, dace.int32, Profile(tuple(rows.items()), single_typed=True))
        found.append(any("src_pairs" in line for line in bare(plan.forward)))
    assert found == [False, True]


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan")])
def test_rates_that_no_machine_has(rate: float) -> None:
    with pytest.raises(DacergnnError, match=rf"^rates: gathered={rate}; pass what the machine does in a second"):
        Rates(1e11, 2e10, rate, 4e8)

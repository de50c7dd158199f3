"""A given order of products and sums over edges, whatever it costs, and the gradients that follow from it."""

from __future__ import annotations

import dace
import pytest

from dacergnn import Config, parse
from dacergnn.errors import DacergnnError
from dacergnn.program.listing import Listing
from dacergnn.sdfg_passes import compile_program
from dacergnn.sdfg_passes.aggregation_order import AggregationOrder
from tests.passes.test_aggregation_order import HUGE, ON_EDGES, THROUGH_PAIRS, TINY, TRANSFORMED
from tests.passes.test_node_orders import CONVOLUTION, MEAN, widths
from tests.support.rewrites import Rewrite, on_graph, rewritten, unchanged


def given(order: str, **rows: int) -> Rewrite:
    return on_graph(AggregationOrder(order), **rows or {"E": HUGE})


@pytest.mark.parametrize(("m", "k"), [(4, 8), (8, 4)])
def test_products_of_nodes(m: int, k: int) -> None:
    assert unchanged(widths(m, k), given("transform_first"))
    count, after = rewritten(widths(m, k), given("aggregate_first"))
    assert count == 1
    assert after.endswith('    n["out"] = linear(n["sum"], W)\nreturn out')
    assert unchanged(widths(m, k, MEAN), given("aggregate_first"))
    count, after = rewritten(widths(m, k, MEAN), given("transform_first"))
    assert count == 1
    assert after.startswith('for n in g.src_nodes():\n    n["rows"] = linear(n["x"], W)')


def test_products_of_pairs() -> None:
    rows = {"U": TINY, "V": HUGE}
    assert unchanged(TRANSFORMED, given("transform_first", **rows))
    assert rewritten(TRANSFORMED, given("aggregate_first", **rows)) in ((1, ON_EDGES), (2, THROUGH_PAIRS))
    text = f"{TRANSFORMED.splitlines()[0]}\n" + "\n".join(f"    {line}" for line in ON_EDGES.splitlines())
    count, after = rewritten(text, given("transform_first", U=HUGE, V=TINY))
    assert count == 1
    assert 'e.src_pair["rows"]' in after


@pytest.mark.parametrize(
    ("order", "saved", "forward", "backward"),
    [("transform_first", [], "out", "grad_h"), ("aggregate_first", ["sum"], "sum", "grad_x")],
)
def test_gradients_follow_from_the_order(order: str, saved: list[str], forward: str, backward: str) -> None:
    """Table 2: the gradients of both orders take one sum over edges, and those of sums need what was summed."""
    plan = compile_program(parse(widths(4, 4)), ["x", "W"], Config(aggregation=order), dace.int32)
    step = next(s for s in plan.steps if s.name == "cache_or_recompute")
    sums = {
        role: [s.target.name for s in Listing.of(sdfg).statements if s.space == "E"]
        for role, sdfg in step.sdfgs.items()
    }
    assert plan.saved == saved
    assert sums == {"forward": [forward], "backward": [backward]}


def test_an_unknown_order() -> None:
    with pytest.raises(
        DacergnnError, match=r"^aggregation='first' is not one of auto, transform_first, aggregate_first"
    ):
        Config(aggregation="first")


def test_the_cheapest_order_is_the_default() -> None:
    assert unchanged(widths(8, 4, CONVOLUTION), given("auto"))
    assert rewritten(widths(4, 8, CONVOLUTION), given("auto"))[0] == 1

"""Random layers, graphs and plans to learn from: all of them compile, and each is what its seed says."""

from __future__ import annotations

import random
from collections import Counter

import dace
import numpy as np
import pytest

from dacergnn import Config, HeteroGraph, Plan, parse
from dacergnn.graph.profile import TYPICAL, Profile
from dacergnn.program import Program
from dacergnn.program.listing import Listing
from dacergnn.sdfg_passes import Compilation, compile_program
from dacergnn.tuning import graphs, programs
from dacergnn.tuning.graphs import random_graph, random_specification
from dacergnn.tuning.programs import LEAST_DEPTH, MOST_LINES, random_layer
from dacergnn.tuning.space import neighbours, random_plans
from tests.support.computed import assert_same, compute

SEEDS = range(100)


def depth(listing: Listing) -> int:
    """Statements on the longest way from an input to the output."""
    found: dict[str, int] = {}
    for statement in listing.statements:
        found[statement.target.name] = 1 + max((found.get(r.name, 0) for r in statement.reads), default=0)
    return max(found[n] for n in listing.outputs)


def test_layers_are_realistic() -> None:
    """One output, deep enough, with a product or a score and a sum over neighbours; families differ."""
    families: Counter[str] = Counter()
    for seed in SEEDS:
        layer = random_layer(seed)
        listing = Listing.of(parse(layer.text))
        assert len(listing.outputs) == 1
        assert depth(listing) >= LEAST_DEPTH - 1, layer.text  # reshapes are no statements
        assert len(layer.text.splitlines()) <= MOST_LINES + 1, layer.text
        assert any(s.space == "E" and s.target.path == "dst" for s in listing.statements)
        assert {"x"} <= set(layer.learned) <= set(listing.inputs)
        families[layer.family] += 1
    assert len(families) >= 8
    products = [any(s.gemm for s in Listing.of(parse(random_layer(n).text)).statements) for n in range(20)]
    assert sum(products) >= 18


def test_seeds_decide() -> None:
    assert random_layer(7) == random_layer(7)
    assert len({random_layer(seed).text for seed in SEEDS}) == len(SEEDS)
    assert not any("etype" in random_layer(seed, relations=False).text for seed in range(30))
    assert random_specification(3) == random_specification(3) != random_specification(4)
    one, again = random_graph(1), random_graph(1)
    assert all(one.index("E", end).equal(again.index("E", end)) for end in ("src", "dst", "etype"))


def test_graphs_cover_the_ranges() -> None:
    drawn = [random_specification(seed) for seed in range(300)]
    least, most = graphs.EDGES
    assert min(s.edges for s in drawn) < 2 * least
    assert max(s.edges for s in drawn) > most / 2
    assert all(s.nodes >= 16 and 1 <= s.node_types <= s.edge_types for s in drawn)
    assert {random_specification(seed, single=True).edge_types for seed in range(30)} == {1}


def test_skew_makes_hubs(monkeypatch: pytest.MonkeyPatch) -> None:
    def largest(skew: float) -> int:
        monkeypatch.setattr(graphs, "SKEW", (skew, skew))
        return int(random_graph(4, single=True).index("E", "dst").bincount().max())

    assert largest(3.0) > 2 * largest(1.0)


@pytest.fixture(scope="module")
def small() -> HeteroGraph:
    rng = np.random.default_rng(0)
    return HeteroGraph.from_arrays(
        rng.integers(12, size=(2, 40)), rng.integers(3, size=40), num_nodes=12, num_edge_types=3,
        node_type=np.repeat([0, 1], 6), num_node_types=2,
    )  # fmt: skip


def arrays(sdfg: dace.SDFG, graph: HeteroGraph) -> dict[str, np.ndarray]:
    program, rng = Program(sdfg), np.random.default_rng(1)
    shapes = {n: (graph.sizes[program.space(n)], *program.shape(n)) for n in program.inputs}
    return {n: rng.uniform(-0.5, 0.5, shape) for n, shape in shapes.items()}


@pytest.mark.parametrize("seed", range(4))
def test_random_plans_give_the_same_results(seed: int, small: HeteroGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "WIDTHS", (4, 8))
    layer = random_layer(seed)
    sdfg = parse(layer.text, dtype=dace.float64)
    values = arrays(sdfg, small)

    def run(plan: Plan) -> Compilation:
        return compile_program(sdfg, layer.learned, Config(plan=plan), dace.int32, Profile.of(small), keep=False)

    found = list(random_plans(run, random.Random(seed), 5))
    assert found[0][0] == Plan()
    assert len({c.plan for _, c in found}) == len(found) >= 4
    outputs = Program(sdfg).outputs
    expected = compute(found[0][1], outputs, small, values)
    for plan, compiled in found[1:]:
        assert plan.by_question.items() <= compiled.plan.by_question.items()
        assert_same(compute(compiled, outputs, small, values), expected)


def test_neighbours_differ_in_one_answer() -> None:
    sdfg = parse(random_layer(0).text)

    def run(plan: Plan) -> Compilation:
        return compile_program(sdfg, ["x"], Config(plan=plan), dace.int32, TYPICAL, keep=False)

    start = run(Plan())
    plans = list(neighbours(Plan(), start))
    assert len(plans) == sum(len(q.options) - 1 for q in start.asked.values()) > 5
    for plan in plans:
        ((question, option),) = plan.answers
        assert start.asked[question].answer != option
    further = list(neighbours(plans[0], run(plans[0])))
    assert all(plans[0].by_question.items() < plan.by_question.items() for plan in further)

"""Features of operators: what they are of small programs, what changes them and what does not."""

from __future__ import annotations

import re
from functools import lru_cache
from math import log1p
from typing import Any

import dace
import numpy as np
import pytest

from dacergnn import Config, HeteroGraph, Rates, parse
from dacergnn.cost import operator_cost
from dacergnn.graph.profile import TYPICAL
from dacergnn.library_nodes import SegmentGemm
from dacergnn.library_nodes.node import copied
from dacergnn.library_nodes.operators import OPERATORS, STRUCTURAL
from dacergnn.native.build import INCLUDE_FOLDER
from dacergnn.program import Program
from dacergnn.sdfg_passes import Compilation, compile_program
from dacergnn.sdfg_passes.listing_cost import START
from dacergnn.tuning import operations, schedules
from dacergnn.tuning.features import FEATURE_NAMES, ProgramFeatures, describe
from dacergnn.tuning.graph_facts import GROUPS, GraphFacts
from dacergnn.tuning.programs import random_layer

FACTS = GraphFacts(
    (("NS", 100), ("ND", 50), ("E", 1000), ("U", 300), ("V", 200), ("R", 4), ("T", 2), ("ONE", 1)),
    lengths=tuple((path, (0, 5, 10, 20, 40, 80, 90)) for path in GROUPS),
)
SUM = """
def layer(g, x: NS[20], s: E):
    for n in g.dst_nodes():
        n["y"] = sum(e.s * e.src.x for e in n.incoming_edges())
    return y
"""
PRODUCT = """
def layer(g, x: NS[2, 4], W: T[2, 4, 8]):
    for n in g.dst_nodes():
        n["y"] = linear(n.x, W[n.ntype])
    return y
"""
RATES = Rates(flops=1e11, streamed=1e10, gathered=2e10, rows=1e8)


def graph(edges: int = 60, nodes: int = 12) -> HeteroGraph:
    rng = np.random.default_rng(0)
    ends, kinds = rng.integers(max(nodes, 1), size=(2, edges)), rng.integers(3, size=edges)
    types = np.arange(nodes) % 2
    return HeteroGraph.from_arrays(ends, kinds, num_nodes=nodes, num_edge_types=3, node_type=types, num_node_types=2)


@lru_cache
def compiled(seed: int) -> Compilation:
    layer = random_layer(seed)
    return compile_program(parse(layer.text), layer.learned, Config(), dace.int32, TYPICAL, keep=False)


def programs(found: Compilation) -> list[dace.SDFG]:
    return [found.forward] if found.backward is None else [found.forward, found.backward]


def named(found: ProgramFeatures, row: int = 0) -> dict[str, float]:
    """Features of an operator that are not 0, those that are counts as such."""
    names = (*FEATURE_NAMES[0], *FEATURE_NAMES[1])
    shares = {*operations.SHARES, *schedules.SHARES}
    values = np.concatenate((found.invariant[row], found.dependent[row])).tolist()
    plain = {n: v if n in shares else float(np.expm1(v)) for n, v in zip(names, values, strict=True)}
    return {name: pytest.approx(value, rel=1e-4) for name, value in plain.items() if value}


def expect(actual: dict[str, float], **values: float) -> None:
    assert {name: values[name] for name in values} == {name: actual.get(name, 0.0) for name in values}


def test_a_sum_over_edges() -> None:
    """20 elements of a source, times one of the edge, added to 20 of the destination."""
    found = describe(parse(SUM)).on(FACTS, RATES)
    values = named(found)
    expect(
        values, edges_multiply=20, edges_add=20, edges_read=1, edges_gathered=20, edges_reduced=20, edges_index=2,
        statements=1, reads=2, writes=1, widest=20, narrowest=1, most_rank=1, product=0, K=0, nodes_add=0,
    )  # fmt: skip
    expect(
        values, rows_outer=50, rows_inner=1000, rows_middle=0, group_mean=20, levels=2, over_edges=1, by_groups=1,
        format_csr=1, flops=40_000, gathered=80_000, rows=1000, streamed=4 * (1000 + 50 * 20 + 2 * 1000),
        index_bytes=8000, edges_streamed_bytes=4000, edges_gathered_bytes=80_000, nodes_streamed_bytes=4000,
        lines=63 + 63 + 200, gathered_lines=200, reuse=10, graph_E=1000, fits_L1=1, remainder=4 / 16, serial=0,
        tables=8000, vector_operations=40_000 * 16 / 20, scalar_operations=40_000 * 4 / 20, returned=4000, waits=1,
    )  # fmt: skip
    expect(values, work=1050 * 42, tasks=10, tasks_per_thread=5, balance=1, rows_per_task=100)
    expect(values, flops_ns=400, streamed_ns=1600, gathered_ns=4000, rows_ns=10_000, far_ns=0, roof_ns=10_000)
    expect(values, **{"group_50%": 10, "group_100%": 90, "graph_dst_99%": 80, "graph_E_per_ND": 20})
    assert found.seconds == pytest.approx(1.6e-5 + START)


def test_a_product() -> None:
    values = named(describe(parse(PRODUCT)).on(FACTS, RATES))
    expect(
        values, product=1, K=4, M=8, heads=2, nodes_linear=64, nodes_read=8, nodes_typed=64, nodes_written=16,
        scaled=0, pairs_first=0, flops=50 * 128, rows_inner=50, rows_outer=2, serial=1, tasks=1, remainder=0.5,
        format_csr=0, tile_rows=0, widest=64, most_rank=3,
    )  # fmt: skip


def test_functions_are_counted_by_their_kind() -> None:
    text = """
def layer(g, x: ND[2, 8], a: ONE[2, 8]):
    for n in g.dst_nodes():
        n["y"] = exp(tanh(dot_prd(n.x, a)) / 2.0) + tanh(dot_prd(n.x, a))
    return y
"""
    fused = compile_program(parse(text), [], Config(), dace.int32, TYPICAL, keep=False).forward
    values = named(describe(fused).on(FACTS))
    expect(values, nodes_multiply=16, nodes_add=16 + 2, nodes_tanh=2, nodes_exp=2, nodes_divide=2, nodes_repeated=16)


def test_every_operator_has_a_kind() -> None:
    known = operations._OPERATIONS  # pyright: ignore[reportPrivateUsage]
    assert {*OPERATORS, *STRUCTURAL} <= {*known}


def scheduled(**schedule: Any) -> ProgramFeatures:
    sdfg = copied(parse(SUM))
    for name, value in schedule.items():
        setattr(Program(sdfg).operators[0], name, value)
    return describe(sdfg).on(FACTS)


@pytest.mark.parametrize(
    ("schedule", "changed"),
    [
        ({"schedule_by": "edges"}, {"by_groups", "by_edges"}),
        ({"tile_rows": 64}, {"tile_rows", "tiles"}),
        ({"split_hubs": True}, {"split_hubs"}),
        ({"adjacency": "coo"}, {"format_csr", "format_coo"}),
        ({"adjacency": "ell"}, {"format_csr", "format_ell", "slots", "padding"}),
    ],
)
def test_schedules_change_what_depends_on_them(schedule: dict[str, Any], changed: set[str]) -> None:
    before, after = scheduled(), scheduled(**schedule)
    assert np.array_equal(before.invariant, after.invariant)
    differ = np.flatnonzero((before.dependent != after.dependent).any(axis=0))
    assert changed == {FEATURE_NAMES[1][n] for n in differ}


def test_graphs_change_what_depends_on_them() -> None:
    found = describe(parse(SUM))
    small, large = found.on(FACTS), found.on(GraphFacts.of(graph()))
    assert small.invariant is large.invariant
    assert (small.dependent != large.dependent).any()


@pytest.mark.parametrize("seed", range(8))
def test_features_are_numbers(seed: int) -> None:
    found = describe(*programs(compiled(seed)))
    for each in (graph(), graph(edges=0), graph(edges=0, nodes=0)):
        values = found.on(GraphFacts.of(each))
        assert values.invariant.shape == (len(found.scheduled), len(FEATURE_NAMES[0]))
        assert values.dependent.shape == (len(found.scheduled), len(FEATURE_NAMES[1]))
        assert values.invariant.dtype == values.dependent.dtype == values.seconds.dtype == np.float32
        for numbers in (values.invariant, values.dependent, values.seconds):
            assert np.isfinite(numbers).all()
            assert (numbers >= 0).all()


@pytest.mark.parametrize("seed", range(4))
def test_names_are_those_of_what_is_found(seed: int) -> None:
    """Each feature is there under its name, and there is no other."""
    names = [*FEATURE_NAMES[0], *FEATURE_NAMES[1]]
    assert len({*names}) == len(names)
    described = describe(compiled(seed).forward)
    for number, operator in enumerate(described.scheduled):
        counts, shares, seconds = operator.on(FACTS, RATES, 2)
        assert ({*counts}, {*shares}) == ({*schedules.COUNTS}, {*schedules.SHARES})
        values = described.on(FACTS, RATES)
        expected = [*(log1p(counts[n]) for n in schedules.COUNTS), *(shares[n] for n in schedules.SHARES)]
        assert values.dependent[number] == pytest.approx(expected, rel=1e-5)
        assert values.seconds[number] == pytest.approx(seconds)


@pytest.mark.parametrize("seed", range(4))
def test_invariant_names_are_those_of_what_is_found(seed: int) -> None:
    sdfg = compiled(seed).forward
    for operator in describe(sdfg).scheduled:
        found = operations.invariant_features(operator.works, lambda ref: Program(sdfg).shape(ref), 4)
        assert tuple(map(set, found)) == ({*operations.COUNTS}, {*operations.SHARES})


@pytest.mark.parametrize("seed", range(4))
def test_edges_are_the_flow_of_data(seed: int) -> None:
    sdfgs = programs(compiled(seed))
    operators = [operator for sdfg in sdfgs for operator in Program(sdfg).operators]
    expected = {
        (i, j)
        for j, reader in enumerate(operators)
        for i, writer in enumerate(operators[:j])
        if {*writer.written_arrays} & {*reader.read_arrays}
    }
    edges = describe(*sdfgs).edges
    assert edges.dtype == np.int64
    assert {(int(i), int(j)) for i, j in edges} == expected
    count = len(Program(sdfgs[0]).operators)
    assert any(i < count <= j for i, j in expected), "the backward reads what the forward has saved"


@pytest.mark.parametrize("seed", range(4))
def test_names_of_arrays_change_nothing(seed: int) -> None:
    text = random_layer(seed).text
    names = sorted({*re.findall(r"\b([xWans]\d*|norm\d+)\b(?=:)", text)})
    other = dict(zip(names, [f"q{n}" for n in reversed(range(len(names)))], strict=True))
    renamed = re.sub(r"\b([xWans]\d*|norm\d+)\b", lambda found: other.get(found[0], found[0]), text)
    assert renamed != text
    first, second = (describe(parse(t)).on(FACTS) for t in (text, renamed.replace("for q", "for n")))
    for name in ("invariant", "dependent", "edges", "seconds"):
        assert np.array_equal(getattr(first, name), getattr(second, name)), name


def test_work_that_is_done_again() -> None:
    layer = random_layer(2)
    run = {
        caching: compile_program(
            parse(layer.text), layer.learned, Config(caching=caching), dace.int32, TYPICAL, keep=False
        )
        for caching in ("cache_all", "recompute_all")
    }
    again, later = (FEATURE_NAMES[1].index(name) for name in ("again_flops", "later"))
    found = {caching: describe(*programs(plan)).on(FACTS).dependent for caching, plan in run.items()}
    assert not found["cache_all"][:, again].any()
    assert found["recompute_all"][:, again].any()
    count = len(Program(run["cache_all"].forward).operators)
    assert found["cache_all"][:, later].tolist() == [0] * count + [1] * (len(found["cache_all"]) - count)


def test_seconds_are_those_of_the_cost() -> None:
    sdfg = compiled(0).forward
    expected = [operator_cost(sdfg, o, FACTS.sizes).seconds(RATES) + START for o in Program(sdfg).operators]
    assert describe(sdfg).on(FACTS, RATES).seconds == pytest.approx(expected)
    products = [isinstance(o, SegmentGemm) for o in Program(sdfg).operators]
    position = FEATURE_NAMES[0].index("product")
    assert describe(sdfg).invariant[:, position].tolist() == products


def test_no_operators() -> None:
    found = describe().on(FACTS)
    assert (found.invariant.shape, found.dependent.shape) == tuple((0, len(names)) for names in FEATURE_NAMES)
    assert found.edges.shape == (0, 2)


def test_small_loops_are_those_of_the_kernels() -> None:
    header = (INCLUDE_FOLDER / "dacergnn" / "parallel.h").read_text()
    assert f"kSerialWork = {schedules.SERIAL_WORK};" in header
    assert f"kChunks = {schedules.PRODUCT_BLOCKS};" in header

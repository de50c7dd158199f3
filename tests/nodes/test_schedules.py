"""Traversals compiled under both schedules: sums of a few elements group by group, and row by row."""

from __future__ import annotations

from dataclasses import replace

import dace
import pytest

from dacergnn import Config, parse
from dacergnn.graph.profile import Profile
from dacergnn.library_nodes import Statement, Traversal
from dacergnn.library_nodes.node import Typeclass
from dacergnn.library_nodes.traversal.plan import NestPlan
from dacergnn.program import Program, verify
from dacergnn.program.view import StatementGroup
from dacergnn.sdfg_passes import Compilation, compile_program
from tests.nodes.test_expansions import compiled
from tests.nodes.test_fused_traversals import MODELS, all_graphs
from tests.nodes.test_levels import check_plan, single_typed
from tests.support.random_programs import large_case

FEW_EDGES = {"E": 190, "NS": 100, "ND": 100, "U": 120, "V": 110, "R": 4, "T": 2, "ONE": 1, "RNS": 400}

NESTS = {
    # Maxima, minima, sums, in memory, in scratch or both; the last one stands beside a wide sum, in groups.
    "n": (
        "ND",
        """    for e in g.edges():
        e["n_s"] = leakyrelu(e.a + e.dst.m, 0.2)
        e.dst["n_large"] = max(e.dst["n_large"], e["n_s"])
        e.dst["n_small"] = min(e.dst["n_small"], e.c * e.dst.m)
        e["n_x"] = exp(e["n_s"] - e.dst["n_large"])
        e.dst["n_total"] += e["n_x"]
        e.dst["n_both"] += e.c * e["n_x"]
        e["n_y"] = e["n_x"] / e.dst["n_total"]
        e.dst["n_last"] = max(e.dst["n_last"], e["n_y"] * e.dst["n_both"])
        e.dst["n_wide"] += e["n_y"] * e.src.b
    for n in g.dst_nodes():
        n["n_out"] = n["n_wide"] + n["n_large"]
""",
        ["n_small", "n_total", "n_y", "n_last", "n_out"],
        ["n_large", "n_small", "n_total", "n_both", "n_last"],
    ),
    # Rows of pairs are looked up from the loops over edges; sums are read in every later loop.
    "v": (
        "ND",
        """    for e in g.edges():
        e["v_s"] = e.a * e.dst_pair.h
        e.dst["v_large"] = max(e.dst["v_large"], e["v_s"])
        e["v_x"] = exp(e["v_s"] - e.dst["v_large"])
        e.dst_pair["v_wide"] += e["v_x"] * e.src.b
        e.dst_pair["v_pair"] += e["v_x"]
        e.dst["v_total"] += e["v_x"]
        e["v_y"] = e["v_x"] / e.dst["v_total"] + e.dst_pair["v_pair"]
        e.dst["v_small"] = min(e.dst["v_small"], e["v_y"])
        e.dst["v_both"] += e.c * e["v_y"]
        e["v_z"] = e.dst["v_both"] * e.dst["v_small"]
    for p in g.dst_pairs():
        p["v_q"] = p["v_wide"] + p.dst["v_total"] * p.h
    for e in g.edges():
        e.dst_pair["v_end"] = max(e.dst_pair["v_end"], e["v_z"])
    for n in g.dst_nodes():
        n["v_out"] = n["v_total"] * n.m
""",
        ["v_large", "v_both", "v_z", "v_q", "v_end", "v_out"],
        ["v_large", "v_total", "v_small", "v_both"],
    ),
    "u": (
        "NS",
        """    for e in g.edges():
        e["u_s"] = e.c * e.src_pair.k
        e.src["u_large"] = max(e.src["u_large"], e["u_s"])
        e["u_x"] = e["u_s"] - e.src["u_large"]
        e.src["u_one"] = min(e.src["u_one"], sum(e["u_x"]))
        e["u_y"] = e["u_x"] * e.src["u_one"]
        e.src_pair["u_wide"] += e.dst.b * sum(e["u_y"])
        e.src_pair["u_both"] += e["u_y"]
    for p in g.src_pairs():
        p["u_q"] = p["u_both"] * p.k
        p.src["u_r"] += p["u_q"]
    for e in g.edges():
        e["u_z"] = e["u_y"] + e.src["u_r"] * e.src_pair["u_q"]
        e.src["u_end"] += e["u_z"]
        e.src["u_low"] = min(e.src["u_low"], e.a * 2.0)
""",
        ["u_large", "u_one", "u_wide", "u_end", "u_low"],
        ["u_large", "u_one", "u_end", "u_low"],
    ),
    "s": (
        "NS",
        """    for e in g.edges():
        e.src["s_k"] += sigmoid(e.c)
        e["s_t"] = e.c / (e.src["s_k"] + 1.0)
        e.src["s_r"] += e["s_t"] * e.dst.w
""",
        ["s_t", "s_r"],
        ["s_k", "s_r"],
    ),
    "p": (
        "V",
        """    for e in g.edges():
        e["p_s"] = e.c + e.dst_pair.h
        e.dst_pair["p_large"] = max(e.dst_pair["p_large"], e["p_s"])
        e["p_x"] = exp(e["p_s"] - e.dst_pair["p_large"])
        e.dst_pair["p_total"] += e["p_x"]
        e["p_y"] = e["p_x"] / e.dst_pair["p_total"]
""",
        ["p_y"],
        ["p_large", "p_total"],
    ),
    "q": (
        "U",
        """    for e in g.edges():
        e["q_s"] = e.a * e.src_pair.k
        e.src_pair["q_small"] = min(e.src_pair["q_small"], e["q_s"])
        e["q_x"] = e["q_s"] * e.src_pair["q_small"]
        e.src_pair["q_total"] += e["q_x"] * e.c
    for p in g.src_pairs():
        p["q_out"] = p["q_total"] + p.k
""",
        ["q_small", "q_out"],
        ["q_small", "q_total"],
    ),
}
"""Prefix of a nest's arrays -> its mapping, its loops, its results, and which of its sums run row by row."""
OPERATIONS = {"sum": "{0} += {1}", "max": "{0} = max({0}, {1})", "min": "{0} = min({0}, {1})"}
INPUTS = "a: E, b: NS[5], c: E[2], h: V, k: U, l: NS, m: ND, w: ND[2], o: ONE"


def lone_statements() -> dict[str, str]:
    """Reductions that are operators of their own: name -> loop."""
    found: dict[str, str] = {}

    def add(name: str, operation: str, target: str, value: str, loop: str = "e in g.edges()") -> None:
        found[name] = f"    for {loop}:\n        {OPERATIONS[operation].format(target.format(name), value)}\n"

    for way in ("src", "dst", "src_pair", "dst_pair"):
        for operation in OPERATIONS:
            add(f"l_{way}_{operation}_one", operation, f'e.{way}["{{}}"]', "e.a * (e.src.l + o) - e.dst.m")
            add(f"l_{way}_{operation}_two", operation, f'e.{way}["{{}}"]', "e.c * e.dst.w + e.src.l")
    add("l_pairs_dst", "max", 'p.dst["{}"]', "p.h - p.dst.m", "p in g.dst_pairs()")
    add("l_pairs_src", "sum", 'p.src["{}"]', "p.k * p.src.l", "p in g.src_pairs()")
    add("l_types", "min", "{}[e.etype]", "e.a * 2.0")
    add("l_node_types", "max", "{}[e.src.ntype]", "e.c * 2.0")
    add("l_all", "max", "{}", "e.a * e.src.l")
    return found


def everything(dtype: Typeclass) -> dace.SDFG:
    """All the nests and the lone statements, each an operator."""
    lone = lone_statements()
    body = "".join([*(text for _, text, _, _ in NESTS.values()), *lone.values()])
    outputs = [name for _, _, names, _ in NESTS.values() for name in names]
    sdfg = parse(f"def p(g, {INPUTS}):\n{body}    return {', '.join([*outputs, *lone])}\n", dtype=dtype)
    program = Program(sdfg)
    bodies: dict[str, list[Statement]] = {}
    values: list[Statement] = []  # what a maximum is taken of has a name of its own, and comes right before it
    for statement in (s for o in program.operators for s in o.statements):
        name = statement.target.name
        if name in lone:
            bodies[name] = [replace(statement, expr=values.pop().expr) if values else statement]
        elif name.startswith("tmp"):
            values.append(statement)
        else:
            bodies.setdefault(name.split("_")[0], []).extend([*values, statement])
            values = []
    groups: list[StatementGroup] = []
    for key, statements in bodies.items():
        mapping = statements[0].space if key in lone else NESTS[key][0]
        local = tuple(s.target.name for s in statements if s.target.name not in program.outputs)
        groups.append(StatementGroup(tuple(statements), mapping, local))
    program.regroup(groups)
    verify(sdfg)
    sdfg.validate()
    return sdfg


def scheduled(sdfg: dace.SDFG, schedule: str) -> dace.SDFG:
    """The program with all of its traversals under one schedule."""
    for operator in Program(sdfg).operators:
        if isinstance(operator, Traversal):
            operator.schedule_by = schedule
    return sdfg


def edge_balanced(sdfg: dace.SDFG) -> list[str]:
    """The reductions that run row by row."""
    program, found = Program(sdfg), []
    for operator in (o for o in program.operators if isinstance(o, Traversal)):
        plan = operator.plan("cpu", operator.arrays(sdfg, program.state))
        if isinstance(plan, NestPlan):
            sums = [step for loop in plan.loops if loop.group is not None for step in loop.steps()]
            found += [step.statement.target.name for step in sums]
    return found


def test_what_runs_row_by_row() -> None:
    sdfg = everything(dace.float64)
    assert edge_balanced(sdfg) == []
    expected = [name for _, _, _, sums in NESTS.values() for name in sums]
    assert sorted(edge_balanced(scheduled(sdfg, "edges"))) == sorted([*expected, *lone_statements()])


def test_wide_sums_keep_to_groups() -> None:
    sdfg = parse(
        """def p(g, a: E, d: E[3]):
    for e in g.edges():
        e.dst["wide"] += e.d * 2.0
        e.dst["given"] += e.a
        total += e.a * 2.0
    return wide, given, total
"""
    )
    assert edge_balanced(scheduled(sdfg, "edges")) == ["given"]


@pytest.mark.parametrize(
    ("schedule", "dtype", "index"),
    [
        ("edges", dace.float32, dace.int64),
        ("groups", dace.float64, dace.int32),
    ],
)
def test_results(schedule: str, dtype: Typeclass, index: Typeclass) -> None:
    program = compiled(scheduled(everything(dtype), schedule), "cpu", dtype, index)
    for number, raw in enumerate(all_graphs()):
        program.check(raw, number)


def edge_balanced_plan(sdfg: dace.SDFG, wrt: list[str], index: Typeclass, *, single_typed: bool) -> Compilation:
    """The plan of the whole pipeline for a graph of few edges."""
    profile = Profile(tuple(FEW_EDGES.items()), single_typed=single_typed)
    return compile_program(sdfg, wrt, Config(), index, profile)


TWO_HEADS = {"W": "R[10, 10]", "q": "ONE[2, 5]", "k": "ONE[2, 5]", "bias": "ONE[2, 5]", "heads": 2}


@pytest.mark.parametrize(
    ("model", "changed", "dtype", "index"),
    [
        ("rgat one head", {}, dace.float64, dace.int32),
        ("rgat", TWO_HEADS, dace.float32, dace.int64),
    ],
)
def test_gradients_of_models(model: str, changed: dict[str, object], dtype: Typeclass, index: Typeclass) -> None:
    source, bindings = MODELS[model]
    bindings = bindings | changed
    wrt = [n for n, spec in bindings.items() if isinstance(spec, str)]
    plan = edge_balanced_plan(parse(source, dtype=dtype, **bindings), wrt, index, single_typed=True)
    assert plan.backward is not None
    assert edge_balanced(plan.backward)
    check_plan(plan, [single_typed(raw) for raw in all_graphs()], dtype, index)


@pytest.mark.no_cover
def test_gradients_of_large_random_programs() -> None:
    case = large_case(11)
    plan = edge_balanced_plan(parse(case.text, dtype=dace.float64), case.wrt, dace.int32, single_typed=False)
    assert plan.backward is not None
    assert edge_balanced(plan.forward)
    assert edge_balanced(plan.backward)
    check_plan(plan, [case.graph])

"""Traversals whose hubs, groups of very many rows, are divided between threads; right for every graph, and the same
bits for any number of threads."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import dace
import numpy as np
import pytest
import torch

from dacergnn import Config, parse
from dacergnn.graph.profile import TYPICAL, Profile
from dacergnn.library_nodes import Traversal
from dacergnn.library_nodes.targets.cpu import kernel_code
from dacergnn.library_nodes.traversal.plan import NestPlan
from dacergnn.program import Program
from dacergnn.runtime.executable import Executable
from dacergnn.sdfg_passes import Compilation, compile_program
from tests.nodes.test_expansions import TORCH, Compiled, compiled, graphs
from tests.nodes.test_fused_traversals import MODELS, NESTS, as_one
from tests.nodes.test_levels import check_plan
from tests.nodes.test_schedules import everything, scheduled
from tests.support.random_graphs import RawGraph

ROWS = 5000
"""Edges of a hub: more than `HUB_ROWS`, and no multiple of a chunk."""


def ends_at(*centres: int, short: int = 0, out: bool = False) -> RawGraph:
    """Every node in ``centres`` has `ROWS` incoming edges of three types (outgoing ones), every node ``short`` more."""
    rng, nodes = np.random.default_rng(7), 40
    one = np.concatenate([np.repeat(centres, ROWS), np.repeat(np.arange(nodes), short)]).astype(np.int64)
    other = rng.integers(0, nodes, len(one))
    src, dst = (one, other) if out else (other, one)
    node_type = np.zeros(nodes, dtype=np.int64)
    return RawGraph(src, dst, rng.choice([0, 0, 0, 2, 3], len(one)), node_type, node_type, 4, 1)


HUBS = {
    "into one": ends_at(0),
    "out of one": ends_at(39, out=True),
    "two and short ones": ends_at(3, 17, short=6),
    "two and short ones, out": ends_at(3, 17, short=6, out=True),
}


def divided(sdfg: dace.SDFG) -> dace.SDFG:
    """The program with the hubs of all of its traversals divided."""
    for operator in Program(sdfg).operators:
        if isinstance(operator, Traversal):
            operator.split_hubs = True
    return sdfg


def codes(sdfg: dace.SDFG) -> list[str]:
    """The kernels of all traversals."""
    program = Program(sdfg)
    operators = [o for o in program.operators if isinstance(o, Traversal)]
    return [kernel_code(o, o.arrays(sdfg, program.state)) for o in operators]


@pytest.fixture
def threads() -> Iterator[None]:
    """Puts the number of threads back."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def results(program: Compiled, raw: RawGraph, number: int) -> list[torch.Tensor]:
    """What a program computes on a number of threads."""
    torch.set_num_threads(number)
    graph, generator, view = raw.hetero(), torch.Generator().manual_seed(0), Program(program.plain)
    inputs = {
        name: torch.randn(graph.size(view.space(name)), *view.shape(name), generator=generator)
        for name in view.inputs
    }  # fmt: skip
    executable = program.executable
    arrays = [inputs[n].to(TORCH[program.dtype]) for n in executable.lowered.inputs]
    return [t.clone() for t in executable(executable.prepare(graph), arrays)]


def check_threads(program: Compiled) -> None:
    for raw in HUBS.values():
        expected = results(program, raw, 1)
        for number in (2, 3):
            found = results(program, raw, number)
            assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_only_what_asks_for_it_has_a_second_form() -> None:
    text = NESTS["ND > E"][1]
    sdfg = as_one(parse(text), "ND")
    (plain,) = codes(sdfg)
    assert "split_rows" not in plain
    (both,) = codes(divided(sdfg))
    assert "split_rows" in both
    assert len(both) > 1.5 * len(plain)


@pytest.mark.parametrize("nest", ["ND > V > E", "NS > U > E"])
def test_fused_nests(nest: str, threads: None) -> None:
    mapping, text = NESTS[nest]
    program = compiled(divided(as_one(parse(text, dtype=dace.float64), mapping)), "cpu", dace.float64, dace.int32)
    for raw in [*HUBS.values(), *graphs()[-4:]]:
        program.check(raw)
    check_threads(program)


def test_softmax_and_lone_reductions(threads: None) -> None:
    """Row by row, where the form for hubs goes group by group as ever."""
    program = compiled(divided(scheduled(everything(dace.float64), "edges")), "cpu", dace.float64, dace.int32)
    for raw in [*HUBS.values(), *graphs()[-4:]]:
        program.check(raw)
    check_threads(program)


def test_only_what_both_forms_allow_is_written_in_place() -> None:
    """Row by row, sums are loops of their own, and end before anything is written; a hub has all in one loop."""
    text = """def p(g, d: ND, r: ND, y: E):
    for e in g.edges():
        e.dst["count"] += e.y * e.dst.d
    for n in g.dst_nodes():
        n["share"] = n.r * n.d / clamp_min(n["count"], 1.0)
    for n in g.dst_nodes():
        n["neg"] = -n.r
    return share, neg
"""
    sdfg = scheduled(divided(as_one(parse(text, dtype=dace.float64), "ND")), "edges")
    (operator,), state = Program(sdfg).operators, Program(sdfg).state
    both = operator.plan("cpu", operator.arrays(sdfg, state))
    operator.split_hubs = False
    whole = operator.plan("cpu", operator.arrays(sdfg, state))
    operator.split_hubs = True
    assert isinstance(both, NestPlan)
    assert both.hubs is not None
    assert both.in_place == whole.in_place & both.hubs.in_place != whole.in_place
    program = compiled(sdfg, "cpu", dace.float64, dace.int32)
    for raw in [*HUBS.values(), *graphs()[-4:]]:
        program.check(raw)


def test_hubs_are_divided() -> None:
    """A sum of chunks is not, to the last bit, one sum of all rows; nor is either of these by chance."""
    sdfg = parse(
        'def p(g, a: E[3]):\n    for e in g.edges():\n        e.dst["s"] += e.a * 0.1\n    return s\n',
        dtype=dace.float32,
    )
    whole = compiled(copy.deepcopy(sdfg), "cpu", dace.float32, dace.int32)
    parts = compiled(divided(sdfg), "cpu", dace.float32, dace.int32)
    (one,), (other,) = (results(program, HUBS["two and short ones"], 2) for program in (whole, parts))
    differs = (one != other).any(1)
    assert differs.nonzero().flatten().tolist() == [3, 17]
    (one,), (other,) = (results(program, HUBS["out of one"], 2) for program in (whole, parts))
    assert torch.equal(one, other)


HUB_PROFILE = Profile(
    TYPICAL.rows, single_typed=True, hubs=tuple(dict.fromkeys(("src", "dst", "srcpair", "dstpair"), 50_000).items())
)


def test_gradients_of_a_model(threads: None) -> None:
    source, bindings = MODELS["rgat"]
    wrt = [n for n, spec in bindings.items() if isinstance(spec, str)]
    plan = compile_program(parse(source, dtype=dace.float64, **bindings), wrt, Config(), dace.int32, HUB_PROFILE)
    assert plan.backward is not None
    for sdfg in (plan.forward, plan.backward):
        assert any("split_rows" in code for code in codes(sdfg))
    check_plan(plan, list(HUBS.values()))
    for built in built_parts(plan):
        check_threads(built)


def built_parts(plan: Compilation) -> list[Compiled]:
    """Forward and backward, which comes from the cache by now."""
    plain = next(step.sdfgs for step in plan.steps if step.name == "select_schedule")
    assert plan.backward is not None
    parts = (("forward", plan.forward), ("backward", plan.backward))
    return [Compiled(plain[role], Executable(sdfg), dace.float64, dace.int32) for role, sdfg in parts]

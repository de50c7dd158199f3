"""Choices of a schedule that are arguments of one build: they reach its kernels, and change no result."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Mapping
from dataclasses import replace

import dace
import pytest
import torch
from torch import Tensor

from dacergnn import Config, HeteroGraph, Plan, parse
from dacergnn.errors import DacergnnError, VerificationError
from dacergnn.graph.profile import TYPICAL, Profile
from dacergnn.library_nodes.node import Typeclass
from dacergnn.library_nodes.traversal.plan import RUN_TIME
from dacergnn.native.build import build
from dacergnn.program import Program
from dacergnn.runtime.executable import Executable
from dacergnn.runtime.lower import Lowered, lower
from dacergnn.sdfg_passes import Context, SelectAdjacency, compile_program
from tests.nodes.test_expansions import TORCH, compiled, hub_graph, with_index
from tests.nodes.test_formats import everything as all_formats
from tests.nodes.test_hubs import HUBS, divided
from tests.nodes.test_schedules import everything, scheduled
from tests.passes.test_plans import compiled as planned

EXTREMES = (-(1 << 63), 0, 1, 3, 1 << 40, (1 << 63) - 1)
SUM = 'def p(g, a: E[3]):\n    for e in g.edges():\n        e.dst["s"] += e.a * 0.1\n    return s\n'


def run(executable: Executable, graph: HeteroGraph, schedule: Mapping[str, int] | None = None) -> list[Tensor]:
    generator, lowered = torch.Generator().manual_seed(0), executable.lowered
    inputs = [
        torch.randn(graph.size(space), *shape, generator=generator).to(executable.dtype)
        for space, shape in (lowered.spaces[n] for n in lowered.inputs)
    ]
    return executable(executable.prepare(graph, schedule=schedule), inputs)


def same(found: list[Tensor], expected: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def close(found: list[Tensor], expected: list[Tensor]) -> bool:
    error = 1e-10 if found[0].dtype is torch.float64 else 1e-3
    return all(
        (a - b).abs().max() <= error * max(1.0, float(b.abs().max())) for a, b in zip(found, expected, strict=True)
    )


FORMS = {
    "csr": (dace.float32, dace.int32, "groups"),
    "coo": (dace.float32, dace.int64, "groups"),
    "ell": (dace.float64, dace.int32, "edges"),
    "hybrid": (dace.float32, dace.int32, "groups"),
}


@pytest.mark.parametrize("form", FORMS)
def test_any_value_gives_the_same_results(form: str) -> None:
    dtype, index, schedule = FORMS[form]
    executable = compiled(program_of(form, dtype, schedule), "cpu", dtype, index, form).executable
    asked = {choice.split("/")[1] for choice in executable.lowered.schedule}
    assert asked == {"tile_rows", "chunks"} | ({"hub_rows"} if form in ("csr", "coo") else set())
    for raw in (HUBS["two and short ones"], hub_graph(random.Random(1), 40, 30, 3000)):
        graph = with_index(raw.hetero(), TORCH[index])
        expected = run(executable, graph)
        for name in ("tile_rows", "chunks"):
            for value in EXTREMES:
                assert same(run(executable, graph, all_of(executable.lowered, name, value)), expected)
        for value in EXTREMES if "hub_rows" in asked else ():
            found = run(executable, graph, all_of(executable.lowered, "hub_rows", value))
            assert close(found, expected)
            tiles = {**all_of(executable.lowered, "hub_rows", value), **all_of(executable.lowered, "tile_rows", 5)}
            assert same(run(executable, graph, tiles), found)
        assert same(run(executable, graph), expected)  # nothing is left behind


def program_of(form: str, dtype: Typeclass, schedule: str) -> dace.SDFG:
    if form == "csr":
        return divided(scheduled(everything(dtype), schedule))
    sdfg = all_formats(dtype)
    for operator in Program(sdfg).operators:
        operator.schedule_by = schedule
    return sdfg


def all_of(lowered: Lowered, name: str, value: int) -> dict[str, int]:
    return {choice: value for choice in lowered.schedule if choice.endswith(f"/{name}")}


def test_hub_rows_tell_which_groups_are_divided() -> None:
    executable = compiled(divided(parse(SUM, dtype=dace.float32)), "cpu", dace.float32, dace.int32).executable
    graph = HUBS["two and short ones"].hetero()  # 5,006 edges into two nodes, 6 into each other one
    (whole,) = run(executable, graph, {"s/hub_rows": 5006})
    (parts,) = run(executable, graph, {"s/hub_rows": 5005})
    assert (whole != parts).any(1).nonzero().flatten().tolist() == [3, 17]
    for value in (0, 1, 6, 4999):
        assert same(run(executable, graph, {"s/hub_rows": value}), [parts])


PROBE = """
#include "include/dacergnn/parallel.h"
extern "C" { std::int64_t tiles_run = 0; }
namespace probe {
template <class... Arguments, class F>
void count_tiles(F f, Arguments... arguments) {
    tiles_run = 0;
    dacergnn::parallel_tiles(arguments..., [=](std::int64_t first, std::int64_t last) mutable {
#pragma omp atomic
        ++tiles_run;
        f(first, last);
    });
}
template <class I, class F>
void parallel_tiles(const I* ptr, std::int64_t n, std::int64_t work, std::int64_t tile, std::int64_t chunks, F f) {
    count_tiles(f, ptr, n, work, tile, chunks);
}
}
"""


def test_values_reach_the_kernel() -> None:
    """By the tiles that generated code runs, counted around the function that it hands over."""
    sdfg = parse(SUM, dtype=dace.float32)
    SelectAdjacency().run(sdfg, Context())
    lowered = lower(sdfg)
    code = PROBE + lowered.code.replace("dacergnn::parallel_tiles(", "probe::parallel_tiles(")
    executable = Executable(replace(lowered, code=code))
    tiles = ctypes.c_int64.in_dll(ctypes.CDLL(str(build(lowered.name, code))), "tiles_run")
    nodes = 6000
    one = torch.arange(nodes).repeat_interleave(4)
    graph = HeteroGraph.from_arrays((one.flip(0), one), None, num_nodes=nodes)
    before = torch.get_num_threads()
    try:
        for threads, tile, chunks, count in (
            (1, 4, 16, nodes), (1, 8, 16, nodes // 2), (1, 4096, 16, 6), (1, 1 << 40, 1, 1),
            (2, 1 << 40, 1, 2), (2, 1 << 40, 4, 8), (2, 1 << 40, -3, 2), (2, -3, 4, nodes),
        ):  # fmt: skip
            torch.set_num_threads(threads)
            run(executable, graph, {"s/tile_rows": tile, "s/chunks": chunks})
            assert tiles.value == count, (threads, tile, chunks)
    finally:
        torch.set_num_threads(before)


def test_plans_that_differ_in_nothing_else_share_a_build() -> None:
    hubs = Profile(TYPICAL.rows, single_typed=True, hubs=(("dst", 500_000), ("src", 500_000)))
    first = planned("rgat", hubs)
    questions = {n: q for n, q in first.asked.items() if n.split("/")[-1] in RUN_TIME}
    assert {n.split("/")[-1] for n in questions} == {*RUN_TIME}
    others = {n: next(o for o in q.options if o != q.answer) for n, q in questions.items()}
    second = planned("rgat", hubs, plan=Plan.of({**first.plan.by_question, **others}))
    for role in ("forward", "backward"):
        one, other = (lower(getattr(found, role)) for found in (first, second))
        assert other.code == one.code
        assert replace(other, schedule=one.schedule) == one
        assert build(other.name, other.code) == build(one.name, one.code)
        start = f"{role}/select_schedule/"
        expected = {n.removeprefix(start): int(v) for n, v in others.items() if n.startswith(start)}
        assert expected
        assert {n: v for n, v in other.schedule.items() if n in expected} == expected
        assert all(one.schedule[n] != v for n, v in expected.items())


def test_what_a_plan_leaves_open_is_what_calls_get() -> None:
    sdfg = parse(SUM, dtype=dace.float32)
    plan = Plan.of({"forward/select_schedule/s/tile_rows": "64", "forward/select_schedule/s/chunks": "4"})
    executable = Executable(compile_program(sdfg, [], Config(plan=plan), dace.int32, keep=False).forward)
    assert executable.lowered.schedule == {"s/tile_rows": 64, "s/chunks": 4}
    graph = HUBS["into one"].hetero()
    kept = executable.prepare(graph)
    other = executable.prepare(graph, schedule={"s/tile_rows": 77})
    position = 1 + executable.lowered.signature.index("__s_tile_rows")
    assert (kept.arguments[position], other.arguments[position]) == (64, 77)
    differing = [i for i, (a, b) in enumerate(zip(kept.arguments, other.arguments, strict=True)) if a != b]
    assert differing == [position]
    assert executable.prepare(graph) is kept
    assert other.spare is not kept.spare


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ({"s/hub_rows": 1}, 'leaves no "s/hub_rows" open to calls, but these: s/tile_rows, s/chunks'),
        ({"tile_rows": 1}, 'leaves no "tile_rows" open'),
        ({"s/chunks": 1.5}, '"s/chunks" is 1.5; pass an integer of 64 bits'),
        ({"s/chunks": 1 << 63}, "pass an integer of 64 bits"),
    ],
)
def test_bad_schedules(schedule: dict[str, int], message: str) -> None:
    sdfg = parse(SUM, dtype=dace.float32)
    SelectAdjacency().run(sdfg, Context())
    with pytest.raises(DacergnnError, match=message):
        Executable(sdfg).prepare(HUBS["into one"].hetero(), schedule=schedule)


@pytest.mark.parametrize("name", RUN_TIME)
@pytest.mark.parametrize("value", ["many", 2.5, 1 << 63])
def test_bad_properties(name: str, value: object) -> None:
    sdfg = parse(SUM, dtype=dace.float32)
    (operator,) = Program(sdfg).operators
    setattr(operator, name, value)
    with pytest.raises(VerificationError, match=f"{name} is .*; set it to an integer of 64 bits"):
        operator.validate(sdfg, Program(sdfg).state)
    setattr(operator, name, -(1 << 63))
    operator.validate(sdfg, Program(sdfg).state)


def test_programs_of_dace_have_the_values_in_their_code() -> None:
    """Where nothing but DaCe lowers them, there is nobody to pass an argument."""
    sdfg = parse(SUM, dtype=dace.float32)
    SelectAdjacency().run(sdfg, Context())
    (operator,) = Program(sdfg).operators
    operator.tile_rows = 77
    assert {type(getattr(operator, name)) for name in RUN_TIME} == {int}
    assert dace.SDFG.from_json(sdfg.to_json()).to_json() == sdfg.to_json()
    sdfg.expand_library_nodes()
    assert not any(name.startswith("__") for name in sdfg.arglist())
    (tasklet,) = (n for n in next(iter(sdfg.states())).nodes() if isinstance(n, dace.nodes.Tasklet))
    assert ", 77, 16, [=]" in tasklet.code.as_string

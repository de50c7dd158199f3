"""Schedules as data: any answers to their questions leave results as they are, and change the code of one operator."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path

import dace
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dacergnn import Config, Plan, parse
from dacergnn.graph.profile import TYPICAL, Profile
from dacergnn.runtime.cuda_executable import CUDAExecutable
from dacergnn.runtime.executable import Executable
from dacergnn.runtime.lower import lower
from dacergnn.sdfg_passes import compile_program
from tests.nodes.test_expansions import Compiled, graphs
from tests.support.emulated_device import emulated_device
from tests.support.random_chains import random_chains

__all__ = ["emulated_device"]

# Depths of several blocks, heads, sums before and after the product, results that are finished.
PRODUCTS = """def products(g, x: NS[300], z: NS[20], W: R[300, 40], V: R[20, 24], Q: T[2, 10, 17], s: E):
    for e in g.edges():
        e["m"] = linear(e.src.x, W[e.etype])
    for e in g.edges():
        e.dst["sum"] += e.s * linear(e.src.z, V[e.etype])
    for n in g.dst_nodes():
        n["out"] = relu(n["sum"])
    for n in g.src_nodes():
        n["heads"] = linear(reshape(n.z, 2, 10), Q[n.ntype])
    for e in g.edges():
        e.dst["total"] += sum(e["m"])
    return out, heads, total
"""
EXAMPLES = settings(
    max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)
HUBS = Profile(TYPICAL.rows, hubs=(("dst", 500_000), ("src", 500_000)))


def scheduled(text: str, target: str, rng: random.Random) -> Compiled:
    """The program for the interpreter, and compiled with random answers to all that is asked of schedules."""
    sdfg = parse(text, dtype=dace.float64)
    asked = compile_program(sdfg, [], Config(implementation=target), dace.int32, HUBS, keep=False).asked
    plan = {name: rng.choice(q.options) for name, q in asked.items() if "/select_schedule/" in name}
    whole = [name.removesuffix("split_hubs") for name, answer in plan.items() if answer == "no"]
    plan = {name: answer for name, answer in plan.items() if name.removesuffix("hub_rows") not in whole}
    config = Config(implementation=target, plan=Plan.of(plan))
    found = compile_program(sdfg, [], config, dace.int32, HUBS, keep=False).forward
    executable = CUDAExecutable(found, architectures=(80,)) if target == "cuda" else Executable(found)
    return Compiled(sdfg, executable, dace.float64, dace.int32)


def check(program: Compiled, count: int) -> None:
    for number, raw in enumerate(graphs()[-count:]):
        program.check(raw, number)


@EXAMPLES
@given(st.randoms(use_true_random=False))
def test_products_on_the_cpu(rng: random.Random) -> None:
    check(scheduled(PRODUCTS, "cpu", rng), 4)


@EXAMPLES
@given(st.integers(0, 10_000), st.randoms(use_true_random=False))
def test_random_programs_on_the_cpu(seed: int, rng: random.Random) -> None:
    case = random_chains(seed)
    scheduled(case.text, "cpu", rng).check(case.graph, seed)


@EXAMPLES
@given(st.randoms(use_true_random=False))
def test_products_on_a_device(emulated_device: Config, rng: random.Random) -> None:
    program = scheduled(PRODUCTS, "cuda", rng)
    for number, raw in enumerate(graphs()[:6]):
        program.check(raw, number)


@EXAMPLES
@given(st.integers(0, 10_000), st.randoms(use_true_random=False))
def test_random_programs_on_a_device(emulated_device: Config, seed: int, rng: random.Random) -> None:
    case = random_chains(seed)
    scheduled(case.text, "cuda", rng).check(case.graph, seed)


def code_of(plan: Plan | None) -> str:
    return lower(compile_program(parse(PRODUCTS), [], Config(plan=plan), dace.int32, HUBS, keep=False).forward).code


def calls_of(code: str) -> list[str]:
    """The calls of products."""
    return re.findall(r"dacergnn::segment_gemm.*", code)


@pytest.mark.parametrize("answer", [("m/depth_block", "128", "Tile<0, 128>"), ("m/row_tile", "4", "Tile<4, 0>")])
def test_a_tile_belongs_to_one_product(answer: tuple[str, str, str]) -> None:
    question, value, tile = answer
    plan = Plan.of({f"forward/select_schedule/{question}": value})
    usual, code = code_of(None), code_of(plan)
    changed = [(one, other) for one, other in zip(calls_of(usual), calls_of(code), strict=True) if one != other]
    ((before, after),) = changed
    assert code == usual.replace(before, after)
    assert tile in after


def test_another_process_replays_a_tile() -> None:
    plan = Plan.of({"forward/select_schedule/m/row_tile": "4"})
    program = "import sys\nfrom tests.nodes.test_random_schedules import Plan, code_of\n"
    program += "sys.stdout.write(code_of(Plan.from_json(sys.argv[1])))"
    command = [sys.executable, "-c", program, plan.to_json()]
    again = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert again.stdout == code_of(plan)

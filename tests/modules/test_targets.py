"""Targets: all layers run on plain loops, and one that is registered from outside is like those of the project."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import dace
import pytest

import dacergnn
from dacergnn import Config, parse
from dacergnn.errors import DacergnnError, VerificationError
from dacergnn.library_nodes import SegmentGemm, register
from dacergnn.program import Program
from dacergnn.runtime.lower import lower
from dacergnn.sdfg_passes import Compilation, compile_program
from dacergnn.target import TARGETS, Target, find
from tests.compatibility.comparing import ORIGINALS, assert_same, gradients, losses
from tests.compatibility.kinds import Kind

pytestmark = pytest.mark.compiled

PLAIN = Config(implementation="cpu-scalar")


SOME = ("pyg.RGCNConv", "pyg.RGATConv", "pyg.EdgeConv", "pyg.traced-UserLayer", "dgl.HGTConv")


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=() if k.name in SOME else pytest.mark.check, id=k.name) for k in ORIGINALS]
)
def test_every_layer_runs_on_plain_loops(kind: Kind) -> None:
    original = kind.original()
    fast = dacergnn.optimize(kind.original(), config=PLAIN, on_unsupported="error")
    for module in (fast, original):
        sum(losses(kind, module)).backward()
    assert_same(losses(kind, fast), losses(kind, original))
    assert_same(gradients(fast), gradients(original))


PROGRAM = """
def program(g, x: NS[300], w: E, W: ONE[300, 8]):
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["sum"] += e["w"] * e.src["x"]
    for n in g.dst_nodes():
        n["out"] = linear(n["sum"], W)
    return out
"""


def compiled(config: Config) -> Compilation:
    return compile_program(parse(PROGRAM), ["x"], config, dace.int32, keep=False)


def test_plain_loops_have_no_vectors() -> None:
    code = lower(compiled(PLAIN).forward).code
    headers = [line for line in code.splitlines() if line.startswith("#include") and "dacergnn" in line]
    assert "dacergnn/plain.h" in headers[0]
    assert "plain.h" not in lower(compiled(Config()).forward).code


@pytest.fixture
def outside() -> Iterator[Target]:
    """A target that was registered by a user."""
    target = replace(find("cpu"), name="mine", schedule_options={"chunks": ("16", "3")})
    register(target)
    yield target
    del TARGETS[target.name]


@pytest.mark.usefixtures("outside")
def test_a_target_is_registered_from_outside() -> None:
    found, usual = compiled(Config(implementation="mine")), compiled(Config())
    assert lower(found.forward).code == lower(usual.forward).code
    schedules = [name.split("/")[-1] for name in found.asked if "select_schedule" in name]
    assert set(schedules) == {"chunks"}
    assert any(name.endswith("tile_rows") for name in usual.asked)


def test_a_name_is_that_of_one_target(outside: Target) -> None:
    register(outside)
    with pytest.raises(DacergnnError, match="name='mine': another target is registered by it"):
        register(replace(outside, hub_rows=1))


def test_versions_of_a_target() -> None:
    """Another target of the same name does not find what is kept between processes."""
    target = find("cpu")
    assert replace(target).version == target.version
    others = [
        replace(target, schedule_options={}), replace(target, hub_rows=8), replace(target, start=1.0),
        replace(target, plan_nest=_plan), replace(target, plan_nest=find("cuda").plan_nest),
    ]  # fmt: skip
    assert len({target.version, *(other.version for other in others)}) == 6


def _plan(body: Any, schedule: Any) -> Any:
    return find("cpu").plan_nest(body, schedule)


@pytest.mark.parametrize(("name", "value"), [("row_tile", 9), ("row_tile", -1), ("depth_block", 100)])
def test_tiles_that_kernels_do_not_have_are_refused(name: str, value: int) -> None:
    sdfg = compiled(Config()).forward
    product = next(o for o in Program(sdfg).operators if isinstance(o, SegmentGemm))
    setattr(product, name, value)
    with pytest.raises(VerificationError, match=rf"{name} is {value}; options of cpu: 0, "):
        lower(sdfg)


def test_a_target_that_nobody_registered_is_refused() -> None:
    with pytest.raises(DacergnnError, match="implementation='mine' is not one of cpu, cuda, cpu-scalar, pure"):
        Config(implementation="mine")

"""Plans of kernels as whole texts; ``pytest --update-golden`` writes them anew."""

from __future__ import annotations

from pathlib import Path

import dace
import pytest

from dacergnn import Config, parse, print_plans
from dacergnn.graph.profile import TYPICAL, Profile
from dacergnn.library_nodes import Traversal
from dacergnn.library_nodes.traversal.device_plan import DevicePlan
from dacergnn.library_nodes.traversal.formats import FORMATS
from dacergnn.program import Program
from dacergnn.runtime.lower import lower, plan_of
from dacergnn.sdfg_passes import compile_program
from tests.program.golden import MODELS, assert_as_kept, learned, parsed

FOLDER = Path(__file__).parent / "golden"
HUBS = Profile(TYPICAL.rows, single_typed=True, hubs=(("dst", 500_000),))
SUM = """
def sums(g, x: NS[64], w: E):
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["out"] += e["w"] * e.src["x"]
    return out
"""


@pytest.mark.parametrize("name", MODELS)
def test_plans_of_models(name: str, request: pytest.FixtureRequest) -> None:
    found: dict[str, str] = {}
    for target in ("cpu", "cuda"):
        config = Config(implementation=target)
        plan = compile_program(parsed(name), learned(name), config, dace.int32, HUBS, keep=False)
        found[f"{name}_{target}.txt"] = "\n".join(map(print_plans, plan.parts))
    assert_as_kept(found, FOLDER, name, update=request.config.getoption("--update-golden"))


def test_plans_of_formats(request: pytest.FixtureRequest) -> None:
    found: dict[str, str] = {}
    for form in FORMATS:
        plan = compile_program(parse(SUM), [], Config(adjacency=form), dace.int32, TYPICAL_GRAPH, keep=False)
        found[f"sums_{form}.txt"] = print_plans(plan.forward)
    assert_as_kept(found, FOLDER, "sums", update=request.config.getoption("--update-golden"))


TYPICAL_GRAPH = Profile(TYPICAL.rows, single_typed=True)


def test_rows_that_are_loaded_ahead_on_devices() -> None:
    """A weighted sum: a lane has four elements and the weight of each of four rows; the weights are 4 bytes more."""
    plan = compile_program(parse(SUM), [], Config(implementation="cuda"), dace.int32, TYPICAL_GRAPH, keep=False)
    (device,) = [plan_of(operator, plan.forward) for operator in Program(plan.forward).operators]
    assert isinstance(device, DevicePlan)
    (rows,) = [loop for loop in device.loop.inside() if loop.leaf]
    assert rows.ahead == {("x", "src"), ("w", "")}
    assert rows.batch == 4
    assert device.requested == 4 * (4 + 1) * 4


@pytest.mark.parametrize("name", MODELS)
def test_a_plan_is_made_once(name: str) -> None:
    """Equal questions get the same object; text is printed by those who lower alone."""
    plan = compile_program(parsed(name), learned(name), Config(), dace.int32, TYPICAL_GRAPH, keep=False)
    program = Program(plan.forward)
    for operator in program.operators:
        arrays = operator.arrays(plan.forward, program.state)
        assert operator.plan("cpu", arrays) is operator.plan("cpu", arrays)
        assert list(operator.plan("cpu", arrays).encodings) == operator.encodings


def test_knobs_leave_a_plan_as_it_is() -> None:
    """Code differs where calls may differ by arguments only."""
    sdfg = compile_program(parse(SUM), [], Config(), dace.int32, TYPICAL_GRAPH, keep=False).forward
    program, before = Program(sdfg), lower(sdfg)
    (operator,) = (o for o in program.operators if isinstance(o, Traversal))
    arrays = operator.arrays(sdfg, program.state)
    plan = operator.plan("cpu", arrays)
    operator.tile_rows, operator.chunks = 64, 3
    assert operator.plan("cpu", arrays) is plan
    after = lower(sdfg)
    assert after.code == before.code
    assert after.schedule == {"out/tile_rows": 64, "out/chunks": 3}

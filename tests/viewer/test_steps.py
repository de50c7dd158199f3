"""What the pictures of a program say: phases of the backward, differences between steps, places of boxes."""

from __future__ import annotations

from itertools import pairwise

import pytest

from dacergnn.viewer.boxes import Box, Line
from dacergnn.viewer.layout import GAP, layout
from dacergnn.viewer.phases import phases_of
from dacergnn.viewer.steps import Side, Step, steps_of
from tests.support.random_programs import random_case
from tests.viewer.steps import ATTENTION, LEARNED, steps_of_program


@pytest.fixture(scope="module")
def steps() -> dict[str, Step]:
    """The steps that the page of the attention shows, by name; later ones of the same name win."""
    return {step.name: step for step in steps_of(steps_of_program(ATTENTION, LEARNED), {"E": 1000, "R": 3}, {})}


def side(step: Step, role: str) -> Side:
    (found,) = [s for s in step.sides if s.role == role]
    return found


def box(step: Step, role: str, name: str) -> Box:
    (found,) = [b for b in side(step, role).boxes if b.name == name]
    return found


def test_steps_that_change_nothing_are_left_out(steps: dict[str, Step]) -> None:
    assert {"frontend", "compact_materialization", "differentiate", "traversal_fusion"} < {*steps}
    assert "propagation_postponing" not in steps


def test_boxes_say_operation_and_rows(steps: dict[str, Step]) -> None:
    (line,) = box(steps["frontend"], "forward", "hs").lines
    assert (line.formula, line.rows) == ("hs = x[src] W[etype]", "E x 8")
    (line,) = box(steps["compact_materialization"], "forward", "hs").lines
    assert (line.formula, line.rows) == ("hs = x W[etype]", "U x 8")
    assert box(steps["frontend"], "forward", "total").note == "over incoming edges"


def test_arrays_have_sizes_in_numbers_where_the_graph_is_known(steps: dict[str, Step]) -> None:
    arrays = side(steps["frontend"], "forward").arrays
    assert (arrays["hs"].symbols, arrays["hs"].numbers, arrays["hs"].memory) == ("E x 8", "1,000 x 8", "32 kB")
    assert (arrays["x"].numbers, arrays["x"].memory) == ("NS x 8", "")
    backward = side(steps["differentiate"], "backward").arrays
    assert (backward["grad_out"].role, backward["x"].role) == ("gradient", "input")
    ahead = side(steps["differentiate"], "forward").arrays
    assert ahead["out"].role == "result"
    assert [name for name, array in ahead.items() if array.role == "saved"]


def test_a_step_tells_its_difference(steps: dict[str, Step]) -> None:
    difference = side(steps["compact_materialization"], "forward").difference
    assert difference is not None
    assert 'E: e["hs"] = linear(e.src["x"], W[e.etype])' in difference.removed
    assert 'U: p["hs"] = linear(p.src["x"], W[p.etype])' in difference.added
    assert difference.marks["hs"] == "new"
    assert "largest" not in difference.marks
    fusion = side(steps["traversal_fusion"], "forward").difference
    assert fusion is not None
    assert not fusion.added
    assert fusion.fused == ("tmp, att: one loop over V",)
    assert fusion.marks == {"att": "changed"}
    encodings = side(steps["select_adjacency"], "forward").difference
    assert encodings is not None
    assert not encodings.marks
    assert "total reads ptr_E_dst, ids_E_dst" in encodings.chosen


def test_phases_are_gradients_of_what_the_forward_computes(steps: dict[str, Step]) -> None:
    backward = side(steps["differentiate"], "backward")
    phases = {phase.title: [box.name for box in phase.parts] for phase in backward.phases}
    assert phases == {
        "gradient of factor": ["grad_factor"],
        "gradient of total": ["grad_total"],
        "gradient of att, tmp": ["grad_att", "grad_tmp"],  # the forward computes both in one loop
        "gradient of tmp_1, hs": ["grad_tmp_1", "grad_hs"],
        "gradient of W_k": ["grad_W_k"],
        "gradient of W_q": ["grad_W_q"],
        "gradient of x": ["grad_x", "grad_x_1", "grad_x_2", "grad_x_3"],
        "gradient of W": ["grad_W", "grad_W_1", "grad_W_2", "grad_W_3"],
        "gradient of q": ["tmp_2", "grad_q", "grad_q_1"],
        "gradient of k": ["tmp_3", "grad_k", "grad_k_1"],
    }
    (loop,) = [phase for phase in backward.phases if phase.title == "gradient of att, tmp"]
    assert (loop.peer, loop.summary) == ("att", "dot_prd, leakyrelu")


@pytest.mark.parametrize("seed", range(12))
def test_phases_hold_every_operator_once_and_come_in_order(seed: int) -> None:
    case = random_case(seed)
    for step in steps_of(steps_of_program(case.text, case.wrt), {}, {}):
        for shown in step.sides:
            assert sorted(b.name for phase in shown.phases for b in phase.parts or (phase,)) == sorted(
                b.name for b in shown.boxes
            )
            written: set[str] = set()
            later = {name for phase in shown.phases for name in phase.writes}
            for phase in shown.phases:
                assert not (later - written).intersection(phase.reads)
                written.update(phase.writes)


def test_phases_that_wait_for_each_other_are_divided() -> None:
    def operator(name: str, *reads: str) -> Box:
        line = Line(f"{name} = {' + '.join(reads)}", "E")
        return Box(name, "", "", "rows", (line,), "", reads, (name,), (), (), (), name)

    forward = [operator("y", "x")]
    backward = [operator("grad_x", "seed"), operator("grad_y", "grad_x"), operator("grad_x_1", "grad_y", "grad_x")]
    assert [p.title for p in phases_of(backward, forward, ["grad_x_1"])] == [
        "gradient of x",
        "gradient of y",
        "gradient of x",
    ]


@pytest.mark.parametrize("limit", [250, 10_000])
def test_boxes_do_not_overlap_and_stand_below_what_they_need(limit: float) -> None:
    names = [f"b{i}" for i in range(30)]
    widths = {name: 40.0 + 13 * (i % 7) for i, name in enumerate(names)}
    edges = [(names[i], names[j]) for i in range(30) for j in range(i + 1, 30) if (i * 7 + j * 3) % 11 == 0]
    found = layout(widths, edges, limit)
    assert sorted(name for layer in found.layers for name in layer) == sorted(names)
    for layer in found.layers:
        assert len(layer) == 1 or sum(widths[name] + GAP for name in layer) <= limit
        for left, right in pairwise(layer):
            assert found.x[right] - found.x[left] >= (widths[left] + widths[right]) / 2 + GAP - 1e-6
    level = {name: number for number, layer in enumerate(found.layers) for name in layer}
    for source, target in edges:
        assert level[source] < level[target]
        assert [layer for layer, _ in found.ways[source, target]] == [*range(level[source] + 1, level[target])]
    assert all(found.x[name] >= widths[name] / 2 for name in names)
    assert all(found.x[name] + widths[name] / 2 <= found.width + 1e-6 for name in names)

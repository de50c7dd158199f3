"""What moves behind a maximum: listings before and after, what stays, and what is saved for the backward."""

from __future__ import annotations

import dace
import numpy as np
import pytest

from dacergnn import Config, HeteroGraph, interpret, parse
from dacergnn.library_nodes.form import size
from dacergnn.program import Program
from dacergnn.program.listing import Listing
from dacergnn.sdfg_passes import Context, compile_program, differentiate
from dacergnn.sdfg_passes.extrema import behind_extrema
from dacergnn.sdfg_passes.propagation_postponing import PropagationPostponing
from dacergnn.sdfg_passes.regular import singular_arrays
from tests.support.rewrites import loops, on_graph, rewritten, unchanged


def behind(sdfg: dace.SDFG) -> int:
    """The rule alone."""
    listing = Listing.of(sdfg)
    fired = behind_extrema(listing, singular_arrays(listing))
    if fired:
        listing.settle()
        listing.write(sdfg)
    return fired


def program(*lines: str, out: str = "out") -> str:
    body = "".join(f"        {line}\n" for line in lines)
    return (
        "def p(g, x: NS[4], z: ND[4], f: E[4], s: ND, b: ONE[4], v: V[4]):\n"
        f"    for e in g.edges():\n{body}    return {out}\n"
    )


def extremum(value: str, op: str = "max") -> str:
    return program(f'e["h"] = {value}', f'e.dst["out"] = {op}(e.dst["out"], e["h"])')


DEGREE = """for n in g.dst_nodes():
    for e in n.incoming_edges():
        n["degree"] += 1.0
"""


def reduced(op: str, value: str = 'e.src["x"]') -> str:
    name = f"out_{op}"
    return (
        f'for n in g.dst_nodes():\n    for e in n.incoming_edges():\n        n["{name}"] = {op}(n["{name}"], {value})\n'
    )


def result(value: str) -> str:
    return f'for n in g.dst_nodes():\n    n["out"] = {value}\nreturn out'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            extremum("relu(e.dst.z + e.src.x + b)"),
            reduced("max") + DEGREE + result('relu((n["z"] + b + n["out_max"]) * clamp_max(n["degree"], 1.0))'),
        ),
        (
            extremum("e.dst.z - e.src.x"),
            reduced("min") + DEGREE + result('(n["z"] - n["out_min"]) * clamp_max(n["degree"], 1.0)'),
        ),
        (
            extremum("e.src.x * -2.0 - e.dst.s", "min"),
            reduced("max") + DEGREE + result('(n["out_max"] * -2.0 - n["s"]) * clamp_max(n["degree"], 1.0)'),
        ),
        # Functions that are 0 at 0 need no degrees.
        (
            extremum("elu(tanh(-(leakyrelu(e.src.x, 0.1) / 4.0)), 2.0)"),
            reduced("min") + result('elu(tanh(-(leakyrelu(n["out_min"], 0.1) / 4.0)), 2.0)'),
        ),
        (
            extremum("relu(sigmoid(e.src.x) - 0.5)"),
            reduced("max") + DEGREE + result('relu((sigmoid(n["out_max"]) - 0.5) * clamp_max(n["degree"], 1.0))'),
        ),
        (extremum("exp(e.src.x)"), reduced("max") + DEGREE + result('exp(n["out_max"]) * clamp_max(n["degree"], 1.0)')),
        # What differs from edge to edge stays there.
        (
            extremum("tanh(e.src.x + b - e.f)"),
            'for e in g.edges():\n    e["tmp"] = e.src["x"] - e["f"]\n' + reduced("max", 'e["tmp"]') + DEGREE
            + result('tanh((b + n["out_max"]) * clamp_max(n["degree"], 1.0))'),
        ),
    ],
)  # fmt: skip
def test_listings(before: str, after: str) -> None:
    assert rewritten(before, behind) == (1, after)


def test_pairs() -> None:
    before = program('e["h"] = relu(e.src.x + e.dst.z)', 'e.dst_pair["out"] = max(e.dst_pair["out"], e["h"])')
    count, after = rewritten(before, behind)
    assert count == 1
    assert 'p["out"] = relu((p.dst["z"] + p["out_max"]) * clamp_max(p["degree"], 1.0))' in after


@pytest.mark.parametrize(
    "before",
    [
        extremum("e.src.x"),
        extremum("e.src.x * e.dst.z"),
        extremum("abs(e.src.x)"),
        extremum("1.0 / (e.src.x + 3.0)"),
        extremum("gelu(e.src.x)"),
        extremum("leakyrelu(e.src.x, -0.5)"),
        extremum("e.src.x * 0.0"),
        extremum("e.src.x + 1.0 / e.dst.s"),  # a node without edges may have 0 there
        program('e["h"] = relu(e.src.x)', 'e.dst["out"] = max(e.dst["out"], e["h"])', out="out, h"),
        program('e["h"] = relu(e.src.x)', 'e.dst["out"] = max(e.dst["out"], e["h"])', 'S += e["h"]', out="out, S"),
        program('e["h"] = relu(e.src.x)', 'e.dst["out"] += e["h"]'),
        program('out[e.etype] = max(out[e.etype], relu(e.src.x))'),
    ],
)  # fmt: skip
def test_what_stays(before: str) -> None:
    assert unchanged(before, behind)


def test_sums_and_products_stay_operators_of_their_own() -> None:
    """What an extremum is taken of is inlined, but for these."""
    text = program(
        'e.dst["total"] += tanh(e.f)', 'e["m"] = linear(e.src.x, W)', 'e["k"] = e["m"] * e.dst["total"]',
        'e["h"] = relu(e["k"] * e.f)', 'e.dst["out"] = max(e.dst["out"], e["h"])',
    )  # fmt: skip
    count, after = rewritten(text.replace("v: V[4]", "W: ONE[4, 4]"), behind)
    assert count == 1
    assert 'e["m"] = linear(e.src["x"], W)' in after
    assert 'n["total"] += tanh(e["f"])' in after


EDGE_CONV = """def edge_conv(g, x: NS[8], W: ONE[16, 4], b: ONE[4]):
    for e in g.edges():
        e["h"] = {function}(linear(concat(e.dst.x, e.src.x - e.dst.x), W) + b)
    for n in g.dst_nodes():
        n["out"] = max(e["h"] for e in n.incoming_edges())
    return out
"""


@pytest.mark.parametrize("function", ["", "relu"])
def test_edge_conv_runs_on_nodes(function: str) -> None:
    text = EDGE_CONV.format(function=function)
    sdfg = parse(text)
    assert PropagationPostponing().run(sdfg, Context()) > 0
    assert "for e in g.edges()" not in loops(sdfg)
    rewritten(text, on_graph(PropagationPostponing()))


@pytest.mark.parametrize("function", ["", "relu"])
def test_edge_conv_saves_a_number_for_each_node_and_feature(function: str) -> None:
    plan = compile_program(parse(EDGE_CONV.format(function=function)), ["x", "W", "b"], Config(), dace.int32)
    program = Program(plan.forward)
    saved = {name: size(program.shape(name)) for name in plan.saved if program.space(name) in ("NS", "ND", "E")}
    saved.pop("out", None)  # the result itself
    assert sorted(saved.values()) == [1, 4], saved


def test_an_extremum_of_node_values_is_found_again() -> None:
    text = (
        "def p(g, x: NS[4]):\n    for n in g.dst_nodes():\n        n['m'] = {}(e.src.x for e in n.incoming_edges())\n"
    )
    text += "        n['out'] = n['m'] * 2.0\n    return out\n"
    gradient = differentiate(parse(text.format("min")), ["x"])
    assert gradient.saved == []
    assert 'n["m_1"] = min(n["m_1"], e.src["x"])' in loops(gradient.backward)
    square = parse(text.format("min").replace("* 2.0", '* n["m"]'))
    assert differentiate(square, ["x"]).saved == ["m"]  # which is read anyway


@pytest.mark.filterwarnings("ignore:invalid value encountered in")
@pytest.mark.parametrize(("op", "shares"), [("max", [1.0, 1.0, 3.0, 0.0]), ("min", [1.0, 4.0, 0.0, 0.0])])
def test_groups_with_nan_hand_nan_to_all_rows_and_others_their_share(op: str, shares: list[float]) -> None:
    """As torch does; of two equal rows each receives half, a node without edges hands on nothing."""
    loop = f"        n['out'] = {op}(e.src.x for e in n.incoming_edges())\n"
    text = f"def p(g, x: NS):\n    for n in g.dst_nodes():\n{loop}    return out\n"
    gradient = differentiate(parse(text), ["x"])
    graph = HeteroGraph.from_arrays(np.array([[0, 1, 2, 3, 3, 4], [0, 0, 1, 1, 2, 2]]), None, num_nodes=6)
    x, seed = np.array([np.nan, 1.0, 2.0, 2.0, 5.0, 6.0]), np.arange(1.0, 7.0)
    arrays = {"x": x, "grad_out": seed, **interpret(gradient.forward, graph, x=x)}
    backward = Program(gradient.backward)
    found = interpret(backward.sdfg, graph, **{n: arrays[n] for n in backward.inputs})[backward.outputs[0]]
    np.testing.assert_array_equal(found, [np.nan, np.nan, *shares])


def test_the_slope_of_what_weights_are_multiplied_with_is_read_off_that() -> None:
    text = """def p(g, x: NS[4], W: ONE[4, 4]):
    for e in g.edges():
        e["h"] = relu(e.src.x - e.dst.x)
        e["y"] = linear(e["h"], W)
        e["k"] = relu(e.src.x + e.dst.x)
        e["z"] = dot_prd(e["k"], e["k"])
    return y, z
"""
    gradient = differentiate(parse(text), ["x", "W"])
    assert sorted(gradient.saved) == ["h", "k"]
    backward = loops(gradient.backward)
    assert '(0.0 >= e["h"])' in backward
    assert '(0.0 >= e["k"])' not in backward
    assert 'e["h"]' not in loops(differentiate(parse(text), ["x"]).backward)  # nothing else reads it then

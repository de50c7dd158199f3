"""What the parser makes of the forms that random programs do not write."""

from __future__ import annotations

from typing import Any

import dace
import numpy as np
import pytest

from dacergnn import HeteroGraph, interpret, parse, print_program
from dacergnn.errors import ProgramError
from dacergnn.program import Program
from dacergnn.sdfg_passes import differentiate

# ruff: noqa: F821
# pyright: reportUndefinedVariable=false


def loops(source: Any, **bindings: Any) -> str:
    """The program without comments and without its first line."""
    lines = print_program(parse(source, **bindings)).splitlines()[1:]
    return "\n".join(line[4:] for line in lines if "#" not in line)


def halve(g, name, factor=0.5):
    """Functions have docstrings, defaults and loops of their own."""
    for n in g.dst_nodes():
        n[name] = n[name] * factor


def whole(g, x, y, W):
    """A program as a function; never run."""
    for e in g.edges():
        if mode == "sum" and W is not None:
            e["m"] = e.src.x @ W[e.etype]
        elif y:
            e["m"] = e.src.x + e.y
        else:
            e["m"] = e.src.x
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["out"] += e["m"]
    halve(g, "out")
    halve(g, "out", quarter)
    return out


MESSAGES = [
    ({"mode": "sum", "W": "R[4, 4]", "y": None}, 'e["m"] = linear(e.src["x"], W[e.etype])'),
    ({"mode": "mean", "W": "R[4, 4]", "y": "E"}, 'e["m"] = e.src["x"] + e["y"]'),
    ({"mode": "sum", "W": None, "y": None}, 'e["m"] = e.src["x"]'),
]


@pytest.mark.parametrize(("bindings", "message"), MESSAGES)
def test_functions_constants_and_conditions(bindings: dict[str, Any], message: str) -> None:
    assert (
        loops(whole, x="NS[4]", quarter=0.25, **bindings)
        == f"""for e in g.edges():
    {message}
for n in g.dst_nodes():
    for e in n.incoming_edges():
        n["out"] += e["m"]
for n in g.dst_nodes():
    n["out_1"] = n["out"] * 0.5
for n in g.dst_nodes():
    n["out_2"] = n["out_1"] * 0.25
return out_2"""
    )


def test_function_object_with_functions_of_its_module() -> None:
    def program(g, x):
        for n in g.dst_nodes():
            n["out"] = n.x
        halve(g, "out", 0.25)
        return out

    assert (
        loops(program, x="NS[4]")
        == """for n in g.dst_nodes():
    n["out"] = n["x"]
for n in g.dst_nodes():
    n["out_1"] = n["out"] * 0.25
return out_1"""
    )


def test_arrays_that_are_not_there() -> None:
    text = "def p(g, x, b):\n    for n in g.nodes():\n        n['y'] = n.x\n    return y\n"
    assert Program(parse(text, x="NS[4]", b=None)).inputs == ["x"]
    with pytest.raises(ProgramError, match='array "b" is not declared'):
        parse(text, x="NS[4]")


def test_sums_into_locals_of_the_outer_loop() -> None:
    text = """def p(g, x: NS[2]):
    for n in g.dst_nodes():
        total = 0.0
        largest = -1e30
        for e in n.incoming_edges():
            twice = 2.0 * e.src.x
            total += twice
            largest = max(largest, twice)
        n["out"] = total + largest
    for e in g.edges():
        everything += e.src.x
        smallest = min(smallest, e.src.x)
    return out, everything, smallest
"""
    graph = HeteroGraph.from_arrays((np.array([0, 1, 2]), np.array([1, 1, 0])), None, num_nodes=3)
    x = np.array([[1.0, -1.0], [2.0, 3.0], [5.0, -5.0]])
    sdfg = parse(text)
    values = interpret(sdfg, graph, x=x)
    out, everything, smallest = (values[n] for n in Program(sdfg).outputs)
    assert out.tolist() == [[20.0, -20.0], [10.0, 10.0], [0.0, 0.0]]
    assert everything.tolist() == [[8.0, -3.0]]
    assert smallest.tolist() == [[1.0, -5.0]]


def test_starting_values_of_reductions() -> None:
    text = """def p(g, s: E, b: ND):
    for n in g.dst_nodes():
        n["zero"] = 0.0
        n["far"] = -1e30
        n["kept"] = n.b
        for e in n.incoming_edges():
            n["zero"] += e.s
            n["far"] = max(n["far"], e.s)
            n["kept"] += e.s
    return zero, far, kept
"""
    assert loops(text).splitlines()[0:4] == [
        "for n in g.dst_nodes():",
        '    n["kept"] = n["b"]',
        "for n in g.dst_nodes():",
        "    for e in n.incoming_edges():",
    ]
    graph = HeteroGraph.from_arrays((np.array([0, 1]), np.array([1, 1])), None, num_nodes=2)
    sdfg = parse(text)
    values = interpret(sdfg, graph, s=[-1.0, -2.0], b=[10.0, 20.0])
    assert [values[n].tolist() for n in Program(sdfg).outputs] == [[0.0, -3.0], [0.0, -1.0], [10.0, 17.0]]


def test_one_name_in_several_row_spaces() -> None:
    text = """def p(g, x: NS):
    for e in g.edges():
        e["x"] = 2.0 * e.src.x
        e.dst["x"] += e["x"]
    for n in g.dst_nodes():
        n["y"] = n.x
        n["z"] = 1.0
    for e in g.edges():
        e["z"] = e.dst.x
    return y, z, x
"""
    graph = HeteroGraph.from_arrays((np.array([0, 1]), np.array([1, 1])), None, num_nodes=2)
    sdfg = parse(text)
    values = interpret(sdfg, graph, x=[1.0, 2.0])
    # z and x are taken from the destinations, the first row space that has them.
    assert [values[n].tolist() for n in Program(sdfg).outputs] == [[0.0, 6.0], [1.0, 1.0], [0.0, 6.0]]


def test_an_input_may_be_returned_and_a_result_twice() -> None:
    text = "def p(g, x: NS[2]):\n    for n in g.nodes():\n        n['y'] = 2.0 * n.x\n    return x, y, y\n"
    sdfg = parse(text)
    assert Program(sdfg).outputs == ["x_1", "y", "y_1"]
    sdfg.validate()
    gradient = differentiate(sdfg, ["x"])
    graph = HeteroGraph.from_arrays((np.array([0]), np.array([0])), None, num_nodes=1)
    seeds = {f"grad_{n}": [[k, 1.0]] for n, k in (("x_1", 1.0), ("y", 10.0), ("y_1", 100.0))}
    (output,) = Program(gradient.backward).outputs
    assert interpret(gradient.backward, graph, **seeds)[output].tolist() == [[221.0, 5.0]]


def test_element_type() -> None:
    sdfg = parse(
        "def p(g, x: NS):\n    for n in g.nodes():\n        n['y'] = n.x + 1\n    return y\n", dtype=dace.float64
    )
    assert {d.dtype for d in sdfg.arrays.values()} == {dace.float64}
    assert {d.dtype for d in differentiate(sdfg, ["x"]).backward.arrays.values()} == {dace.float64}


def test_comparisons_both_ways() -> None:
    text = """def p(g, a: E, b: E):
    for e in g.edges():
        e["y"] = (e.a < e.b) + 2 * (e.a <= e.b) + 4 * (e.a > e.b)
    return y
"""
    graph = HeteroGraph.from_arrays((np.array([0, 0, 0]), np.array([0, 0, 0])), None, num_nodes=1)
    assert interpret(parse(text), graph, a=[1, 2, 3], b=[2, 2, 2])["y"].tolist() == [3.0, 2.0, 4.0]


def test_text_is_the_same_for_equal_operands() -> None:
    """Equal products and reductions share one array in a backward program."""
    text = """def p(g, x: NS[3], W: R[3, 3]):
    for e in g.edges():
        e["a"] = linear(e.src.x, W[e.etype])
        e["b"] = linear(e.dst.x, W[e.etype])
        e["y"] = dot_prd(e["a"], e["b"])
    return y
"""
    backward = print_program(differentiate(parse(text), ["x", "W"]).backward)
    assert backward.count("outer_prod") == 2
    assert backward.count("linear(") == 2


def times(g, x, W):
    for e in g.edges():
        e["y"] = e.src.x * W[e.etype]
    return y


def test_a_row_times_a_sliced_matrix() -> None:
    """People write the product like that, as the papers do; in printed text every * is element-wise."""
    arrays = {"x": "NS[4]", "W": "R[4, 2]"}
    assert loops(times, **arrays).splitlines()[1] == '    e["y"] = linear(e.src["x"], W[e.etype])'
    text = "def p(g, x, W):\n    for e in g.edges():\n        e['y'] = e.src.x * W[e.etype]\n    return y\n"
    assert loops(text, **arrays).splitlines()[1] == '    e["y"] = e.src["x"] * W[e.etype]'
    # A value for each head scales vectors, in whatever order; a vector does, too, from the right.
    assert loops(times, x="NS", W="R[4]").splitlines()[1] == '    e["y"] = e.src["x"] * W[e.etype]'


def test_expressions_are_chosen_by_whether_an_array_is_there() -> None:
    text = "def f(g, x: NS[4], y):\n    for n in g.nodes():\n        n['z'] = (n.y if y else n.x) + 1.0\n    return z\n"
    assert 'n["z"] = n["x"] + 1.0' in print_program(parse(text, y=None))
    assert 'n["z"] = n["y"] + 1.0' in print_program(parse(text, y="NS[4]"))


def test_assignments_that_change_a_value() -> None:
    text = """
def p(g, x: NS[2]):
    for n in g.nodes():
        n["y"] = n.x * n.x
        n["y"] -= n.x
        n["y"] *= 3.0
        n["y"] /= n.x
    return y
"""
    x, sdfg = np.array([[1.0, 2.0], [4.0, -5.0]]), parse(text)
    graph = HeteroGraph.from_arrays(np.array([[0], [1]]), None, num_nodes=2)
    (name,) = Program(sdfg).outputs
    np.testing.assert_allclose(interpret(sdfg, graph, x=x)[name], 3 * (x - 1))

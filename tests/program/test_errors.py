"""Programs that are not in the form, each with its message, line and column; broken SDFGs, each with its invariant."""
# ruff: noqa: E501

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import dace
import pytest

from dacergnn import parse
from dacergnn.errors import ProgramError, VerificationError
from dacergnn.library_nodes.form import Op, Ref, Statement
from dacergnn.library_nodes.parse import KNOWN_OPERATORS
from dacergnn.native.build import include_options
from dacergnn.program import Program, verify
from dacergnn.program.names import name_problem

HEAD = "def p(g, x: NS[4], W: R[4, 2], w: R[4], s: E, b: ONE[4]):\n"

# Statements of an edge loop that starts in line 2, and the message.
EDGE_STATEMENTS = [
    (
        'e["y"] = mish(e.src.x)',
        f"line 3, column 18: unknown operator mish(); the program form has: {', '.join(sorted(KNOWN_OPERATORS))}",
    ),
    ('e["y"] = max(e.src.x)', "line 3, column 18: max() takes 2 operands"),
    ('e["y"] = tanh(x=e.src.x)', "line 3, column 18: operands are given by position, not by name: tanh(x, ...)"),
    (
        'e["y"] = e.src.x if e.s else 1.0',
        "line 3, column 18: this is not an expression of the program form; rows have no branches; multiply by a comparison: (e.s > 0.0) * e.src.x",
    ),
    (
        'e["y"] = e.other.x',
        "line 3, column 18: rows of this loop (E) have no .other; they have .src, .dst, .src_pair, .dst_pair",
    ),
    ('e["y"] = e["z"]', 'line 3, column 18: "z" has no value over E here; assign it first, or declare it as an input'),
    (
        'e["y"] = e.src.s',
        'line 3, column 18: "s" has no value over NS here; assign it first, or declare it as an input; it has rows E',
    ),
    (
        'e["y"] = x',
        'line 3, column 18: "x" is neither a local of this loop, nor a constant, nor an array of one row; it has rows NS',
    ),
    (
        'e["y"] = w[e.src]',
        "line 3, column 20: weights are sliced by a type: W[e.etype], W[n.ntype], W[e.src.ntype], W[e.dst.ntype], W[e.etype, e.src]",
    ),
    ('e["y"] = e[3]', 'line 3, column 18: row values are named by a string, as in e["att"]'),
    (
        'e["y"] = linear(W[e.etype], W[e.etype])',
        "line 3, column 9: linear: rows of shape (4, 2) and weights of shape (4, 2); expected (K,) with (K, M), or (H, K) with (H, K, M).",
    ),
    (
        'e["y"] = linear(e.src.x, e.src.x)',
        "line 3, column 9: linear: the weights are chosen by a type, as in W[e.etype] or W[n.ntype], or an array of one row.",
    ),
    (
        'e["z"] = W[e.etype]; e["y"] = linear(e.src.x, e["z"])',
        "line 4, column 9: linear: the weights are chosen by a type, as in W[e.etype] or W[n.ntype], or an array of one row.",
    ),
    (
        'e["y"] = linear(e.src.x, reshape(W[e.etype], 4, 2))',
        'line 3, column 9: linear: the weights "W" are used in the shape that they are declared with.',
    ),
    (
        'e["y"] = e.src.x.T',
        'line 3, column 9: "x" has row shape (4,); only matrices and stacks of them are transposed.',
    ),
    (
        "y[e.etype] += outer_prod(e.src.x, e.s)",
        "line 3, column 9: outer_prod: operands of row shapes (4,) and (); expected (K,) and (M,) or (H, K) and (H, M).",
    ),
    ('e["y"] = sum(e.s)', "line 3, column 9: sum: reduces the last axis, but the operands are scalars per row."),
    (
        'e["y"] = concat(e.s, e.src.x)',
        "line 3, column 9: concat: operands of row shapes () and (4,) may differ in the last axis only.",
    ),
    (
        'e["y"] = sum_heads(e.src.x)',
        "line 3, column 9: sum_heads: adds up the rows (K,) of a value (H, K), but the operand is (4,).",
    ),
    (
        'e["y"] = to_heads(e.src.x, 0)',
        "line 3, column 9: to_heads: takes (x, H), the number of rows (K,) that x is to be, not (0,).",
    ),
    (
        'e["y"] = slice(e.src.x, 2, 7)',
        "line 3, column 9: slice: takes (x, start, stop) within the last axis of x, not (2, 7) of (4,).",
    ),
    ('e["y"] = expand(e.src.x, 0)', "line 3, column 9: expand: appends axes of the given positive sizes, not (0,)."),
    ('e["y"] = reshape(e.src.x, 3)', 'line 3, column 9: reshape: "x" has row shape (4,), which does not fill (3,).'),
    (
        'e["y"] = reshape(e.src.x, s)',
        'line 3, column 35: "s" is neither a local of this loop, nor a constant, nor an array of one row; it has rows E',
    ),
    ('e["y"] = leakyrelu(e.src.x, e.dst.x)', "line 3, column 9: leakyrelu: the second operand is a constant."),
    ('e["y"] = log(-1.0) * e.src.x', "line 3, column 9: log of constants gives nan."),
    (
        'e.dst["y"] = e.src.x',
        "line 3, column 9: a row that several edges share is assigned by a reduction: +=, or n[x] = max(n[x], ...)",
    ),
    (
        'e.dst["y"] *= e.src.x',
        "line 3, column 9: reductions over neighbours are written +=, or as a maximum: n[x] = max(n[x], ...)",
    ),
    ('e["y"] **= 2.0', "line 3, column 9: assignments are =, +=, -=, *= and /="),
    ("z = y = e.src.x", 'line 3, column 9: one value is assigned at a time: e["y"] = e.src.x'),
    ("(e.s + 1.0)[0] = 3.0", "line 3, column 9: this is not an expression of the program form"),
    ('e["for"] = e.src.x', 'line 3, column 9: "for" is a word of Python or C++; choose another name'),
    (
        'e["idx_E_src"] = e.src.x',
        'line 3, column 9: "idx_E_src" reads like a graph encoding; choose a name that does not start with idx_',
    ),
    (
        'e.src.dst["y"] += e.s',
        "line 3, column 9: e.src has no .dst",
    ),
    ('e["y"] = "a"', "line 3, column 18: this is not an expression of the program form"),
    (
        'e["y"] = 1 < e.s < 2',
        "line 3, column 18: this is not an expression of the program form; comparisons are >, >=, <, <= and ==, of two values: (a < b) * (b < c)",
    ),
    ('e["y"] = reshape()', "line 3, column 18: reshape() takes a value and the sizes of its new row shape"),
    ('e["y"] = tanh()', "line 3, column 18: tanh() takes 1 operand"),
    ('e["y"] = max(*e.s)', "line 3, column 22: this is not an expression of the program form"),
    (
        'e["y"] = linear(2.0, W[e.etype])',
        "line 3, column 9: linear: rows of shape () and weights of shape (4, 2); expected (K,) with (K, M), or (H, K) with (H, K, M).",
    ),
]
PROGRAMS = [
    (
        '@    for p in g.src_pairs():\n        p["y"] = p.dst.x\n    return y\n',
        "line 3, column 18: rows of this loop (U) have no .dst; they have .src",
    ),
    (
        '@    for e in x:\n        e["y"] = e.s\n    return y\n',
        "line 2, column 14: loops run over g.edges(), g.nodes(), g.src_nodes(), g.dst_nodes(), g.src_pairs(), g.dst_pairs(), g.edge_types(), g.node_types(), g.once(), g.typed_nodes() or n.incoming_edges(), n.outgoing_edges()",
    ),
    (
        '@    for e in g.triangles():\n        e["y"] = e.s\n    return y\n',
        "line 2, column 14: unknown iterator triangles(); the graph has: edges, nodes, src_nodes, dst_nodes, src_pairs, dst_pairs, edge_types, node_types, once, typed_nodes",
    ),
    (
        '@    for e in g.edges():\n        for n in e.incoming_edges():\n            n["y"] += e.s\n    return y\n',
        "line 3, column 18: inner loops run over n.incoming_edges() of a destination or n.outgoing_edges() of a source",
    ),
    ('@    for e, f in g.edges():\n        e["y"] = e.s\n    return y\n', "line 2, column 9: a loop has one variable"),
    (
        '@    for e in g.edges():\n        while True:\n            e["y"] = e.s\n    return y\n',
        'line 3, column 9: loops hold assignments and loops over neighbours: e["y"] = e.src.x',
    ),
    (
        "@    y = 3\n    return y\n",
        "line 2, column 5: a program consists of loops over edges, nodes or pairs, and a return: for e in g.edges():",
    ),
    (
        "@    if x > z:\n        pass\n    return y\n",
        "line 2, column 8: conditions are decided at compile time, but z is not a constant; a condition on rows is a factor: (e.s > 0.0) * e.src.x",
    ),
    (
        "@    softmax(g, 'y')\n    return y\n",
        "line 2, column 5: unknown function softmax(); define it beside the program",
    ),
    (
        "def f(g, name):\n    pass\n\n@    f(g)\n    return y\n",
        "line 5, column 5: f() takes the graph and name, which are constants",
    ),
    (
        '@    for e in g.edges():\n        e["y"] = e.s\n',
        'line 1, column 1: program "p" returns nothing; end it with the names of its results: return out',
    ),
    ("@    return y\n", 'line 2, column 12: "y" was never assigned'),
    (
        '@    for e in g.edges():\n        e["y"] = e.s\n    return e.y\n',
        "line 4, column 5: return names the results: return out, or return out, att",
    ),
    (
        "def p(g, x):\n    return x\n",
        'line 1, column 10: array "x" is not declared; write it as x: NS[64] or pass x="NS[64]"',
    ),
    (
        "def p(g, x: N[4]):\n    return x\n",
        'line 1, column 13: "x" is declared as a row space with a row shape, as in NS[64]; row spaces: NS, ND, E, U, V, R, T, ONE, RNS; did you mean NS?',
    ),
    ("def p(g, x: NS[-4]):\n    return x\n", 'line 1, column 13: the row shape of "x" consists of positive integers'),
    (
        "def p(g, x: NS[4]):\n    for e in g.edges()\n    return x\n",
        "line 2, column 23: not Python syntax (expected ':')",
    ),
    ("x = 3\n", "the source holds no function; a program starts with def name(g, ...)."),
    (
        '@    for e in g.edges():\n        e["y"] = e.s\n    else:\n        pass\n    return y\n',
        "line 2, column 5: loops have no else",
    ),
    (
        '@    for n in g.dst_nodes():\n        n["y"] = n.src.x\n    return y\n',
        "line 3, column 18: rows of this loop (ND) have no .src",
    ),
    (
        "@    for n in g.dst_nodes():\n        n.y: int = 3\n    return y\n",
        'line 3, column 9: loops hold assignments and loops over neighbours: e["y"] = e.src.x',
    ),
    ("@    return\n", "line 2, column 5: return names the results: return out, or return out, att"),
]


@pytest.mark.parametrize(("statements", "message"), EDGE_STATEMENTS)
def test_statement(statements: str, message: str) -> None:
    body = "".join(f"        {line}\n" for line in statements.split("; "))
    check(f"{HEAD}    for e in g.edges():\n{body}    return y\n", message)


@pytest.mark.parametrize(("text", "message"), PROGRAMS)
def test_program(text: str, message: str) -> None:
    check(text.replace("@", HEAD), message)


def check(text: str, message: str) -> None:
    with pytest.raises(ProgramError) as caught:
        parse(text)
    first, *source = str(caught.value).splitlines()
    assert first == message
    assert len(source) <= 1  # the offending piece


def test_shapes_of_element_wise_operands() -> None:
    text = 'def p(g, x: NS[4], y: E[3]):\n    for e in g.edges():\n        e["z"] = e.src.x * e.y\n    return z\n'
    check(
        text,
        "line 3, column 9: mul: operands of shapes (3,) and (4,) do not agree; shapes align along leading axes, so a "
        "value of shape (H,) goes with one of shape (H, K).",
    )


# Invariants


def program() -> Program:
    text = """def p(g, x: NS[4], s: E, W: R[4, 2]):
    for e in g.edges():
        e["y"] = e.s * e.src.x
        e["z"] = linear(e["y"], W[e.etype])
        e.dst["out"] += e["z"]
    return out
"""
    return Program(parse(text))


def body(p: Program, name: str, text: str) -> None:
    """Give the operator that writes ``name`` another body, behind the back of the view."""
    operator = p.producer(name)
    assert operator is not None
    operator.body = [text]


def two_states(p: Program) -> None:
    p.sdfg.add_state("another")


def tasklet(p: Program) -> None:
    p.state.add_tasklet("stranger", {}, {}, "pass")


def rows(p: Program) -> None:
    p.sdfg.add_array("odd", [7, 4], dace.float32)


def twice(p: Program) -> None:
    p.insert(Statement("E", Ref("y"), "=", Ref("x", "src")))


def cycle(p: Program) -> None:
    p.add_array("a", "E", ())
    p.add_array("c", "E", ())
    p.insert(Statement("E", Ref("a"), "=", Ref("c")))
    p.insert(Statement("E", Ref("c"), "=", Ref("a")))


def ghost(p: Program) -> None:
    body(p, "y", 'e["ghost"] = e["s"] * e.src["x"]')


def no_map(p: Program) -> None:
    body(p, "y", 'e["y"] = e["s"] * e.dst_pair.src["x"]')


def wrong_rows(p: Program) -> None:
    body(p, "y", 'e["y"] = e["s"] * e["x"]')


def row_shapes(p: Program) -> None:
    p.add_array("n", "E", (3,))
    p.insert(Statement("E", Ref("n"), "=", Ref("x", "src")))


def scale(p: Program) -> None:
    p.add_array("n", "E", (2,))
    p.insert(Statement("E", Ref("n"), "=", Op("mul", (Ref("z"), Op("linear", (Ref("y"), Ref("W", "etype")))))))


def not_reduced(p: Program) -> None:
    body(p, "out", 'e.dst["out"] = e["z"]')


def own_reduced(p: Program) -> None:
    body(p, "y", 'e["y"] += e["s"] * e.src["x"]')


BROKEN: list[tuple[Callable[[Program], None], str]] = [
    (two_states, "I1: an inter-operator SDFG has one state, p has 2."),
    (tasklet, "I2: stranger is neither a library node of dacergnn nor an access node."),
    (rows, 'I3: "odd" has 7 rows, which is not a row space.'),
    (twice, 'I4: "y" is written by two operators.'),
    (cycle, 'I5: "c" is read by a before anything writes it.'),
    (ghost, 'I6: there is no array "ghost".'),
    (
        no_map,
        "I6: the body of y: line 1, column 19: e.dst_pair has no .src\n    e.dst_pair.src",
    ),
    (wrong_rows, 'I6: "x" has rows NS, but E.own leads to E.'),
    (row_shapes, 'I7: "n" has row shape (3,), but is assigned a value of row shape (4,).'),
    (scale, 'I7: "n": a product is scaled by one value for each row or head, not by one of row shape (2,).'),
    (not_reduced, 'I8: "out" is reached by "dst" and assigned with =; own rows are assigned, shared rows reduced.'),
    (own_reduced, 'I8: "y" is reached by "" and assigned with +=; own rows are assigned, shared rows reduced.'),
]


@pytest.mark.parametrize(("damage", "message"), BROKEN, ids=lambda v: getattr(v, "__name__", ""))
def test_invariant(damage: Callable[[Program], None], message: str) -> None:
    p = program()
    verify(p.sdfg)
    damage(p)
    with pytest.raises(VerificationError) as caught:
        verify(p.sdfg)
    assert str(caught.value) == message


def deep(value: str, helper: str = "") -> str:
    return f"""{helper}
def f(g, x: NS[4]):
    for n in g.dst_nodes():
        n["y"] = {value}
    return y
"""


TOO_DEEP = "this expression is more than 100 operators deep; assign a part of it to a local before"
MORE = "def more(v):\n    return 2.0 * v + 1.0\n"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (deep(" + ".join(["n.x"] * 2001)), "line 4"),
        (deep("n.x" + " * 2.0 - n.x" * 1000), "line 4"),
        (deep("-" * 2000 + "n.x"), "line 4"),
        (deep("exp(" * 150 + "n.x" + ")" * 150), "line 4"),
        (deep(f"sum({' + '.join(['e.src.x'] * 2001)} for e in n.incoming_edges())"), "line 4"),
        (deep("n" + ".src" * 2000), "line 4"),
        (deep("more(n.x)", MORE.replace("v + 1", " + ".join("v" * 2001) + " + 1")), "line 2"),
        (deep("more(" * 60 + "n.x" + ")" * 60, MORE), "line 2"),
        (deep("n.x").replace("NS[4]", f"NS[{'+'.join('1' * 2001)}]"), "line 2"),
        (deep("n.x").replace("n.x", "2.0").replace("for n", f"if {'-' * 2000}1:\n     for n"), "line 3"),
    ],
)  # fmt: skip
def test_deep_expressions(text: str, place: str) -> None:
    with pytest.raises(ProgramError) as caught:
        parse(text)
    assert caught.value.message == TOO_DEEP
    assert caught.value.location.partition(",")[0] == place


@pytest.mark.parametrize(
    "text",
    [
        deep("(" * 2000 + "n.x" + ")" * 2000),
        deep(" + ".join(["n.x"] * 50_000)),
        deep("n.x") + "\0",
        deep("n.x").replace("NS[4]", f"NS[{'-' * 20_000}4]"),
    ],
)
def test_sources_that_python_itself_cannot_parse(text: str) -> None:
    with pytest.raises(ProgramError):
        parse(text)


def test_the_deepest_expressions_that_are_taken() -> None:
    for value in (" + ".join(["n.x"] * 97), "exp(" * 97 + "n.x" + ")" * 97):
        parse(deep(value))
    parse(deep("n.x").replace('n["y"] = n.x', f"part = {' + '.join(['n.x'] * 90)}; n['y'] = part{' + n.x' * 90}"))


def test_no_array_has_the_name_of_a_macro(tmp_path: Path) -> None:
    """The compiler would put the macro's value in the place of the array, or fail without a word on the name."""
    source = tmp_path / "kernels.cpp"
    source.write_text('#include "include/dacergnn/kernels.h"\n')
    command = ["g++", "-std=gnu++20", "-fopenmp", *include_options(), "-dM", "-E", str(source)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    macros = {name for name in re.findall(r"^#define (\w+)", text, re.MULTILINE) if not name.startswith("_")}
    assert {"NULL", "INFINITY", "NAN"} <= macros
    assert not {name for name in macros if name_problem(name) is None}
    assert name_problem("INTERNAL") is name_problem("M_") is name_problem("Wq") is name_problem("before") is None

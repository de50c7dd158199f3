"""Functions that are not in program form, each with the place in its file and what it is told.

A message is preceded by the name of the file and followed by the offending piece of source.
"""
# ruff: noqa: E501

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from dacergnn import HeteroGraph
from dacergnn.errors import ProgramError
from dacergnn.library_nodes.parse import KNOWN_OPERATORS

FILE = """from __future__ import annotations

import dacergnn

sizes = (1, 2)


def f(a, b, c):
    return a


def two(a):
    b = a
    return b


def edge_softmax(g, name):
    pass


def tanh(x):
    return x


def again(g):
    again(g)


def broken(g):
    for e in g.edges():
        e["y"] = e.nothing


@dacergnn.compile
"""
HEAD = "def p(g, x: NS[4], W: R[4, 2], w: R[4], s: E, b: ONE[4]):\n"
EDGES = HEAD + "    for e in g.edges():\n        "
GRAPH = HeteroGraph.from_arrays(torch.tensor([[0, 1, 2], [1, 0, 1]]), torch.tensor([0, 1, 1]), num_nodes=3)
ARRAYS = {"x": (3, 4), "W": (2, 4, 2), "w": (2, 4), "s": (3,), "b": (4,)}

# A statement of a loop over edges, in line 37.
STATEMENTS = [
    (
        'e["y"] = tanh(e.src.x)',
        "37:18: tanh() is an operator of the program form; call the function beside it by another name",
    ),
    (
        'e["y"] = leaky_relu(e.src.x)',
        "37:18: unknown operator leaky_relu(); the program form has: <operators>; did you mean leakyrelu()?",
    ),
    (
        'e["y"] = dot_product(e.src.x, e.dst.x)',
        "37:18: unknown operator dot_product(); the program form has: <operators>; did you mean dot_prod()?",
    ),
    (
        'e["y"] = e.source.x',
        "37:18: rows of this loop (E) have no .source; they have .src, .dst, .src_pair, .dst_pair; did you mean .src?",
    ),
    ('e["y"] = e.src.nbr.x', "37:18: e.src has no .nbr"),
    ('e["y"] = n.x', '37:18: "n" is no variable of a loop here; there are e'),
    (
        'e["y"] = e.src.X',
        '37:18: "X" has no value over NS here; assign it first, or declare it as an input; did you mean "x"?',
    ),
    (
        'e["y"] = e["ss"]',
        '37:18: "ss" has no value over E here; assign it first, or declare it as an input; did you mean "s"?',
    ),
    (
        'e["y"] = e.dst.s',
        '37:18: "s" has no value over ND here; assign it first, or declare it as an input; it has rows E',
    ),
    (
        'e["y"] = x',
        '37:18: "x" is neither a local of this loop, nor a constant, nor an array of one row; it has rows NS',
    ),
    (
        'e["y"] = bb',
        '37:18: "bb" is neither a local of this loop, nor a constant, nor an array of one row; did you mean "b"?',
    ),
    (
        'e["y"] = linear(e.src.x, W[e.type])',
        "37:36: weights are sliced by a type: W[e.etype], W[n.ntype], W[e.src.ntype], W[e.dst.ntype], W[e.etype, e.src]; did you mean .etype?",
    ),
    (
        'e["y"] = linear(e.src.x, W[e.src])',
        "37:36: weights are sliced by a type: W[e.etype], W[n.ntype], W[e.src.ntype], W[e.dst.ntype], W[e.etype, e.src]",
    ),
    (
        'e["y"] = linear(e.src.x, W[e.ntype])',
        "37:36: weights are sliced by a type: W[e.etype], W[n.ntype], W[e.src.ntype], W[e.dst.ntype], W[e.etype, e.src]",
    ),
    (
        'e["y"] = linear(e.src.x, W[0])',
        "37:36: weights are sliced by a type: W[e.etype], W[n.ntype], W[e.src.ntype], W[e.dst.ntype], W[e.etype, e.src]",
    ),
    (
        'e["y"] = linear(e.src.x, w[e.etype])',
        "37:9: linear: rows of shape (4,) and weights of shape (4,); expected (K,) with (K, M), or (H, K) with (H, K, M).",
    ),
    (
        'e["y"] = linear(e.s, W[e.etype])',
        "37:9: linear: rows of shape () and weights of shape (4, 2); expected (K,) with (K, M), or (H, K) with (H, K, M).",
    ),
    (
        'e["y"] = linear(e.src.x, e.dst.x)',
        "37:9: linear: the weights are chosen by a type, as in W[e.etype] or W[n.ntype], or an array of one row.",
    ),
    ('e["y"] = concat(e.src.x)', "37:18: concat() takes two operands or more"),
    (
        'e["y"] = [e.src.x, e.dst.x]',
        "37:18: this is not an expression of the program form; values are joined by concat(a, b)",
    ),
    ('e["y"] = reshape(e.src.x, 3)', '37:9: reshape: "x" has row shape (4,), which does not fill (3,).'),
    ('e["y"] = reshape(e.src.x, e.s)', "37:35: a size must be an integer known at compile time"),
    ('e["y"] = e.src.x.exp()', "37:18: operators are called by their name alone: exp(...)"),
    ('e["y"] = torch.exp(e.src.x)', "37:18: operators are called by their name alone: exp(...)"),
    ('e["y"] = leakyrelu(e.src.x, slope=0.2)', "37:18: operands are given by position, not by name: leakyrelu(x, ...)"),
    ('e["y"] = leakyrelu(e.src.x, e.s)', "37:9: leakyrelu: the second operand is a constant."),
    (
        'e["y"] = e.src.x if e.s > 0 else e.dst.x',
        "37:18: this is not an expression of the program form; rows have no branches; multiply by a comparison: (e.s > 0.0) * e.src.x",
    ),
    (
        'e["y"] = e.s > 0 and e.s < 1',
        "37:18: this is not an expression of the program form; comparisons give 0 or 1: multiply them for and, add them for or",
    ),
    (
        'e["y"] = 0 < e.s < 1',
        "37:18: this is not an expression of the program form; comparisons are >, >=, <, <= and ==, of two values: (a < b) * (b < c)",
    ),
    (
        'e["y"] = e.src.x % 2',
        "37:18: this is not an expression of the program form; there are + - * / @ and, with a constant, **",
    ),
    ('e["y"] = mean(e.src.x)', "37:18: mean() runs over the edges of a row: mean(e.src.x for e in n.incoming_edges())"),
    ('e["y"] = f(e.src.x, e.dst.x)', "37:18: f() takes 3 arguments: a, b, c"),
    (
        'e["y"] = two(e.src.x)',
        "37:18: two() is used as a value, so it consists of one return: return leakyrelu(x, 0.2)",
    ),
    ('e["y"] = dot_prd(e.src.x)', "37:18: dot_prd() takes 2 operands"),
    ('e["y"] = max(e.src.x, e.dst.x, 0.0)', "37:18: max() takes 2 operands"),
    (
        'e.dst["y"] = e.src.x',
        "37:9: a row that several edges share is assigned by a reduction: +=, or n[x] = max(n[x], ...)",
    ),
    (
        'e.dst["y"] -= e.src.x',
        "37:9: reductions over neighbours are written +=, or as a maximum: n[x] = max(n[x], ...)",
    ),
    ('e["y"] //= 2', "37:9: assignments are =, +=, -=, *= and /="),
    ("e[0] = e.src.x", '37:9: row values are named by a string, as in e["att"]'),
    ('e["class"] = e.src.x', '37:9: "class" is a word of Python or C++; choose another name'),
    (
        'e["ptr_E_dst"] = e.src.x',
        '37:9: "ptr_E_dst" reads like a graph encoding; choose a name that does not start with ptr_',
    ),
    ("y, z = e.src.x, e.dst.x", '37:9: one value is assigned at a time: e["y"] = e.src.x'),
    ("relu(e.src.x)", '37:9: relu() gives a value; assign it to a row: e["y"] = relu(...)'),
    ("y: float = 0.0", '37:9: loops hold assignments and loops over neighbours: e["y"] = e.src.x'),
    ('e["y"] = sqrt(-1.0)', "37:9: sqrt of constants gives nan."),
    ('e["y"] = sizes[3] * e.src.x', "37:18: this has no value at compile time: tuple index out of range"),
    ('e["y"] = n["y"] = e.src.x', '37:9: one value is assigned at a time: e["y"] = e.src.x'),
    ('e["y"] = e.src.x.T', '37:9: "x" has row shape (4,); only matrices and stacks of them are transposed.'),
]
# What follows the head of a program, from line 36 on.
LOOPS = [
    (
        '    for e in g.edge():\n        e["y"] = e.s\n    return y',
        "36:14: unknown iterator edge(); the graph has: edges, nodes, src_nodes, dst_nodes, src_pairs, dst_pairs, edge_types, node_types, once, typed_nodes; did you mean g.edges()?",
    ),
    (
        '    for e in graph.edges:\n        e["y"] = e.s\n    return y',
        "36:14: loops run over g.edges(), g.nodes(), g.src_nodes(), g.dst_nodes(), g.src_pairs(), g.dst_pairs(), g.edge_types(), g.node_types(), g.once(), g.typed_nodes() or n.incoming_edges(), n.outgoing_edges()",
    ),
    (
        "    for i in range(3):\n        x[i] = 0.0\n    return y",
        "36:14: loops run over g.edges(), g.nodes(), g.src_nodes(), g.dst_nodes(), g.src_pairs(), g.dst_pairs(), g.edge_types(), g.node_types(), g.once(), g.typed_nodes() or n.incoming_edges(), n.outgoing_edges()",
    ),
    ('    for e, f in g.edges():\n        e["y"] = e.s\n    return y', "36:9: a loop has one variable"),
    (
        '    for n in g.dst_nodes():\n        for e in n.in_edges():\n            n["y"] += e.s\n    return y',
        "37:18: inner loops run over n.incoming_edges() of a destination or n.outgoing_edges() of a source; did you mean n.incoming_edges()?",
    ),
    (
        '    for n in g.dst_nodes():\n        for e in n.outgoing_edges():\n            n["y"] += e.s\n    return y',
        "37:18: inner loops run over n.incoming_edges() of a destination or n.outgoing_edges() of a source",
    ),
    (
        '    for e in g.edges():\n        for n in e.src_nodes():\n            n["y"] += e.s\n    return y',
        "37:18: inner loops run over n.incoming_edges() of a destination or n.outgoing_edges() of a source",
    ),
    (
        '    for n in g.dst_nodes():\n        n["y"] = sum(e.s for e in n.incoming_edges() if e.s > 0)\n    return y',
        "37:21: an aggregation has one for and no if: sum(e.src.x for e in n.incoming_edges()); a comparison times a value leaves out edges",
    ),
    (
        '    for n in g.dst_nodes():\n        n["y"] = sum(e.s for e in n.edges())\n    return y',
        "37:35: inner loops run over n.incoming_edges() of a destination or n.outgoing_edges() of a source",
    ),
    (
        '    for n in g.dst_nodes():\n        n["y"] = mean(n.x)\n    return y',
        "37:18: mean() runs over the edges of a row: mean(e.src.x for e in n.incoming_edges())",
    ),
    (
        '    for n in g.dst_nodes():\n        n["y"] = n.src.x\n    return y',
        "37:18: rows of this loop (ND) have no .src",
    ),
    (
        '    for p in g.dst_pairs():\n        p["y"] = p.src.x\n    return y',
        "37:18: rows of this loop (V) have no .src; they have .dst",
    ),
    (
        '    for n in g.dst_nodes():\n        n["out"] = n.x\n    return oout',
        '38:12: "oout" was never assigned; did you mean "out"?',
    ),
    (
        '    for n in g.dst_nodes():\n        n["out"] = n.x\n    return n.out',
        "38:5: return names the results: return out, or return out, att",
    ),
    (
        '    for n in g.dst_nodes():\n        n["out"] = n.x\n    return',
        "38:5: return names the results: return out, or return out, att",
    ),
    (
        '    for n in g.dst_nodes():\n        n["out"] = n.x',
        '35:1: program "p" returns nothing; end it with the names of its results: return out',
    ),
    (
        "    y = x\n    return y",
        "36:5: a program consists of loops over edges, nodes or pairs, and a return: for e in g.edges():",
    ),
    (
        "    while True:\n        pass\n    return y",
        "36:5: a program consists of loops over edges, nodes or pairs, and a return: for e in g.edges():",
    ),
    (
        '    edge_sofmax(g, "att")\n    return y',
        "36:5: unknown function edge_sofmax(); define it beside the program; did you mean edge_softmax()?",
    ),
    ("    edge_softmax(g)\n    return y", "36:5: edge_softmax() takes the graph and name, which are constants"),
    ("    edge_softmax(g, x)\n    return y", "36:5: edge_softmax() takes the graph and name, which are constants"),
    ("    exp(x)\n    return y", '36:5: exp() gives a value; assign it to a row: e["y"] = exp(...)'),
    (
        '    for e in g.edges():\n        if e.s > 0:\n            e["y"] = e.s\n    return y',
        "37:12: conditions are decided at compile time, but e is not a constant; a condition on rows is a factor: (e.s > 0.0) * e.src.x",
    ),
    (
        "    if heads > 1:\n        pass\n    return y",
        "36:8: conditions are decided at compile time, but heads is not a constant; a condition on rows is a factor: (e.s > 0.0) * e.src.x",
    ),
    (
        '    for e in g.edges():\n        e["y"] = e.s\n    else:\n        pass\n    return y',
        "36:5: loops have no else",
    ),
    ("    again(g)\n    return y", "26:5: again() calls itself; functions are inlined, which has to come to an end"),
    (
        "    broken(g)\n    return y",
        '31:18: "nothing" has no value over E here; assign it first, or declare it as an input',
    ),
    (
        "    for e in g.edges():\n        import torch\n    return y",
        '37:9: loops hold assignments and loops over neighbours: e["y"] = e.src.x',
    ),
]
# Whole programs, from line 35 on.
PROGRAMS = [
    (
        'def p(g, x, W):\n    for e in g.edges():\n        e["y"] = linear(e.src.x, W[e.etype])\n    for n in g.dst_nodes():\n        n["h"] = linear(n.x, W[n.ntype])\n    return y, h',
        '39:30: "W" is read over T (node types) here, but over R (edge types) at 37:34; an array has rows of one kind',
    ),
    (
        'def p(g, x, b):\n    for e in g.edges():\n        e["y"] = e.src.x + e.x\n    return y',
        '37:28: "x" is read over E (edges) here, but over NS (source nodes) at 37:18; an array has rows of one kind',
    ),
    (
        'def p(g, x, b):\n    for e in g.edges():\n        e["y"] = e.src.x\n    return y',
        '35:13: array "b" is never read, so nothing tells its rows; read it, take it out, or declare it as b: NS[64]',
    ),
    (
        'def p(g, x: N[4]):\n    for n in g.nodes():\n        n["y"] = n.x\n    return y',
        '35:13: "x" is declared as a row space with a row shape, as in NS[64]; row spaces: NS, ND, E, U, V, R, T, ONE, RNS; did you mean NS?',
    ),
    (
        'def p(g, x: NS[0]):\n    for n in g.nodes():\n        n["y"] = n.x\n    return y',
        '35:13: the row shape of "x" consists of positive integers',
    ),
    (
        'def p(g, x: NS[width]):\n    for n in g.nodes():\n        n["y"] = n.x\n    return y',
        '35:13: the row shape of "x" consists of positive integers; width is not a constant',
    ),
    (
        'def p(g, x: "NS[4"):\n    for n in g.nodes():\n        n["y"] = n.x\n    return y',
        "35:10: \"x\" is declared as 'NS[4'; write a row space and a row shape: NS[64]",
    ),
]
CASES = [
    *((EDGES + text + "\n    return y", message) for text, message in STATEMENTS),
    *((HEAD + text, message) for text, message in LOOPS),
    *PROGRAMS,
]


def load(folder: Path, program: str) -> Any:
    """The module of a file with the program."""
    path = folder / "layer.py"
    path.write_text(f"{FILE}{program}\n")
    spec = importlib.util.spec_from_file_location(f"rejected_{folder.name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("program", "message"), CASES)
def test_message_and_place(program: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    layer = load(tmp_path, program).p
    with pytest.raises(ProgramError) as caught:
        layer(GRAPH, *[torch.zeros(ARRAYS[n]) for n in layer.user.names])
    first, *source = str(caught.value).replace(f"{tmp_path}/layer.py:", "").splitlines()
    assert first == message.replace("<operators>", ", ".join(sorted(KNOWN_OPERATORS)))
    assert len(source) <= 1
    assert caught.value.location.startswith(f"{tmp_path}/layer.py:")


def test_the_piece_of_source_is_shown(tmp_path: Path) -> None:
    layer = load(tmp_path, EDGES + 'e["y"] = 2.0 * leaky(e.src.x)\n    return y').p
    with pytest.raises(
        ProgramError, match=r"layer\.py:37:24: unknown operator leaky\(\)(.|\n)*\n    leaky\(e\.src\.x\)$"
    ):
        layer(GRAPH, *[torch.zeros(shape) for shape in ARRAYS.values()])

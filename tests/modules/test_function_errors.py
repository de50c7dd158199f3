"""Wrong calls of functions in program form and of their modules, wrong settings, and what is no program."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import dacergnn
from dacergnn import HeteroGraph
from dacergnn.errors import ArrayError, ProgramError
from tests.modules.functions import GRAPH, rgat, two_results
from tests.modules.layers import EDGES, K, R

X, W3, B3 = torch.zeros(EDGES.num_src, K), torch.zeros(R, K, 3), torch.zeros(3)
CALLS: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    ((GRAPH, X), {"W": W3}, "b is missing; two_results takes x, W, b."),
    ((GRAPH, X, W3, B3, B3), {}, "two_results takes 3 arrays besides the graph (x, W, b), not 4."),
    ((GRAPH, X, W3), {"b": B3, "w": W3}, "w is no array of two_results; perhaps W is meant."),
    ((GRAPH, X, W3), {"x": X, "b": B3}, "x is given twice; leave it out."),
    (
        (GRAPH, X[1:], W3, B3),
        {},
        f"x has shape ({EDGES.num_src - 1}, {K}), but its rows are source nodes, of which the graph has "
        f"{EDGES.num_src}; it must have shape [{EDGES.num_src}, ...].",
    ),
    (
        (GRAPH, X, W3[1:], B3),
        {},
        f"W has shape ({R - 1}, {K}, 3), but its rows are edge types, of which the graph has {R}; it must have shape "
        f"[{R}, ...].",
    ),
    ((GRAPH, X, W3.double(), B3), {}, "W has dtype torch.float64, but x has torch.float32; use .to(torch.float32)."),
    (
        (GRAPH, X.long(), W3, B3),
        {},
        "x has dtype torch.int64; compiled layers take torch.float32, torch.float64, torch.bfloat16 or torch.float16; "
        "convert it with .float().",
    ),
    ((GRAPH, X, W3, 0.5), {}, "b is a float; it must be a tensor; give constants to compile."),
    ((X, X, W3, B3), {}, "graph is a Tensor; make a HeteroGraph of it with from_pyg, from_dgl or from_arrays."),
]


@pytest.mark.parametrize(("args", "kwargs", "message"), CALLS, ids=[c[2][:20] for c in CALLS])
def test_wrong_call(args: tuple[Any, ...], kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ArrayError) as caught:
        two_results(*args, **kwargs)
    assert str(caught.value) == message


def test_wrong_rows_on_a_graph_that_is_known() -> None:
    two_results(GRAPH, X, W3, B3)
    with pytest.raises(ArrayError, match=r"W has shape \(1, 6, 3\), but its rows are edge types"):
        two_results(GRAPH, X, W3[:1], B3)


def test_declared_shapes_are_checked() -> None:
    @dacergnn.compile(x=f"NS[{K}]")
    def program(g, x):
        for n in g.nodes():
            n["y"] = 2.0 * n.x
        return y

    with pytest.raises(ArrayError, match=rf"it must have shape \[{EDGES.num_src}, {K}\]"):
        program(GRAPH, X[:, 1:])


def test_graph_with_other_nodes_at_the_ends() -> None:
    graph = HeteroGraph.from_arrays(torch.tensor([[0, 1], [0, 0]]), None, num_nodes=(2, 2), bipartite=True)

    @dacergnn.compile
    def program(g, x):
        for e in g.edges():
            e["y"] = e.src.x + e.dst.x
        return y

    with pytest.raises(ArrayError, match="graph is bipartite, but program reads x at sources and at destinations"):
        program(graph, torch.zeros(2, 3))


WRONG_SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"slop": 0.2}, "compile: rgat has no array and reads no constant 'slop'; perhaps slope is meant."),
    ({"slope": [0.2]}, "compile: slope is of type list; it must be a number, text, truth value or tuple."),
    ({"x": 3}, 'compile: x is of type int; it must be a declaration like "NS[64]".'),
]


@pytest.mark.parametrize(("bindings", "message"), WRONG_SETTINGS)
def test_wrong_settings(bindings: dict[str, Any], message: str) -> None:
    with pytest.raises(ProgramError) as caught:
        dacergnn.compile(**bindings)(rgat.user.source)
    assert str(caught.value) == message


def test_what_is_no_program() -> None:
    def constant(g, x, heads=2): ...
    def many(g, *arrays): ...
    def none(): ...

    for wrong, message in (
        (constant, r"constant: heads=2 is no array; a program takes the graph and arrays"),
        (many, r"many: \*arrays is no array"),
        (none, r"none: a program takes the graph: def none\(g, x, \.\.\.\)"),
        ("text", r"compile takes a function in program form, not a str"),
    ):
        with pytest.raises(ProgramError, match=message):
            dacergnn.compile(wrong)  # type: ignore[arg-type]
    names: dict[str, Any] = {}
    exec("def unseen(g, x):\n    return x\n", names)
    with pytest.raises(ProgramError, match="cannot be read; define it with def in a file"):
        dacergnn.compile(names["unseen"])(GRAPH, X)


MODULES: list[tuple[dict[str, Any], str]] = [
    ({"x": K}, "x has a row for each of the graph's NS and is an input of the module; leave it out."),
    ({"w": (K, 3)}, "w is no array of two_results; perhaps W is meant."),
    ({"W": (K, 3), "b": 3, "type": 3}, "type is no array of two_results."),
    ({"W": (K, 3)}, "W has rows by type; give the module a graph, or num_edge_types and num_node_types."),
]


@pytest.mark.parametrize(("shapes", "message"), MODULES)
def test_wrong_modules(shapes: dict[str, Any], message: str) -> None:
    with pytest.raises(ArrayError) as caught:
        two_results.module(**shapes)
    assert str(caught.value) == message


def test_wrong_calls_of_modules() -> None:
    net = two_results.module(GRAPH, W=(K, 3), b=3)
    with pytest.raises(ArrayError, match=r"x is missing; two_results takes x\."):
        net(GRAPH)
    with pytest.raises(ArrayError, match=r"W is a parameter of this module already; leave it out\."):
        net(GRAPH, X, W=W3)


def test_names_that_modules_have_themselves() -> None:
    @dacergnn.compile
    def program(g, x, half):
        for n in g.nodes():
            n["y"] = n.x * half
        return y

    with pytest.raises(ArrayError, match="half is a name that modules of torch use themselves"):
        program.module(GRAPH, half=())

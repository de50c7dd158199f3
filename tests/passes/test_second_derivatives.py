"""The backward of every operator, differentiated again: it is the derivative of the derivative, as in torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dacergnn import HeteroGraph, interpret, parse
from dacergnn.library_nodes.operators import OPERATORS, STRUCTURAL
from dacergnn.program import Program
from dacergnn.sdfg_passes.gradient_program import gradient_program
from tests.support.random_graphs import RawGraph
from tests.support.torch_evaluate import torch_evaluate

Values = dict[str, Any]
GRAPH = RawGraph(
    np.array([0, 1, 2, 3, 4, 0]), np.array([1, 1, 0, 3, 2, 4]), np.array([0, 1, 1, 0, 1, 0]), np.array([0, 1, 0, 1, 0]),
    np.array([0, 1, 0, 1, 0]), 2, 2,
)  # fmt: skip
ANYWHERE = [-40.0, -20.0, -3.0, -1.0, -0.5, 0.0, 0.25, 1.0, 3.0, 20.0, 40.0]
POSITIVE = [1e-6, 0.25, 0.75, 1.0, 1.5, 4.0, 20.0]
UNARY = (
    "neg", "exp", "expm1", "sin", "cos", "abs", "erf", "tanh", "sigmoid", "silu", "softplus", "relu", "gelu", "detach",
    "round", "floor", "ceil", "trunc",
)  # fmt: skip
STATEMENTS = {
    "anywhere": [
        *(f"{name}(n.x) * n.x" if name != "neg" else "-n.x * n.x" for name in UNARY),
        "pow(n.x, 3.0) * n.y", "leakyrelu(n.x, 0.2) * n.x", "elu(n.x, 1.3)", "clamp_min(n.x, 0.25) * n.x",
        "clamp_max(n.x, 1.0) * n.x",
        "n.x + n.y * n.x", "(n.x - n.y) * n.y", "max(n.x, n.y) * n.y", "min(n.x, n.y * n.y)", "n.x / (n.y * n.y + 1.0)",
        "(n.x > n.y) * n.x * n.y", "(n.x >= n.y) * n.x * n.x", "(n.x == n.y) * n.x * n.x",
        "where(n.x > n.y, n.x * n.y, exp(clamp_max(n.x, 0.0)))",
    ],
    "positive": ["log(n.x)", "log1p(n.x)", "sqrt(n.x)", "n.y / n.x", "1.0 / sqrt(n.x)", "n.x * n.x * log(n.x / n.y)"],
    "shapes": [
        "sum(n.x * n.x) * n.x", "dot_prd(n.x, n.y) * n.x", "dot_prd(n.x, n.x)", "sum_heads(n.z * n.z)",
        "to_heads(n.x, 2) * n.z", "concat(n.x * n.y, n.x)", "slice(n.x * n.x, 1, 3)", "expand(sum(n.x) * sum(n.y), 4)",
        "take_rows(n.z * n.z, 1, 2)", "pad_rows(n.z * n.z, 1, 0)", "outer_prod(n.x, n.y)",
        "linear(n.x, W[n.ntype])", "linear(n.x * n.x, W[n.ntype])", "sum(outer_prod(n.x, n.x))",
    ],
    "weights": ["compose(t.W, t.a)", "inner(t.W, t.b)", "compose(t.a, t.W.T)", "compose(t.W, t.c)", "inner(t.W, t.W)"],
}  # fmt: skip
SHAPES = {
    "x": "NS[4]",
    "y": "NS[4]",
    "z": "NS[2, 4]",
    "W": "T[4, 3]",
    "a": "T[3, 3]",
    "b": "T[4, 2]",
    "c": "T[3, 1, 2]",
}


def program(kind: str) -> str:
    """One result for each statement."""
    rows = "t in g.node_types()" if kind == "weights" else "n in g.nodes()"
    lines = [f'    for {rows}:\n        {rows[0]}["r{i}"] = {text}' for i, text in enumerate(STATEMENTS[kind])]
    body = "\n".join(lines)
    used = [f"{n}: {s}" for n, s in SHAPES.items() if f".{n}" in body or f" {n}[" in body or f"({n}[" in body]
    results = ", ".join(f"r{i}" for i in range(len(lines)))
    return f"def program(g, {', '.join(used)}):\n{body}\n    return {results}\n"


def inputs(text: str, kind: str) -> dict[str, Tensor]:
    rng = np.random.default_rng(0)
    sizes = {"NS": 5, "T": 2}
    found: dict[str, Tensor] = {}
    for name, declared in SHAPES.items():
        if f"{name}: " in text:
            space, row = declared[:-1].split("[")
            shape = (sizes[space], *map(int, row.split(", ")))
            numbers = {"anywhere": ANYWHERE, "positive": POSITIVE}.get(kind)
            values = rng.standard_normal(shape) if numbers is None else rng.permutation(np.resize(numbers, shape))
            found[name] = torch.tensor(values, dtype=torch.float64)
    return found


def gradients_of(text: str, wrt: Sequence[str], graph: HeteroGraph, given: Values, seeds: Values) -> tuple[Values, str]:
    """Gradients of a program by the names of its inputs, and the program that they are the results of."""
    made = gradient_program(parse(text), wrt)
    assert made is not None
    results = Program(parse(made.text)).outputs
    names = Program(parse(made.text)).inputs
    start = {n: seeds[r] for n, r in zip(names[len(made.inputs) :], made.seeds, strict=True)}
    values = interpret(parse(made.text), graph, **{n: given[n] for n in made.inputs}, **start)
    return {n: values[r] for n, r in zip(made.wrt, results, strict=True)}, made.text


def test_every_operator_is_here() -> None:
    text = " ".join(t for texts in STATEMENTS.values() for t in texts)
    spelled = {
        "add": " + ",
        "sub": " - ",
        "mul": " * ",
        "div": " / ",
        "neg": "-n.x",
        "gt": " > ",
        "ge": " >= ",
        "eq": "==",
    }
    assert [n for n in (*OPERATORS, *STRUCTURAL) if spelled.get(n, f"{n}(") not in text] == []


@pytest.mark.parametrize("kind", STATEMENTS)
def test_second_derivatives(kind: str) -> None:
    text, graph = program(kind), GRAPH.hetero()
    given = inputs(text, kind)
    leaves = {n: t.clone().requires_grad_() for n, t in given.items()}
    results, _ = torch_evaluate(text, GRAPH, leaves)
    rng = np.random.default_rng(1)
    seeds = {f"r{i}": torch.tensor(rng.standard_normal(r.shape)).requires_grad_() for i, r in enumerate(results)}
    others = {n: torch.tensor(rng.standard_normal(t.shape)) for n, t in given.items()}
    first = torch.autograd.grad(results, list(leaves.values()), list(seeds.values()), create_graph=True)
    every = [*leaves.values(), *seeds.values()]
    second = torch.autograd.grad(first, every, list(others.values()), allow_unused=True)
    plain, start, around = ({n: t.detach().numpy() for n, t in group.items()} for group in (given, seeds, others))
    with np.errstate(all="ignore"):
        gradients, backward = gradients_of(text, list(given), graph, plain, start)
        arrays = dict(zip(Program(parse(backward)).inputs, [*plain.values(), *start.values()], strict=True))
        outer = dict(zip(Program(parse(backward)).outputs, around.values(), strict=True))
        found, _ = gradients_of(backward, list(arrays), graph, arrays, outer)
    for name, expected in zip(given, first, strict=True):
        np.testing.assert_allclose(gradients[name], expected.detach().numpy(), rtol=1e-9, atol=1e-12, err_msg=name)
    for name, expected in zip(arrays, second, strict=True):
        wanted = np.zeros(arrays[name].shape) if expected is None else expected.numpy()
        actual = found.get(name, np.zeros(arrays[name].shape))
        np.testing.assert_allclose(actual, wanted, rtol=1e-9, atol=1e-12, err_msg=f"gradient of {name} in {backward}")


def test_gradients_of_both_ends_are_sums_of_their_own() -> None:
    """The same numbers are summed by source and by destination."""
    text = """def p(g, x: NS[2]):
    for e in g.edges():
        e["y"] = e.src.x + e.dst.x
    return y
"""
    x = torch.randn(5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    (result,), _ = torch_evaluate(text, GRAPH, {"x": x})
    seed = torch.randn_like(result)
    (expected,) = torch.autograd.grad(result, x, seed)
    made = gradient_program(parse(text), ["x"])
    assert made is not None
    backward = parse(made.text)
    (given,) = Program(backward).inputs
    (name,) = Program(backward).outputs
    np.testing.assert_allclose(interpret(backward, GRAPH.hetero(), **{given: seed})[name], expected)

"""Every element-wise operator, from one end of the floating-point numbers to the other, in each expansion."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from runpy import run_path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import dacergnn
from dacergnn import Config, HeteroGraph
from dacergnn.library_nodes.operators import OPERATORS
from tests.support.far_out import SEED, WIDTH, assert_as_accurate, errors, exactly, operands, pairs

Function = Callable[..., Tensor]


UNARY: dict[str, tuple[str, Function]] = {
    "neg": ("-{x}", torch.neg), "exp": ("exp({x})", torch.exp), "log": ("log({x})", torch.log),
    "log1p": ("log1p({x})", torch.log1p), "sqrt": ("sqrt({x})", torch.sqrt), "abs": ("abs({x})", torch.abs),
    "erf": ("erf({x})", torch.erf), "tanh": ("tanh({x})", torch.tanh),
    "relu": ("relu({x})", F.relu), "gelu": ("gelu({x})", F.gelu),
    "softplus": ("softplus({x})", F.softplus), "elu": ("elu({x})", F.elu),
    "sin": ("sin({x})", torch.sin), "cos": ("cos({x})", torch.cos),
    "pow": ("pow({x}, 1.5)", lambda x: x.pow(1.5)),
    "leakyrelu": ("leakyrelu({x}, 0.2)", lambda x: F.leaky_relu(x, 0.2)),
    "sigmoid": ("sigmoid({x})", torch.sigmoid), "silu": ("silu({x})", F.silu), "expm1": ("expm1({x})", torch.expm1),
    "clamp_min": ("clamp_min({x}, 0.1)", lambda x: x.clamp_min(0.1)),
    "clamp_max": ("clamp_max({x}, 0.0)", lambda x: x.clamp_max(0.0)),
    "round": ("round({x})", torch.round), "floor": ("floor({x})", torch.floor), "ceil": ("ceil({x})", torch.ceil),
    "trunc": ("trunc({x})", torch.trunc),
    "detach": ("detach({x}) + {x}", lambda x: x.detach() + x),
}  # fmt: skip
BINARY: dict[str, tuple[str, Function]] = {
    "add": ("{x} + {y}", torch.add), "sub": ("{x} - {y}", torch.sub), "mul": ("{x} * {y}", torch.mul),
    "div": ("{x} / {y}", torch.div), "max": ("max({x}, {y})", torch.maximum), "min": ("min({x}, {y})", torch.minimum),
    "gt": ("({x} > {y}) * {x}", lambda x, y: (x > y) * x), "ge": ("({x} >= {y}) * {x}", lambda x, y: (x >= y) * x),
    "eq": ("({x} == {y}) * {x}", lambda x, y: (x == y) * x),
    "where": ("where({x} > {y}, {x}, {y})", lambda x, y: torch.where(x > y, x, y)),
}  # fmt: skip
EVERY = {**UNARY, **BINARY}


def program() -> str:
    """Each operator of arrays of its own, so that each gradient is that of one operator."""
    declared = [f"x_{name}: NS[{WIDTH}]" for name in EVERY] + [f"y_{name}: NS[{WIDTH}]" for name in BINARY]
    lines = [f'    n["z_{n}"] = ' + text.format(x=f"n.x_{n}", y=f"n.y_{n}") for n, (text, _) in EVERY.items()]
    loops = [f"    for n in g.nodes():\n    {line}" for line in lines]
    results = ", ".join(f"z_{name}" for name in EVERY)
    head = "from __future__ import annotations\n\n"
    return head + "\n".join([f"def program(g, {', '.join(declared)}):", *loops, f"    return {results}\n"])


def arguments(dtype: torch.dtype) -> list[Tensor]:
    x, (a, b) = operands(dtype), pairs(dtype)
    rows = max(len(x), len(a))
    x, a, b = (torch.cat([t, t.new_ones(rows - len(t), WIDTH)]) for t in (x, a, b))
    return [*[x] * len(UNARY), *[a] * len(BINARY), *[b] * len(BINARY)]


def in_torch(*given: Tensor) -> tuple[Tensor, ...]:
    x, y = given[: len(EVERY)], given[len(EVERY) :]
    unary = [f(a) for (_, f), a in zip(UNARY.values(), x, strict=False)]
    return (*unary, *[f(a, b) for (_, f), a, b in zip(BINARY.values(), x[len(UNARY) :], y, strict=True)])


def results(function: Callable[..., Any], given: list[Tensor]) -> dict[str, Tensor]:
    """Values, and the gradients of all operands, which have none where they are compared alone."""
    given = [t.clone().requires_grad_() for t in given]
    values = function(*given)
    seeds = [torch.full_like(v, SEED) for v in values]
    gradients = torch.autograd.grad(values, given, seeds, allow_unused=True)
    names = [*[f"{n} of x" for n in EVERY], *[f"{n} of y" for n in BINARY]]
    known = [torch.zeros_like(given[0]) if g is None else g for g in gradients]
    return dict(zip([*EVERY, *names], [*values, *known], strict=True))


def graph_of(rows: int) -> HeteroGraph:
    return HeteroGraph.from_arrays(torch.zeros(2, 1, dtype=torch.int64), None, num_nodes=rows)


@pytest.fixture(autouse=True)
def _as_users_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """Multiplications and additions are contracted as in their builds."""
    monkeypatch.delenv("CXXFLAGS", raising=False)


def check(found: dict[str, Any], dtype: torch.dtype, given: list[Tensor]) -> None:
    theirs, exact = results(in_torch, given), results(in_torch, [t.double() for t in given])
    narrow = [t.float() for t in given]
    single, wide = results(in_torch, narrow), results(in_torch, [t.double() for t in narrow])
    for name, values in found.items():
        function, gradient = name.removesuffix(" of x"), name.endswith(" of x")
        reference = exactly(function, gradient, given[0], exact[name])
        assert_as_accurate(values, theirs[name], reference, name, errors(single[name], wide[name]))


def test_every_operator_is_here() -> None:
    assert {*EVERY} == {*OPERATORS}


@pytest.mark.parametrize("implementation", ["cpu", pytest.param("pure", marks=pytest.mark.check)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_operators_far_out(implementation: str, dtype: torch.dtype, tmp_path: Path) -> None:
    given = arguments(dtype)
    source = tmp_path / "operators.py"
    source.write_text(program())
    compiled = dacergnn.compile(run_path(str(source))["program"], config=Config(implementation=implementation))
    graph = graph_of(len(given[0]))
    check(results(lambda *arrays: compiled(graph, *arrays), given), dtype, given)


def test_operators_far_out_in_the_interpreter() -> None:
    given = arguments(torch.float64)
    names = [*[f"x_{n}" for n in EVERY], *[f"y_{n}" for n in BINARY]]
    with np.errstate(all="ignore"):
        arrays = {n: t.numpy() for n, t in zip(names, given, strict=True)}
        found = dacergnn.interpret(dacergnn.parse(program()), graph_of(len(given[0])), **arrays)
    check({name: found[f"z_{name}"] for name in EVERY}, torch.float64, given)

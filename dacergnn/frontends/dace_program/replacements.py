"""Replacements of the functions of `dacergnn.ops` for DaCe's Python front end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dace
from dace.frontend.common import op_repository
from dace.frontend.python.common import StringLiteral

from dacergnn.frontends.dace_program import operators
from dacergnn.frontends.dace_program.insertion import insert_program
from dacergnn.library_nodes.node import row_shape, row_space


def _gather(_: Any, sdfg: dace.SDFG, state: dace.SDFGState, x: str, end: str = "src") -> list[str]:
    return insert_program(sdfg, state, operators.gather(row_space(sdfg.arrays[x]), end), {"x": x})


def _destinations(_: Any, sdfg: dace.SDFG, state: dace.SDFGState, x: str) -> list[str]:
    return insert_program(sdfg, state, operators.destinations(row_space(sdfg.arrays[x])), {"x": x})


def _typed_linear(
    _: Any, sdfg: dace.SDFG, state: dace.SDFGState, x: str, W: str, end: str | None = None, heads: int | None = None
) -> list[str]:
    rows, weights = ((row_space(sdfg.arrays[a]), row_shape(sdfg.arrays[a])) for a in (x, W))
    return insert_program(sdfg, state, operators.typed_linear(rows, weights, end, heads), {"x": x, "W": W})


def _scatter(
    _: Any, sdfg: dace.SDFG, state: dace.SDFGState, y: str, end: str = "dst", reduce: str = "sum"
) -> list[str]:
    return insert_program(sdfg, state, operators.aggregate("E", False, end, reduce), {"m": y})


def _aggregate(
    _: Any, sdfg: dace.SDFG, state: dace.SDFGState, messages: str, weight: str | None = None, end: str = "dst",
    reduce: str = "sum",
) -> list[str]:  # fmt: skip
    text = operators.aggregate(row_space(sdfg.arrays[messages]), weight is not None, end, reduce)
    return insert_program(sdfg, state, text, {"m": messages} | ({} if weight is None else {"w": weight}))


def _edge_softmax(_: Any, sdfg: dace.SDFG, state: dace.SDFGState, score: str, end: str = "dst") -> list[str]:
    return insert_program(sdfg, state, operators.edge_softmax(end), {"score": score})


def _traverse(_: Any, sdfg: dace.SDFG, state: dace.SDFGState, body: str, **arrays: str) -> list[str]:
    return insert_program(sdfg, state, operators.traverse(body, tuple(arrays)), arrays)


_FUNCTIONS = {
    "gather": _gather,
    "destinations": _destinations,
    "typed_linear": _typed_linear,
    "scatter": _scatter,
    "aggregate": _aggregate,
    "edge_softmax": _edge_softmax,
    "traverse": _traverse,
}


def register(module: str) -> None:
    """Registers the functions with DaCe as members of ``module``."""
    replaces: Any = op_repository.replaces
    for name, function in _FUNCTIONS.items():
        replaces(f"{module}.{name}")(_with_plain_strings(function))


def _with_plain_strings(function: Callable[..., list[str]]) -> Callable[..., list[str]]:
    """Unwraps texts of programs, which DaCe passes in a wrapper to distinguish them from names of arrays."""

    def plain(value: Any) -> Any:
        return value.value if isinstance(value, StringLiteral) else value

    def replacement(*args: Any, **kwargs: Any) -> list[str]:
        return function(*map(plain, args), **{name: plain(value) for name, value in kwargs.items()})

    return replacement

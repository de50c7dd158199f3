"""What a program and its gradients compute on a graph, by the interpreter in float64, and whether two agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import dace
import numpy as np

from dacergnn import HeteroGraph, interpret
from dacergnn.program import Program

Array = np.ndarray[Any, np.dtype[np.float64]]
TOLERANCE = 1e-10


class Differentiated(Protocol):
    """A forward, the backward that belongs to it, and the inputs that its results are gradients of, in order."""

    @property
    def forward(self) -> dace.SDFG: ...
    @property
    def backward(self) -> dace.SDFG | None: ...
    @property
    def wrt(self) -> list[str]: ...


@dataclass(frozen=True)
class Computed:
    """Results by name, and gradients by the name of the input."""

    results: dict[str, Array]
    gradients: dict[str, Array]


def compute(program: Differentiated, results: Sequence[str], graph: HeteroGraph, inputs: Mapping[str, Any]) -> Computed:
    """Run forward and backward; the gradients that come in are `seeds`."""
    values = interpret(program.forward, graph, **inputs)
    found = {name: values[name] for name in results}
    known = values | {f"grad_{name}": seed for name, seed in seeds(found).items()}
    if program.backward is None:
        return Computed(found, {})
    backward = Program(program.backward)
    given = {name: known[name] for name in backward.inputs}
    pulled = interpret(program.backward, graph, **given)
    return Computed(found, {n: pulled[g] for n, g in zip(program.wrt, backward.outputs, strict=True)})


def seeds(results: Mapping[str, Array]) -> dict[str, Array]:
    """Gradients to start from, the same for results of the same shapes."""
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(array.shape) for name, array in results.items()}


def assert_same(actual: Computed, expected: Computed) -> None:
    """Equal to 1e-10, relative to the largest value; a gradient that is not there is zero."""
    assert_close(actual.results, expected.results)
    names = {*actual.gradients, *expected.gradients}
    assert_close(*({n: c.gradients.get(n, np.zeros(())) for n in names} for c in (actual, expected)))


def assert_close(actual: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    for name, array in expected.items():
        assert actual[name].shape == array.shape or 0 in (actual[name].ndim, array.ndim), name
        if actual[name].size and array.size:
            error = np.abs(actual[name] - array).max() / max(1.0, np.abs(array).max())
            assert error <= TOLERANCE, f"{name}: {error}"

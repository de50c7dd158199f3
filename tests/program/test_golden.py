"""Listings of programs as the passes change them, as whole texts; ``pytest --update-golden`` writes them anew."""

from __future__ import annotations

import random

import dace
import numpy as np
import pytest

from dacergnn import interpret, parse, print_program
from dacergnn.program import Program
from tests.program.golden import FOLDER, LISTED, assert_as_kept, bare, listings, plan
from tests.support.random_graphs import joined_graph


@pytest.mark.parametrize("name", LISTED)
def test_listings(name: str, request: pytest.FixtureRequest) -> None:
    assert_as_kept(listings(name), FOLDER, name, update=request.config.getoption("--update-golden"))


@pytest.mark.parametrize("name", LISTED)
def test_listings_parse_back(name: str) -> None:
    """Every step is printed as text that means the same, and that prints the same until operators are fused."""
    fused = False
    for step in plan(name).steps:
        fused = fused or step.name in ("narrow_products", "gemm_epilogue_fusion", "traversal_fusion")
        for role, sdfg in step.sdfgs.items():
            if step.fired.get(role) == 0:  # the program of the step before
                continue
            again = parse(print_program(sdfg))
            if fused:
                assert_same_results(again, sdfg)
            else:
                assert bare(again) == bare(sdfg), f"{role} after {step.name}"


def assert_same_results(one: dace.SDFG, other: dace.SDFG) -> None:
    graph = joined_graph(random.Random(0), 9, 30, 4, 3).hetero()
    program, generator = Program(other), np.random.default_rng(0)
    inputs = {
        name: generator.uniform(0.5, 1.5, (graph.size(program.space(name)), *program.shape(name)))
        for name in program.inputs
        if not name.startswith(("idx_", "ptr_", "ids_"))
    }
    with np.errstate(all="ignore"):  # values that come from the forward are no such here
        first, second = (interpret(sdfg, graph, **inputs) for sdfg in (one, other))
    for name, again in zip(program.outputs, Program(one).outputs, strict=True):
        np.testing.assert_allclose(first[again], second[name], rtol=1e-10, atol=1e-10, err_msg=name)


def test_three_models_fit_on_a_page() -> None:
    """At most 51 lines for the three, as Hector counts them."""
    import inspect

    from dacergnn.frontends import programs

    lines = inspect.getsource(programs).split("def edge_softmax")[1].splitlines()
    assert len([line for line in lines if line.strip()]) <= 51

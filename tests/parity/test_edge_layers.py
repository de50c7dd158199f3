"""EdgeConv and MoNet: restatements against the layers, programs and compiled layers against the restatements."""

from __future__ import annotations

from functools import partial

import pytest
import torch

import dacergnn
from dacergnn.modules import CompiledLayer
from tests.frontends.cases import Case
from tests.frontends.check import assert_same, run, skip_without_library
from tests.frontends.edge_cases import DYNAMIC_CASES, EDGE_CASES
from tests.frontends.test_programs import call
from tests.frontends.test_references import test_restatement_equals_layer as check_restatement

ALL = [*EDGE_CASES, *DYNAMIC_CASES]
VECTORIZED = ("dgl-edgeconv-plain", "dgl-gmm-max-no_bias")
"""Modes that run in float32 as well; those of PyG do so on real graphs."""


@pytest.mark.parametrize("case", EDGE_CASES, ids=lambda case: case.name)
def test_restatement_equals_layer(case: Case) -> None:
    check_restatement(case, torch.float64)


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_program_equals_restatement(case: Case) -> None:
    skip_without_library(case)
    edges = case.edges()
    layer, (args, kwargs) = case.layer(edges, torch.float64), case.inputs(edges, torch.float64)
    with torch.no_grad():
        assert_same(call(case, layer, (args, kwargs)), case.reference(layer, *args, **kwargs), torch.float64)


def compare(case: Case, dtype: torch.dtype) -> None:
    """Outputs and gradients of the compiled layer and of the restatement; those of repeated calls without gradients."""
    skip_without_library(case)
    edges = case.edges()
    layer, arguments = case.layer(edges, dtype), case.inputs(edges, dtype)
    compiled = dacergnn.optimize(layer, on_unsupported="error")
    assert isinstance(compiled, CompiledLayer)
    expected, found = run(partial(case.reference, layer), layer, arguments), run(compiled, compiled, arguments)
    assert_same(found[0], expected[0], dtype)
    assert_same(found[1], expected[1], dtype)
    for _ in range(2):  # the second is a repeated one
        assert_same(run(compiled, compiled, arguments)[1], expected[1], dtype)
    if case.library == "pyg" and case in EDGE_CASES and "pair" not in case.name:
        assert compiled.runner.repeated is not None
    with torch.no_grad():
        assert_same(compiled(*arguments[0], **arguments[1]), expected[0], dtype)


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_layer_in_double_precision(case: Case) -> None:
    compare(case, torch.float64)


@pytest.mark.compiled
@pytest.mark.parametrize("case", [c for c in EDGE_CASES if c.name in VECTORIZED], ids=lambda case: case.name)
def test_layer_in_single_precision(case: Case) -> None:
    compare(case, torch.float32)

"""The restatements against the layers themselves: only what agrees here may judge compiled layers."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from tests.frontends.cases import CASES, Case
from tests.frontends.check import assert_same, run, skip_without_library


@pytest.mark.filterwarnings("ignore:Sparse ")  # torch, of adjacencies
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_restatement_equals_layer(case: Case, dtype: torch.dtype) -> None:
    skip_without_library(case)
    edges = case.edges()
    layer, arguments = case.layer(edges, dtype), case.inputs(edges, dtype)
    expected = run(layer, layer, arguments)
    found = run(partial(case.reference, layer), layer, arguments)
    assert_same(found[0], expected[0], dtype)
    assert_same(found[1], expected[1], dtype)

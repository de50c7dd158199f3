"""Compiled layers on AIFB and MUTAG against the restatements, which other tests tie to the layers of PyG and DGL.

The layers themselves take seconds there: PyG's RGCNConv loops over all relations.
"""

from __future__ import annotations

from functools import cache, partial

import pytest
import torch

import dacergnn
from tests.frontends.cases import REAL_CASES, Case
from tests.frontends.check import assert_same, run, skip_without_library
from tests.frontends.graphs import Edges, real_edges


@cache
def graph(name: str) -> Edges | None:
    return real_edges(name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", ["aifb", "mutag"])
@pytest.mark.parametrize("case", REAL_CASES, ids=lambda case: case.name)
def test_real_graph(case: Case, name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_without_library(case)
    edges = graph(name)
    if edges is None:
        pytest.skip(f"DACERGNN_DATA holds no {name}.npz")
    if dtype is torch.float64:
        monkeypatch.setenv("CXXFLAGS", "-O1")
    layer, arguments = case.layer(edges, dtype), case.inputs(edges, dtype)
    compiled = dacergnn.optimize(layer, on_unsupported="error")
    expected = run(partial(case.reference, layer), layer, arguments)
    found = run(compiled, compiled, arguments)
    assert_same(found[0], expected[0], dtype)
    assert_same(found[1], expected[1], dtype)

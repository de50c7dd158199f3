"""Compiled layers on AIFB, MUTAG and Cora against the restatements, which other tests tie to the layers of PyG and DGL.

The layers themselves take seconds there: PyG's RGCNConv loops over all relations. The restatements run in float64,
because in float32 their sums over the edges of a hub are further from the truth than the tolerance.
"""

from __future__ import annotations

import copy
from functools import cache, partial
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

import dacergnn
from tests.frontends.cases import CASES, Case
from tests.frontends.check import TOLERANCE, assert_same, run, skip_without_library
from tests.frontends.convolution_cases import CONVOLUTIONS
from tests.frontends.edge_cases import EDGE_CASES
from tests.frontends.graphs import Edges, real_edges
from tests.parity.flags import flags

Gradients = list[Tensor | None]
UNTYPED = [case for case in (*CONVOLUTIONS, *EDGE_CASES) if case.real]
TYPED = [case for case in CASES if case.real and case not in UNTYPED]
COMPILED = (
    *("pyg-rgcn-x-mean", "pyg-rgat-heads", "dgl-hgt-residual", "pyg-gatv2-residual", "pyg-rgcn-x-max"),
    *("pyg-rgat-within-additive-None", "pyg-gcn-plain", "pyg-edgeconv-relu-max", "pyg-gmm-mean"),
)
"""Modes whose kernels run there, one or more of each kind and graph; the others run in NumPy."""
REAL = [
    pytest.param(case, *rest, marks=[pytest.mark.compiled] if case.name in COMPILED else [])
    for case, *rest in (
        *product(TYPED[::2], ("aifb",), (torch.float32,)),
        *product(TYPED[1::2], ("mutag",), (torch.float64,)),
        *product(UNTYPED, ("cora",), (torch.float32,)),
    )
]


@cache
def graph(name: str) -> Edges | None:
    return real_edges(name)


def double(value: Any) -> Any:
    """`value` with floating-point tensors of the same values in float64."""
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.detach().double().requires_grad_(value.requires_grad)
    if isinstance(value, dict):
        return {key: double(item) for key, item in value.items()}
    return tuple(double(item) for item in value) if isinstance(value, tuple) else value


def assert_as_exact(found: Gradients, rounded: Gradients, exact: Gradients) -> None:
    """Within the tolerance, but where terms cancel, no further off than three times plain PyTorch in float32."""
    for position, (a, b, c) in enumerate(zip(found, rounded, exact, strict=True)):
        if c is None:
            assert a is None or not a.any(), f"gradient {position} should be zero"
            continue
        assert a is not None
        assert b is not None
        error, usual = ((part - c).abs().max().item() for part in (a, b))
        limit = max(TOLERANCE[torch.float32] * max(1.0, c.abs().max().item()), 3 * usual)
        assert error <= limit, f"gradient {position} of shape {list(c.shape)} is off by {error}"


@pytest.mark.parametrize(("case", "name", "dtype"), REAL, ids=lambda value: getattr(value, "name", str(value)))
def test_real_graph(case: Case, name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_without_library(case)
    edges = graph(name)
    if edges is None:
        pytest.skip(f"DACERGNN_DATA holds no {name}.npz")
    monkeypatch.setenv("CXXFLAGS", flags(case, "-O1") if dtype is torch.float32 else "-O1")
    layer, arguments = case.layer(edges, dtype), case.inputs(edges, dtype)
    compiled = dacergnn.optimize(layer, on_unsupported="error")
    exact = copy.deepcopy(layer).double()
    expected = run(partial(case.reference, exact), exact, double(arguments))
    found = run(compiled, compiled, arguments)
    assert_same(found[0], expected[0], dtype)
    if dtype is torch.float64:
        assert_same(found[1], expected[1], dtype)
    else:
        rounded = run(partial(case.reference, layer), layer, arguments)
        assert_as_exact(found[1], rounded[1], expected[1])

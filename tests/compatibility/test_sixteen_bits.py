"""Layers of every kind with elements of 16 bits on the CPU: results and gradients against float64."""

from __future__ import annotations

from typing import Any

import dgl
import pytest
import torch
from torch import Tensor, nn

import dacergnn
from tests.compatibility.comparing import assert_same, every_kind
from tests.compatibility.kinds import KINDS, F, Kind, N, UserLayer, edges, outputs

HALF = (
    *("pyg.RGCNConv-max", "pyg.RGATConv-modes", "pyg.HGTConv", "pyg.GCNConv", "pyg.SAGEConv-normalize"),
    *("pyg.GATv2Conv", "pyg.EdgeConv", "pyg.HeteroConv-TransformerConv", "pyg.traced-UserLayer"),
    *("dgl.GINConv", "dgl.GMMConv", "compile-DGL-forward", "own.RGCN"),
)
"""Kinds that run with elements of float16 as well: norms, exponentials, maxima and quotients are among them."""
TYPES = [*((kind, torch.bfloat16) for kind in KINDS), *((k, torch.float16) for k in KINDS if k.name in HALF)]
TRACED = (
    "pyg.traced-ResGatedGraphConv", "pyg.traced-UserLayer", "dgl.traced-DotGatConv", "compile-DGL-forward",
    "pyg.to_hetero-SAGEConv",
)  # fmt: skip

FLOAT32_ALONE = ("dgl.GraphConv",)
"""Layers that under autocast take features of float32, but none of 16 bits, while their parameters are of float32."""


def rounded(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Rounds parameters to what ``dtype`` holds; returns the module in float64."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(parameter.to(dtype))
    return module


def results(kind: Kind, module: nn.Module, dtype: torch.dtype, rounding: torch.dtype) -> list[Tensor]:
    """Outputs of a call, and gradients of its features and of the parameters that have one."""
    leaves = [x.to(rounding).to(dtype).requires_grad_() for x in kind.features()]
    found = outputs(module(*kind.call(*leaves)))
    weights = (torch.linspace(-1, 1, part.numel()).view(part.shape).to(part.dtype) for part in found)
    loss = torch.stack([(part * weight).double().sum() for part, weight in zip(found, weights, strict=True)]).sum()
    gradients: Any = torch.autograd.grad(loss, [*leaves, *module.parameters()], allow_unused=True)
    return [t.detach() for t in (*found, *gradients) if t is not None]


@pytest.mark.parametrize(("kind", "dtype"), TYPES, ids=lambda value: getattr(value, "name", str(value)))
def test_elements_of_sixteen_bits(kind: Kind, dtype: torch.dtype) -> None:
    expected = results(kind, rounded(kind.original(), dtype), torch.float64, dtype)
    found = results(kind, kind.compiled(dtype), dtype, dtype)
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype is dtype
        scale = max(float(b.abs().max()), 1.0)  # of the terms of sums, which may cancel
        error = float((a.double() - b).abs().max())
        assert error <= 2 * torch.finfo(dtype).eps * scale, (a.shape, error / scale)


def types_of_results(kind: Kind, leaves: list[Tensor]) -> list[torch.dtype]:
    """Types that the original's results have under autocast; bfloat16 of layers that have no original, or one that
    raises an error since its arrays have different types."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        try:
            return [part.dtype for part in outputs(kind.original().float()(*kind.call(*leaves)))]
        except (dgl.DGLError, AttributeError):
            return [torch.bfloat16]


@pytest.mark.parametrize("calls", [0, 3], ids=["first", "between-others"])
@every_kind
def test_autocast(kind: Kind, calls: int) -> None:
    """Layers compute in the type of autocast, traced ones in that of their parameters; results have the types of the
    original's, gradients those of what they belong to. Calls before and after know nothing of it."""
    module = kind.compiled(torch.float32)
    leaves = [x.float().requires_grad_() for x in kind.features()]
    others = [outputs(module(*kind.call(*leaves))) for _ in range(calls)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        module(*kind.call(*leaves))  # the first call of a recorded layer is its original's
        found = outputs(module(*kind.call(*leaves)))
    loss = torch.stack([part.double().square().sum() for part in found]).sum()
    gradients = torch.autograd.grad(loss, [*leaves, *module.parameters()], allow_unused=True)
    assert {g.dtype for g in gradients if g is not None} == {torch.float32}
    assert all(g is not None and g.any() for g in gradients[: len(leaves)])
    rounded = kind.compiled(torch.bfloat16)
    expected = outputs(rounded(*kind.call(*[x.bfloat16() for x in leaves])))
    assert [a.dtype for a in found] == types_of_results(kind, leaves)
    for a, b in zip(found, expected, strict=True):
        if kind.name in TRACED:
            torch.testing.assert_close(a, b.to(a.dtype), rtol=0.05, atol=0.05)
        else:
            assert torch.equal(a, b.to(a.dtype))
    if kind.name not in (*TRACED, *FLOAT32_ALONE):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            again = outputs(module(*kind.call(*[x.bfloat16() for x in leaves])))
        assert_same([part.bfloat16() for part in again], expected, 0)
    for other in others:
        assert_same(outputs(module(*kind.call(*leaves))), other, 0)


class Noting(UserLayer):
    """A layer without a front end that notes its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[int] = []

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self.calls.append(len(x))
        return super().forward(x, edge_index)


def test_a_forward_runs_once_under_autocast() -> None:
    layer = Noting()
    fast = dacergnn.optimize(layer)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for count in range(1, 4):
            fast(torch.randn(N, F), edges()[0])
            assert len(layer.calls) == count

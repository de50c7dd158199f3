"""Gradients of what a transform of `torch.func` returns, by parameters that the transform knows nothing of.

Functions of DGL themselves cannot run within a transform.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn

pyg: Any = pytest.importorskip("torch_geometric.nn")

N, E, K = 20, 70, 6
LAYERS: dict[str, Callable[[], nn.Module]] = {
    "SAGEConv": lambda: pyg.SAGEConv(K, K),
    "GCNConv": lambda: pyg.GCNConv(K, K),
    "GATv2Conv": lambda: pyg.GATv2Conv(K, K),
    "RGCNConv": lambda: pyg.RGCNConv(K, K, 3),
    "GraphConv, recorded": lambda: pyg.GraphConv(K, K),
    "a model": lambda: pyg.GCN(K, K, 2, norm="LayerNorm", norm_kwargs={"mode": "node"}),
}
Call = Callable[[Tensor], Tensor]
TRANSFORMS: dict[str, Callable[[Call, Tensor], Tensor]] = {
    "grad": lambda call, x: torch.func.grad(lambda rows: call(rows).square().sum())(x),
    "jvp": lambda call, x: torch.func.jvp(call, (x,), (x.cos(),))[1],
    "vjp": lambda call, x: torch.func.vjp(call, x)[1](x.cos())[0],
    "grad of grad": lambda call, x: torch.func.grad(
        lambda rows: torch.func.grad(lambda inner: call(inner).pow(3).sum())(rows).square().sum()
    )(x),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", LAYERS)
def test_parameters_outside_of_a_transform(name: str, transform: str) -> None:
    torch.manual_seed(0)
    layer = LAYERS[name]().double().eval()
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(N, K, generator=draws, dtype=torch.float64)
    edges, types = torch.randint(N, (2, E), generator=draws), torch.randint(3, (E,), generator=draws)
    found: list[list[Tensor]] = []
    for module in (dacergnn.optimize(copy.deepcopy(layer), on_unsupported="error"), layer):

        def call(rows: Tensor, module: Any = module) -> Tensor:
            return module(rows, edges, types) if name == "RGCNConv" else module(rows, edges)

        result = TRANSFORMS[transform](call, x)
        result.square().sum().backward()
        given = [p.grad for p in module.parameters()]
        found.append([result.detach(), *[g for g in given if g is not None]])
    assert len(found[0]) == len(found[1])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)

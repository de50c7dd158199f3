"""Self loops that layers or users add to edges: one step where they are added as layers of PyG do."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn
from tests.capture.test_whole_models import K, assert_same_step, call, net, optimized, runner


@pytest.mark.parametrize("name", ["GCN", "GATv2"])
def test_self_loops_are_added_once(name: str) -> None:
    """By one step for all layers, also to edges that hold some; for an empty graph as for others."""
    model, fast = optimized(net(name))
    for x, edges in (call(), call(20, 70), call(5, 60), call(7, 0), call(1, 3)):
        assert_same_step(fast, model, x, edges)
    for graph in runner(fast).graphs:
        for text in graph.texts:
            assert text.count("with_self_loops(") == 1
            assert "cat(" not in text


class OwnLoops(nn.Module):
    """Adds loops in another way than layers of PyG, or to something else."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.lin = kind, nn.Linear(K, K)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        nodes = torch.arange(x.size(0), device=x.device)
        kept = edges[:, edges[0] != edges[1]]
        if self.kind == "used otherwise":
            x = x + kept.sum()
        if self.kind == "first":
            edges = torch.cat([nodes.view(1, -1).repeat(2, 1), kept], dim=1)
        elif self.kind == "shifted":
            edges = torch.cat([kept, (nodes.view(1, -1) + 1).remainder(x.size(0)).repeat(2, 1)], dim=1)
        elif self.kind == "some":
            edges = torch.cat([kept, nodes[2:].view(1, -1).repeat(2, 1)], dim=1)
        elif self.kind == "fewer":
            edges = torch.cat([kept, torch.arange(3, x.size(0)).view(1, -1).repeat(2, 1)], dim=1)
        else:
            edges = torch.cat([kept, nodes.view(1, -1).repeat(2, 1)], dim=-1)
        return x.new_zeros(x.shape).index_add_(0, edges[1], self.lin(x)[edges[0]])


@pytest.mark.parametrize("kind", ["used otherwise", "first", "shifted", "some", "fewer", "as layers do"])
def test_loops_of_users(kind: str) -> None:
    torch.manual_seed(0)
    model: Any = OwnLoops(kind).double()
    fast = dacergnn.compile(copy.deepcopy(model))
    for sizes in ((20, 70), (9, 50), (9, 0)):
        assert_same_step(fast, model, *call(*sizes))

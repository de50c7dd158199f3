"""Integers that choose among few rows by node are types of nodes in programs; names of nodes are none."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn.modules.graph_forward import compiled_forwards

N, E, K = 12, 40, 4


class Embedded(nn.Module):
    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows, self.lin = nn.Parameter(torch.randn(rows, K)), nn.Linear(K, K)

    def forward(self, x: Tensor, kinds: Tensor, edge_index: Tensor) -> Tensor:
        h = self.lin(x) + self.rows[kinds]
        return torch.zeros_like(h).index_add(0, edge_index[1], h[edge_index[0]].tanh())


@pytest.mark.parametrize("rows", [5, 1000])
def test_embeddings(rows: int) -> None:
    torch.manual_seed(0)
    model = Embedded(rows).double()
    fast = dacergnn.optimize(copy.deepcopy(model), on_unsupported="error")
    for nodes in (N, N + 3):
        x = torch.randn(nodes, K, dtype=torch.float64)
        kinds, edges = torch.randint(rows, (nodes,)), torch.randint(nodes, (2, E))
        results = [m(x, kinds, edges) for m in (model, fast)]
        torch.testing.assert_close(*results)
        both = zip(results, (model, fast), strict=True)
        torch.testing.assert_close(*[torch.autograd.grad(r.sin().sum(), [*m.parameters()]) for r, m in both])
    (forward,) = compiled_forwards(fast)
    (ends,) = forward.graphs[0].reader.ends
    assert (ends.node_types is not None) == (rows == 5)


class Positions(nn.Module):
    """Adds rows of another element type, which no program along edges holds."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = x + torch.eye(K, dtype=torch.float32)[torch.arange(len(x)) % K]
        return torch.zeros_like(h).index_add(0, edge_index[1], h[edge_index[0]].tanh())


def test_rows_of_another_element_type() -> None:
    model = Positions()
    fast = dacergnn.optimize(model, on_unsupported="error")
    for nodes in (N, N + 3):
        x, edges = torch.randn(nodes, K, dtype=torch.float64), torch.randint(nodes, (2, E))
        torch.testing.assert_close(fast(x, edges), model(x, edges))
    (forward,) = compiled_forwards(fast)
    assert forward.steps


class Looked(nn.Module):
    """Looks up features of nodes, whose kinds are few."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.rows = nn.Embedding(5, K, **options)

    def forward(self, kinds: Tensor, edge_index: Tensor) -> Tensor:
        h = self.rows(kinds)
        return torch.zeros_like(h).index_add(0, edge_index[1], h[edge_index[0]].tanh())


@pytest.mark.parametrize("options", [{"padding_idx": 1}, {"max_norm": 0.5}, {"scale_grad_by_freq": True}], ids=str)
def test_options_of_embeddings(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = Looked(**options).double()
    fast = dacergnn.optimize(copy.deepcopy(model), on_unsupported="error")
    kinds, edges = torch.randint(5, (N,)), torch.randint(N, (2, E))
    for _ in range(2):
        results = [m(kinds, edges) for m in (model, fast)]
        torch.testing.assert_close(*results)
        both = zip(results, (model, fast), strict=True)
        torch.testing.assert_close(*[torch.autograd.grad(r.sin().sum(), [*m.parameters()]) for r, m in both])
        torch.testing.assert_close([*fast.parameters()], [*model.parameters()])

"""Forwards that return a value for each edge, as predictors of links do: trained, with edges in every format."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

dgl: Any = pytest.importorskip("dgl", reason="dgl 1.1.3 needs Python 3.11")
import dacergnn  # noqa: E402

N, E, K = 9, 30, 16


class Predictor(nn.Module):
    """A score for each edge."""

    def __init__(self, operator: str) -> None:
        super().__init__()
        self.operator, self.linear = operator, nn.Linear(K, K).double()

    def forward(self, g: Any, x: Tensor) -> Tensor:
        with g.local_scope():
            g.ndata["h"] = self.linear(x)
            g.apply_edges(getattr(dgl.function, self.operator)("h", "h", "score"))
            return g.edata["score"]


@pytest.mark.parametrize("adjacency", ["auto", "csr", "coo", "ell", "hybrid"])
@pytest.mark.parametrize("operator", ["u_dot_v", "u_mul_v", "u_add_v", "u_sub_v"])
def test_scores_and_gradients(operator: str, adjacency: Any) -> None:
    generator = torch.Generator().manual_seed(1)
    ends = torch.randint(0, N, (2, E), generator=generator)
    g = dgl.graph((ends[0], ends[1]), num_nodes=N)
    original = Predictor(operator)
    config = dacergnn.Config(adjacency=adjacency)
    fast = dacergnn.compile(copy.deepcopy(original), config=config, on_unsupported="error")
    found: list[list[Tensor]] = []
    for module in (fast, original):
        x = torch.linspace(-1, 1, N * K, dtype=torch.float64).view(N, K).requires_grad_()
        scores = module(g, x)
        gradients = torch.autograd.grad(scores.sin().sum(), [x, *module.parameters()])
        found.append([scores, *gradients])
    torch.testing.assert_close(*found)

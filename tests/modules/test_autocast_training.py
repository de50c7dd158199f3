"""Training under autocast on the CPU reaches the accuracy of training in float32, on real graphs."""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import dacergnn
from dacergnn import datasets
from dacergnn.datasets import Dataset
from dacergnn.modules.compiled_parts import compiled_parts

pyg = pytest.importorskip("torch_geometric.nn")
HIDDEN = 16


def edges_of(data: Dataset) -> tuple[Tensor, Tensor]:
    edges = data.graph
    index = torch.stack([edges.index("E", "src"), edges.index("E", "dst")]).long()
    return index, edges.index("E", "etype").long()


class Relational(nn.Module):
    """Two layers of RGCN, the first with a row of weights for each node."""

    def __init__(self, data: Dataset) -> None:
        super().__init__()
        self.index, self.types = edges_of(data)
        nodes, relations = data.graph.size("NS"), data.graph.size("R")
        self.first = pyg.FastRGCNConv(nodes, HIDDEN, relations)
        self.second = pyg.FastRGCNConv(HIDDEN, data.num_classes, relations)

    def forward(self) -> Tensor:
        return self.second(self.first(None, self.index, self.types).relu(), self.index, self.types)


class Attention(nn.Module):
    """Two layers of GAT over a dense matrix of features."""

    def __init__(self, data: Dataset) -> None:
        super().__init__()
        self.index, _ = edges_of(data)
        (features,) = data.features.values()
        self.x = functional.normalize(features.to_dense() if features.layout is not torch.strided else features, p=1)
        self.first = pyg.GATConv(self.x.shape[1], 8, heads=8, dropout=0.6)
        self.second = pyg.GATConv(64, data.num_classes, heads=1, concat=False, dropout=0.6)

    def forward(self) -> Tensor:
        hidden = functional.dropout(self.x, 0.6, self.training)
        hidden = functional.elu(self.first(hidden, self.index))
        return self.second(functional.dropout(hidden, 0.6, self.training), self.index)


def accuracy(model: nn.Module, data: Dataset, epochs: int, rate: float, *, autocast: bool) -> float:
    """Test accuracy after training, the mean of the last ten epochs."""
    fast: Any = dacergnn.optimize(model, on_unsupported="error")
    optimizer = torch.optim.Adam(fast.parameters(), rate, weight_decay=5e-4)
    assert data.label is not None
    assert data.train_idx is not None
    assert data.test_idx is not None
    found: list[float] = []
    for epoch in range(epochs):
        with torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext():
            scores = fast.train()()
        assert scores.dtype is torch.float32  # as the originals' are, also under autocast
        call = compiled_parts(fast)[-1].part.last_call
        assert call is not None
        assert call[0].dtype is (torch.bfloat16 if autocast else torch.float32)
        optimizer.zero_grad()
        functional.cross_entropy(scores.float()[data.train_idx], data.label[data.train_idx]).backward()
        optimizer.step()
        if epoch >= epochs - 10:
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext():
                best = fast.eval()().argmax(1)
            found.append(float((best == data.label)[data.test_idx].float().mean()))
    return sum(found) / len(found)


@pytest.mark.check
@pytest.mark.compiled
@pytest.mark.skipif(not os.environ.get("DACERGNN_DATA"), reason="DACERGNN_DATA is not set")
@pytest.mark.parametrize(
    ("name", "make", "epochs", "rate"), [("aifb", Relational, 25, 0.01), ("cora", Attention, 40, 0.01)],
    ids=["RGCN-aifb", "GAT-cora"],
)  # fmt: skip
def test_accuracy(name: str, make: type[nn.Module], epochs: int, rate: float) -> None:
    data, found = datasets.load(name), list[float]()
    for autocast in (False, True):
        torch.manual_seed(0)
        found.append(accuracy(make(data), data, epochs, rate, autocast=autocast))
    assert found[0] > 0.75
    assert found[1] >= found[0] - 0.03

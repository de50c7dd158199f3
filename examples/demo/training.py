"""Trains a node classifier of two RGAT layers on AIFB: by PyG's layers, or by the same layers compiled."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import RGATConv

from dacergnn import datasets, optimize
from dacergnn.bench.memory import peak_growth
from dacergnn.datasets import Dataset
from dacergnn.errors import DacergnnError

NAME, HIDDEN, HEADS = "aifb", 32, 2
PEER, OURS = "PyG", "dacergnn"


class Classifier(nn.Module):
    """Runs two layers of relational attention over an embedding of each node.

    Attention weights sum to one within each relation of a node, so that the layers see which relations reach it.
    """

    def __init__(self, num_nodes: int, num_classes: int, num_relations: int) -> None:
        super().__init__()
        self.embedding = nn.Parameter(0.1 * torch.randn(num_nodes, HIDDEN))
        options: dict[str, Any] = {"heads": HEADS, "attention_mechanism": "within-relation"}
        self.conv1 = RGATConv(HIDDEN, HIDDEN // HEADS, num_relations, **options)
        self.conv2 = RGATConv(HIDDEN, HIDDEN // HEADS, num_relations, **options)
        self.classes = nn.Linear(HIDDEN, num_classes)

    def forward(self, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        """Returns class scores [N, classes]."""
        hidden = self.conv1(self.embedding, edge_index, edge_type).relu()
        hidden = self.conv2(hidden, edge_index, edge_type).relu()
        return self.classes(hidden)


class Run:
    """Holds a model in training, its losses and the seconds that each epoch took.

    Args:
        name: `PEER`, or `OURS` for compiled layers; both start from the same parameters.
        data: A graph with labels and both index lists, by default AIFB.
    """

    def __init__(self, name: str, data: Dataset | None = None) -> None:
        data = data or datasets.load(NAME)
        if data.label is None or data.train_idx is None or data.test_idx is None:
            raise DacergnnError(
                f"The demonstration needs labels and both index lists, which {NAME}.npz in DACERGNN_DATA lacks; unset "
                "DACERGNN_DATA to train on the graph of the package."
            )
        self.name, self.graph, self.label = name, data.graph, data.label
        self.train_idx, self.test_idx = data.train_idx, data.test_idx
        src, dst, etype = (self.graph.index("E", path).long() for path in ("src", "dst", "etype"))
        self.edges = torch.stack([src, dst]), etype
        torch.manual_seed(0)
        model = Classifier(self.graph.size("NS"), self.num_classes, self.graph.size("R"))
        self.model = optimize(model, self.graph) if name == OURS else model
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01, weight_decay=5e-4)
        self.losses: list[float] = []
        self.seconds: list[float] = []

    @property
    def num_classes(self) -> int:
        return int(self.label.max()) + 1

    @property
    def chance(self) -> float:
        """Returns the share of the test nodes that have their most frequent class."""
        return self.label[self.test_idx].bincount().max().item() / len(self.test_idx)

    def epoch(self) -> None:
        """Runs one full-batch step, and records its loss and its time."""
        start = time.perf_counter()
        self.optimizer.zero_grad()
        scores = self.model(*self.edges)
        loss = functional.cross_entropy(scores[self.train_idx], self.label[self.train_idx])
        loss.backward()
        self.optimizer.step()
        self.seconds.append(time.perf_counter() - start)
        self.losses.append(loss.item())

    def accuracy(self) -> float:
        """Returns the share of the test nodes whose class is predicted correctly."""
        with torch.no_grad():
            scores = self.model(*self.edges)
        return (scores[self.test_idx].argmax(1) == self.label[self.test_idx]).float().mean().item()

    @property
    def epoch_ms(self) -> float:
        """Returns the median time of an epoch in milliseconds, without the first one (compilation, first touch)."""
        return 1e3 * median(self.seconds[1:] or self.seconds)


def peak(name: str, data: Dataset | None = None) -> dict[str, float]:
    """Returns the most MB that the process grows by in three epochs, above data, parameters and optimizer state."""
    run = Run(name, data)
    run.epoch()
    run.optimizer.zero_grad()
    grown, _ = peak_growth(lambda: [run.epoch() for _ in range(3)])
    return {"peak_mb": grown / 1e6}

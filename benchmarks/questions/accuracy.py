"""Measures the accuracy of GCN and GAT on Cora and Citeseer: PyG's layers as they are, and the same model optimized.

Models have two layers and the settings of the papers: GCN with 16 hidden features, GAT with 8 heads of 8. Training has
dropout of features (of attention, too), weight decay, Adam, 200 epochs, and the usual 140 and 120 nodes. Both models
start from the same parameters and draw the same random numbers. Means and deviations are over seeds.

Run: DACERGNN_DATA=... python -m benchmarks accuracy [--models gcn] [--data cora,citeseer] [--seeds 5] [--caching auto]
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click
import torch
from torch import Tensor, nn
from torch.nn import functional

import dacergnn
from benchmarks.options import question
from dacergnn import Config, datasets
from dacergnn.datasets import Dataset
from dacergnn.tables import Table


class TwoLayers(nn.Module):
    """Runs dropout, a layer and an activation, then dropout and a second layer."""

    def __init__(
        self, conv1: nn.Module, conv2: nn.Module, activation: Callable[[Tensor], Tensor], dropout: float
    ) -> None:
        super().__init__()
        self.conv1, self.conv2, self.activation, self.dropout = conv1, conv2, activation, dropout

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = functional.dropout(x, self.dropout, self.training)
        x = self.activation(self.conv1(x, edge_index))
        return self.conv2(functional.dropout(x, self.dropout, self.training), edge_index)


@dataclass(frozen=True)
class Recipe:
    """Describes a model, made for numbers of features and classes, and its training."""

    make: Callable[[int, int], nn.Module]
    rate: float
    decay: float


def gcn(features: int, classes: int) -> nn.Module:
    """Returns the network of Kipf and Welling."""
    from torch_geometric.nn import GCNConv

    return TwoLayers(GCNConv(features, 16), GCNConv(16, classes), torch.relu, 0.5)


def gat(features: int, classes: int) -> nn.Module:
    """Returns the network of Velickovic and others."""
    from torch_geometric.nn import GATConv

    return TwoLayers(GATConv(features, 8, heads=8, dropout=0.6), GATConv(64, classes, dropout=0.6), functional.elu, 0.6)


RECIPES = {"gcn": Recipe(gcn, 0.01, 5e-4), "gat": Recipe(gat, 0.005, 5e-4)}


@dataclass(frozen=True)
class Task:
    """Holds a node classification: features [N, K] with rows that sum to 1, edges [2, E]."""

    data: Dataset
    x: Tensor
    edge_index: Tensor

    @classmethod
    def load(cls, name: str) -> Task:
        """Loads a dataset of the folder DACERGNN_DATA; raises DatasetError where it is missing."""
        data = datasets.load(name)
        x = next(iter(data.features.values()))
        edge_index = torch.stack([data.graph.index("E", end).long() for end in ("src", "dst")])
        return cls(data, x / x.sum(1, keepdim=True).clamp(min=1), edge_index)


def train(task: Task, recipe: Recipe, seed: int, epochs: int, config: Config | None) -> tuple[list[float], float]:
    """Returns losses by epoch and accuracy on the test nodes; without ``config``, PyG's own layers are trained."""
    data, label = task.data, task.data.label
    assert label is not None
    torch.manual_seed(seed)
    model = recipe.make(task.x.size(1), data.num_classes)
    if config is not None:
        model = dacergnn.optimize(model, data, config=config, on_unsupported="error")
    optimizer = torch.optim.Adam(model.parameters(), lr=recipe.rate, weight_decay=recipe.decay)
    losses: list[float] = []
    for _ in range(epochs):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(task.x, task.edge_index)[data.train_idx], label[data.train_idx])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        hits = model.eval()(task.x, task.edge_index)[data.test_idx].argmax(1) == label[data.test_idx]
    return losses, hits.double().mean().item()


@question(models=(), data=(), seeds=1, epochs=20)
def main(
    models: tuple[str, ...] = ("gcn", "gat"), data: tuple[str, ...] = ("cora", "citeseer"), seeds: int = 5,
    epochs: int = 200, caching: str = "cache_all", threads: int = 2,
) -> None:  # fmt: skip
    """Train every model on every dataset, with and without compiled layers."""
    torch.set_num_threads(threads)
    columns: dict[str, Any] = {"PyG": None, "dacergnn": Config(caching=caching)}
    headings = ("model", "data", *columns, "within one deviation")
    table = Table(f"Test accuracy (%) over {seeds} seeds", headings, keys=2)
    for name in data:
        task = Task.load(name)
        for model in models:
            found = {
                column: [100 * train(task, RECIPES[model], seed, epochs, config)[1] for seed in range(seeds)]
                for column, config in columns.items()
            }
            means = {column: statistics.mean(values) for column, values in found.items()}
            spread = statistics.stdev(found["PyG"]) if seeds > 1 else 0.0
            shown = [f"{means[c]:.1f} +- {statistics.stdev(found[c]) if seeds > 1 else 0.0:.1f}" for c in columns]
            near = abs(means["dacergnn"] - means["PyG"]) <= spread
            table.add_row(model, name, *shown, "yes" if near else "no")
    click.echo(table)

"""Defines the task of the training: node classification on AIFB with two RGAT layers of PyG, on learned embeddings."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dacergnn import datasets
from dacergnn.errors import DacergnnError
from dacergnn.graph import HeteroGraph

NAME = "aifb"
HIDDEN = 32
HEADS = 2


@dataclass(frozen=True)
class Task:
    """Holds a graph with labelled nodes; edges are as PyG takes them, in the order of the graph's canonical edges."""

    graph: HeteroGraph
    edge_index: Tensor
    """int64 [2, E]"""
    edge_type: Tensor
    """int64 [E]"""
    label: Tensor
    """int64 [N]"""
    train_idx: Tensor
    test_idx: Tensor

    @property
    def num_classes(self) -> int:
        return int(self.label.max()) + 1

    @property
    def chance(self) -> float:
        """Returns the share of the test nodes that have their most frequent class."""
        return self.label[self.test_idx].bincount().max().item() / len(self.test_idx)


class Classifier(nn.Module):
    """Runs two layers of relational attention over an embedding of each node.

    Attention weights sum to one within each relation of a node, so that the layers see which relations reach it.
    """

    def __init__(self, num_nodes: int, num_classes: int, num_relations: int) -> None:
        from torch_geometric.nn import RGATConv

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


def require_pyg() -> None:
    """Raises DacergnnError, which says how to get PyG, where PyG cannot be imported."""
    try:
        importlib.import_module("torch_geometric.nn")
    except ImportError as error:
        raise DacergnnError(
            f"The demonstration trains PyG's layers, but torch_geometric cannot be imported here ({error}); install it "
            "with pip install 'dacergnn[pyg]'."
        ) from error


def load_task() -> Task:
    """Loads AIFB, which comes with the package."""
    data = datasets.load(NAME)
    if data.label is None or data.train_idx is None or data.test_idx is None:
        raise DacergnnError(
            f"The demonstration needs labels and both index lists, which {NAME}.npz in DACERGNN_DATA lacks; unset "
            "DACERGNN_DATA to train on the graph of the package."
        )
    return make_task(data.graph, data.label, data.train_idx, data.test_idx)


def make_task(graph: HeteroGraph, label: Tensor, train_idx: Tensor, test_idx: Tensor) -> Task:
    """Makes a task with the edges of `graph` in PyG's form."""
    src, dst, etype = (graph.index("E", path).long() for path in ("src", "dst", "etype"))
    return Task(graph, torch.stack([src, dst]), etype, label, train_idx, test_idx)


def make_classifier(task: Task, seed: int = 0) -> Classifier:
    """Returns a classifier with PyG's own layers, initialised from `seed`."""
    torch.manual_seed(seed)
    return Classifier(task.graph.size("NS"), task.num_classes, task.graph.size("R"))

"""Defines the task of the training: node classification on AIFB with two RGCN layers of PyG, without node features."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from dacergnn import datasets
from dacergnn.datasets import Dataset
from dacergnn.errors import DacergnnError
from dacergnn.graph import HeteroGraph

NAME = "aifb"
HIDDEN = 16


@dataclass(frozen=True)
class Task:
    """Holds a graph with labelled nodes; edges are as PyG takes them, in the order of the graph's canonical edges."""

    origin: str
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


class Classifier(nn.Module):
    """Runs two relational convolutions; the first has one weight row for each node in place of features.

    FastRGCNConv computes what RGCNConv does; on this graph it is the faster of the two by far.
    """

    def __init__(self, num_nodes: int, num_classes: int, num_relations: int) -> None:
        from torch_geometric.nn import FastRGCNConv

        super().__init__()
        self.conv1 = FastRGCNConv(num_nodes, HIDDEN, num_relations)
        self.conv2 = FastRGCNConv(HIDDEN, num_classes, num_relations)

    def forward(self, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        """Returns class scores [N, classes]."""
        hidden = self.conv1(None, edge_index, edge_type).relu()
        return self.conv2(hidden, edge_index, edge_type)


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
    """Loads AIFB: the real graph if a folder has it, else a synthetic graph with the same counts."""
    folders = (os.environ.get("DACERGNN_DATA"), "../shared/data")
    data_folder = next((folder for folder in folders if folder and Path(folder, f"{NAME}.npz").is_file()), None)
    if data_folder is None:
        return synthetic_task(datasets.synthetic(NAME))
    os.environ["DACERGNN_DATA"] = data_folder
    data = datasets.load(NAME)
    assert data.label is not None
    assert data.train_idx is not None
    assert data.test_idx is not None
    return make_task(f"real, from {data_folder}", data.graph, data.label, data.train_idx, data.test_idx)


def synthetic_task(data: Dataset) -> Task:
    """Makes a task on a graph without labels: to predict a node's most frequent incoming relation, modulo four."""
    graph = data.graph
    counts = torch.zeros(graph.size("ND"), graph.size("R"))
    counts.index_put_(
        (graph.index("E", "dst").long(), graph.index("E", "etype").long()), torch.ones(()), accumulate=True
    )
    label = counts.argmax(1) % 4
    reached = counts.any(1).nonzero().flatten()
    chosen = reached[torch.randperm(len(reached), generator=torch.Generator().manual_seed(0))[:1000]]
    return make_task(
        "synthetic: no folder with the real graph; set DACERGNN_DATA",
        graph,
        label,
        chosen[:800],
        chosen[800:],
    )


def make_task(origin: str, graph: HeteroGraph, label: Tensor, train_idx: Tensor, test_idx: Tensor) -> Task:
    """Makes a task with the edges of `graph` in PyG's form."""
    src, dst, etype = (graph.index("E", path).long() for path in ("src", "dst", "etype"))
    return Task(origin, graph, torch.stack([src, dst]), etype, label, train_idx, test_idx)


def make_classifier(task: Task, seed: int = 0) -> Classifier:
    """Returns a classifier with PyG's own layers, initialised from `seed`."""
    torch.manual_seed(seed)
    return Classifier(task.graph.size("NS"), task.num_classes, task.graph.size("R"))

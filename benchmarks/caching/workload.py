"""Makes the tensors of a task: edges, features, the gradient that its result receives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from benchmarks.caching.graphs import graph_of
from benchmarks.caching.task import Task
from dacergnn.datasets import Dataset
from dacergnn.graph import HeteroGraph

STATISTICS = {"cora": (1433, 7), "citeseer": (3703, 6), "pubmed": (500, 3)}
"""Numbers of features and classes of data sets, for data sets whose files lack them."""
DEFAULT_STATISTICS = (64, 8)
LOOPED = ("gat", "gat_by_edge", "gatv2")
"""Models whose nodes attend to themselves, too: loops are added to the edges before any timing."""


@dataclass(frozen=True)
class Workload:
    """Holds the tensors of one task: edges in the order of their destinations, and float32 features."""

    task: Task
    edge_index: Tensor
    """int64 [2, E]."""
    x: Tensor
    """[N, features]."""
    classes: int

    @property
    def num_nodes(self) -> int:
        return self.x.shape[0]

    @cached_property
    def graph(self) -> HeteroGraph:
        return HeteroGraph.from_arrays(self.edge_index, None, num_nodes=self.num_nodes)

    @cached_property
    def pseudo(self) -> Tensor:
        """Returns the coordinates of edges for mixture models: 1 / sqrt(1 + in-degree) of both end points, in turns."""
        degree = torch.bincount(self.edge_index[1], minlength=self.num_nodes)
        ends = [dimension % 2 for dimension in range(self.task.gaussians[1])]
        return (1 + degree).rsqrt()[self.edge_index[ends]].t().contiguous()

    def cotangent(self, out: Tensor) -> Tensor:
        """Returns the gradient of the result, random with a variance of 1 / N, the same for all candidates."""
        draw = torch.Generator().manual_seed(1)
        return torch.randn(out.shape, generator=draw).div_(self.num_nodes**0.5).to(out)

    def to(self, dtype: torch.dtype) -> Workload:
        return replace(self, x=self.x.to(dtype))

    def on(self, device: torch.device | str) -> Workload:
        """Returns the workload with its tensors on a device."""
        return replace(self, x=self.x.to(device), edge_index=self.edge_index.to(device))


def load_workload(task: Task, seed: int = 0) -> Workload:
    """Loads the tensors of a task; random features are the same for the same seed."""
    data = graph_of(task.data, seed)
    graph = data.graph
    edges = torch.stack([graph.index("E", path).long() for path in ("src", "dst")])
    edges = edges[:, edges[0] != edges[1]]  # layers treat existing loops differently
    if task.model in LOOPED:
        edges = _with_loops(edges, graph.size("NS"))
    features, classes = _statistics(data)
    if task.network != "layer" and data.features:
        x = next(iter(data.features.values()))
    else:
        width = task.features if task.network == "layer" else features
        x = torch.randn(graph.size("NS"), width, generator=torch.Generator().manual_seed(seed))
    return Workload(task, edges, x, classes)


def _statistics(data: Dataset) -> tuple[int, int]:
    """Returns the number of features by `STATISTICS`, and that of classes by the data set or else by `STATISTICS`."""
    features, classes = STATISTICS.get(data.name.partition("~")[0], DEFAULT_STATISTICS)
    return features, data.num_classes or classes


def _with_loops(edges: Tensor, num_nodes: int) -> Tensor:
    """Returns the edges and a loop at each node, sorted by destination and source."""
    nodes = torch.arange(num_nodes)
    edges = torch.cat([edges, torch.stack([nodes, nodes])], dim=1)
    return edges[:, (edges[1] * num_nodes + edges[0]).argsort()]

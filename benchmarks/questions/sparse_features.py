"""Compares training of GCN on bags of words: sparse features through `optimize`, and libraries on dense features.

Networks of two layers of PyG (edges as an index and as a CSR adjacency, coefficients kept) and of DGL take the features
as a dense matrix; PyG's takes the CSR tensor as well. A step is a forward, the loss of some nodes and a backward.
Steps take turns; times are medians.

Run: DACERGNN_DATA=... python -m benchmarks sparse_features [--data cora,citeseer] [--hidden 16,64] [--cpu]
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import product

import click
import torch
from torch import Tensor, nn
from torch.nn import functional

import dacergnn
from dacergnn import datasets
from dacergnn.bench.measure import OF_PROCESSOR, ON_PROCESSOR, interleave
from dacergnn.bench.scatter import NOTE, marked
from dacergnn.cli.options import names, numbers
from dacergnn.datasets import Dataset
from dacergnn.tables import Table

Step = Callable[[], None]
ROUNDS, WARM = 50, 4


class TwoLayers(nn.Module):
    """Runs a layer, ReLU, and a second layer."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, *args: Tensor) -> Tensor:
        """Runs PyG's layers, which take features, then edges."""
        x, *edges = args
        return self.second(functional.relu(self.first(x, *edges)), *edges)


class OnGraph(TwoLayers):
    """Runs DGL's layers, which take the graph first."""

    def forward(self, *args: Tensor) -> Tensor:
        graph, x = args
        return self.second(graph, functional.relu(self.first(graph, x)))


def step(model: nn.Module, data: Dataset, *args: object) -> Step:
    """Returns a training step without the update."""
    assert data.label is not None
    labels = data.label[data.train_idx]

    def run() -> None:
        functional.cross_entropy(model(*args)[data.train_idx], labels).backward()

    return run


def steps(name: str, hidden: int) -> dict[str, Step]:
    """Returns the steps that are compared, ours first."""
    import dgl
    from dgl.nn.pytorch import GraphConv
    from torch_geometric.nn import GCNConv

    data = datasets.load(name)
    (x,) = data.features.values()
    sparse, size, classes = x.to_sparse_csr(), x.size(1), data.num_classes
    graph = data.graph
    edge_index = torch.stack([graph.index("E", "src"), graph.index("E", "dst")]).long()
    ones = torch.ones(edge_index.size(1))
    adjacency = torch.sparse_coo_tensor(edge_index.flip(0), ones, (x.size(0),) * 2).to_sparse_csr()
    own = dgl.add_self_loop(dgl.graph(tuple(edge_index), num_nodes=x.size(0)))
    model = TwoLayers(GCNConv(size, hidden, cached=True), GCNConv(hidden, classes, cached=True))
    other = OnGraph(GraphConv(size, hidden), GraphConv(hidden, classes))
    ours = dacergnn.optimize(copy.deepcopy(model), on_unsupported="error")
    return {
        "dacergnn, sparse": step(ours, data, sparse, edge_index),
        "PyG": step(model, data, x, edge_index),
        "PyG, CSR adjacency": step(copy.deepcopy(model), data, x, adjacency),
        "PyG, sparse": step(copy.deepcopy(model), data, sparse, edge_index),
        "DGL": step(other, data, own, x),
    }


@click.command()
@click.option("--data", default="cora,citeseer", callback=names, help="Data sets.")
@click.option("--hidden", default="16,64", callback=numbers, help="Hidden features.")
@click.option("--threads", default=2)
@click.option("--cpu", is_flag=True, help="Time of the processor rather than that of the clock, with one thread.")
def main(data: tuple[str, ...], hidden: tuple[int, ...], threads: int, cpu: bool) -> None:
    """Milliseconds of a training step."""
    torch.set_num_threads(1 if cpu else threads)
    clock = OF_PROCESSOR if cpu else ON_PROCESSOR
    for name, width in product(data, hidden):
        candidates = steps(name, width)
        for _, run in product(range(WARM), candidates.values()):
            run()
        times = interleave(candidates, ROUNDS, clock=clock)
        ours, dense = times["dacergnn, sparse"], min(t.ms for c, t in times.items() if "sparse" not in c)
        title = f"GCN on {name}, {width} hidden features: {dense / ours.ms:.1f} times over dense features"
        table = Table(title, ("", "ms", "times ours"))
        for candidate, timing in times.items():
            ratio = marked(f"{timing.ms / ours.ms:.1f}", ours.scatters or timing.scatters)
            table.add_row(candidate, marked(f"{timing.ms:.2f}", timing.scatters), ratio)
            if timing.scatters:
                table.add_note(NOTE)
        click.echo(table)

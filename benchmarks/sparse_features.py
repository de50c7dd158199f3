"""Compares training of GCN on bags of words: sparse features through `optimize`, and libraries on dense features.

Networks of two layers of PyG (edges as an index and as a CSR adjacency, coefficients kept) and of DGL take the features
as a dense matrix; PyG's takes the CSR tensor as well. A step is a forward, the loss of some nodes and a backward.
Blocks of steps take turns; times are medians.

Run: DACERGNN_DATA=... python benchmarks/sparse_features.py [--data cora,citeseer] [--hidden 16,64] [--cpu]
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable

import click
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional

import dacergnn
from dacergnn import datasets
from dacergnn.bench.measure import Timing
from dacergnn.bench.scatter import NOTE, marked
from dacergnn.datasets import Dataset

Step = Callable[[], None]
ROUNDS, WARM, STEPS = 5, 4, 10


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
@click.option("--data", default="cora,citeseer", help="Data sets.")
@click.option("--hidden", default="16,64", help="Hidden features.")
@click.option("--threads", default=2)
@click.option("--cpu", is_flag=True, help="Time of the processor rather than that of the clock, with one thread.")
def main(data: str, hidden: str, threads: int, cpu: bool) -> None:
    """Milliseconds of a training step."""
    torch.set_num_threads(1 if cpu else threads)
    clock = time.process_time if cpu else time.perf_counter
    console = Console()
    for name in data.split(","):
        for width in map(int, hidden.split(",")):
            candidates = steps(name, width)
            times = {c: Timing() for c in candidates}
            for _ in range(ROUNDS):
                for candidate, run in candidates.items():
                    for i in range(WARM + STEPS):
                        started = clock()
                        run()
                        if i >= WARM:
                            times[candidate].samples.append(clock() - started)
            medians = {c: t.ms for c, t in times.items()}
            ours, own = medians["dacergnn, sparse"], times["dacergnn, sparse"].scatters
            dense = min(t for c, t in medians.items() if "sparse" not in c)
            table = Table(title=f"GCN on {name}, {width} hidden features: {dense / ours:.1f} times over dense features")
            for column in ("", "ms", "times ours"):
                table.add_column(column)
            for candidate, median in medians.items():
                scattering = times[candidate].scatters
                ratio = marked(f"{median / ours:.1f}", own or scattering)
                table.add_row(candidate, marked(f"{median:.2f}", scattering), ratio)
            table.caption = NOTE if any(t.scatters for t in times.values()) else None
            console.print(table)


if __name__ == "__main__":
    main()

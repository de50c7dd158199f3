"""Predicts from a database, as in relational deep learning: rows are nodes, and foreign keys are edges.

The model reads the rows around a customer as they were at a given time, never a later one, and predicts whether the
customer comes back. `relational_tables.py` has the database.

Run: python -m examples.relational [--layer gatv2] [--original] [--relbench stanford-star/relbench-v1/rel-f1 driver-dnf]
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import click
import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch_geometric.data import HeteroData
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import GATv2Conv, HeteroConv, SAGEConv

import dacergnn
from dacergnn.sampler import neighbor_loader
from examples.relational_tables import MONTH, Database, Labels, Table, made_database, relbench_database, to_graph

CHANNELS = 64
FANOUTS = [16, 8]
BATCH = 256


class Encoder(nn.Module):
    """Makes a vector of each row from its numbers, its age and its categories."""

    def __init__(self, table: Table) -> None:
        super().__init__()
        self.numbers = nn.Linear(table.numbers.size(1) + 1, CHANNELS)
        self.categories = nn.ModuleList(nn.Embedding(int(c.max()) + 1, CHANNELS) for c in table.categories.T)

    def forward(self, numbers: Tensor, categories: Tensor, age: Tensor) -> Tensor:
        vectors = [embed(column) for embed, column in zip(self.categories, categories.T, strict=True)]
        return sum(vectors, self.numbers(torch.cat([numbers, age[:, None]], 1)))


class Predictor(nn.Module):
    """Encodes rows, passes messages along foreign keys, and computes a score for each seed."""

    def __init__(self, tables: dict[str, Table], data: HeteroData, table: str, layer: str) -> None:
        super().__init__()
        make = {
            "sage": lambda: SAGEConv(CHANNELS, CHANNELS),
            "gatv2": lambda: GATv2Conv(CHANNELS, CHANNELS // 4, heads=4, add_self_loops=False),
        }[layer]
        self.table = table
        self.encoders = nn.ModuleDict({name: Encoder(t) for name, t in tables.items()})
        self.convs = nn.ModuleList(HeteroConv({key: make() for key in data.edge_types}) for _ in FANOUTS)
        self.norms = nn.ModuleList(nn.ModuleDict({n: nn.LayerNorm(CHANNELS) for n in tables}) for _ in FANOUTS)
        self.head = nn.Linear(CHANNELS, 1)

    def forward(self, batch: HeteroData) -> Tensor:
        seeds = batch[self.table]
        x = {}
        for name, encode in self.encoders.items():
            rows = batch[name]
            past = seeds.seed_time[rows.batch] - rows.time if "time" in rows else torch.zeros(len(rows.batch))
            x[name] = encode(rows.numbers, rows.categories, (past / MONTH).log1p())
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x |= {name: norm[name](rows + x[name]).relu() for name, rows in conv(x, batch.edge_index_dict).items()}
        return self.head(x[self.table][: seeds.batch_size]).flatten()


def auroc(scores: Tensor, labels: Tensor) -> float:
    """Returns the share of pairs of a positive and a negative in which the positive has the higher score."""
    order = scores.argsort()
    positive = labels[order] > 0.5
    ranks = torch.arange(1, len(order) + 1)[positive].double()
    count, others = len(ranks), len(order) - len(ranks)
    return float((ranks.sum() - count * (count + 1) / 2) / max(count * others, 1))


def make_loader(data: HeteroData, labels: Labels, *, shuffle: bool) -> NeighborLoader:
    """Makes batches of seeds with their labels, and with the latest rows that existed at the time of each seed."""

    def attach(batch: HeteroData) -> HeteroData:
        seeds = batch[labels.table]
        seeds.y = labels.value[seeds.input_id]
        return batch

    return neighbor_loader(
        data, FANOUTS, (labels.table, labels.row), labels.time, time_attr="time", temporal_strategy="last",
        batch_size=BATCH, shuffle=shuffle, transform=attach,
    )  # fmt: skip


def progress(loader: NeighborLoader, title: str) -> Iterable[HeteroData]:
    """Returns the batches of a loader, for which a terminal shows a progress bar."""
    console = Console(stderr=True)
    return track(loader, title, console=console, transient=True, disable=not console.is_terminal)


def train(database: Database, layer: str, epochs: int, *, original: bool = False) -> float:
    """Trains a predictor and returns its AUROC on the later labels; prints the results of each epoch."""
    tables, early, late = database
    data = to_graph(tables)
    model: nn.Module = Predictor(tables, data, early.table, layer)
    if not original:
        model = dacergnn.optimize(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    earlier, later = make_loader(data, early, shuffle=True), make_loader(data, late, shuffle=False)
    area = 0.5
    for epoch in range(1, epochs + 1):
        start, losses = time.perf_counter(), []
        for batch in progress(earlier, f"epoch {epoch}"):
            optimizer.zero_grad()
            loss = binary_cross_entropy_with_logits(model(batch), batch[early.table].y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        seconds = time.perf_counter() - start
        with torch.no_grad():
            found = [(model(batch), batch[late.table].y) for batch in progress(later, "later rows")]
        area = auroc(*map(torch.cat, zip(*found, strict=True)))
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.4f}, later AUROC {area:.3f}, {seconds:.1f} s")
    return area


@click.command()
@click.option("--layer", type=click.Choice(["sage", "gatv2"]), default="sage", help="Of HeteroConv.")
@click.option("--epochs", default=3, type=click.IntRange(1))
@click.option("--customers", default=2000, type=click.IntRange(50), help="Rows of the database that is made.")
@click.option("--seed", default=0, help="Of the database, the parameters and the batches.")
@click.option("--original", is_flag=True, help="Train PyG's own layers.")
@click.option("--relbench", nargs=2, metavar="NAME TASK", help="Read real tables by RelBench.")
def main(layer: str, epochs: int, customers: int, seed: int, original: bool, relbench: tuple[str, str] | None) -> None:
    """Train a predictor on a relational database."""
    torch.manual_seed(seed)
    database = relbench_database(*relbench) if relbench else made_database(customers)
    train(database, layer, epochs, original=original)


if __name__ == "__main__":
    main()

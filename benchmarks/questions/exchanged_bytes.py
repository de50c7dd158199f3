"""Compares a layer that exchanges what takes the fewest bytes with one that exchanges the rows of its sources.

python -m benchmarks exchanged_bytes am~ --processes 4 --into 8
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import click
import torch
import torch.distributed as dist
import torch.multiprocessing

from dacergnn import datasets
from dacergnn.distributed import DistributedGraph, partition
from dacergnn.modules import RGCN
from dacergnn.modules.ways.exchange import ExchangingGraph

FEATURES = 64
STEPS = 5


@click.command()
@click.argument("data")
@click.option("--processes", default=4, show_default=True)
@click.option("--into", default=8, show_default=True, help="Features of the result; there are 64 before.")
def main(data: str, processes: int, into: int) -> None:
    """Measure steps of RGCN with gradients of the features, one thread for each process."""
    with TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_process, (processes, data, into, folder), processes)  # pyright: ignore[reportPrivateImportUsage]


def _process(rank: int, count: int, data: str, into: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{Path(folder, 'meet')}", rank=rank, world_size=count)
    whole = datasets.resolve(data).graph
    edges = torch.stack([whole.index("E", end).long() for end in ("src", "dst")])
    types, relations = whole.index("E", "etype").long(), whole.size("R")
    part = DistributedGraph(edges, partition(whole, count))
    plain = part.hetero_graph(types, relations)
    exchanging = part.hetero_graph(types, relations, exchanges=True)
    torch.manual_seed(1)
    layer, x = RGCN(FEATURES, into, relations), torch.randn(len(part.own), FEATURES, requires_grad=True)
    ways = {"rows": lambda: layer(part.exchange(x), plain), "chosen": lambda: layer(x, exchanging)}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    received: dict[str, int] = {}
    for step in range(STEPS + 1):  # the first one builds kernels and encodings
        for name, run in ways.items():
            dist.barrier()
            start, before = perf_counter(), part.bytes_received
            torch.autograd.grad(run().sum(), [x, *layer.parameters()])
            if step > 0:
                seconds[name].append(perf_counter() - start)
            received[name] = part.bytes_received - before
    for name in ways:
        total = torch.tensor([received[name]])
        dist.all_reduce(total)
        if rank == 0:
            click.echo(f"{name}: {median(seconds[name]):.2f} s, {int(total) / 1e6:.0f} MB received by all")
    if rank == 0 and isinstance(exchanging, ExchangingGraph):
        click.echo(f"{exchanging.rows} rows are read of other processes, {exchanging.sums} sums have parts in them")
        click.echo(layer.notes[-1])
    dist.destroy_process_group()

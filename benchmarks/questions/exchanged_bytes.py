"""Compares a layer that exchanges what takes the fewest bytes with one that exchanges the rows of its sources.

python -m benchmarks exchanged_bytes --data am~ --processes 4 --into 8
"""

from __future__ import annotations

from statistics import median
from time import perf_counter

import click
import torch
import torch.distributed as dist

from benchmarks.options import question
from benchmarks.scale.processes import Answer, spawned
from dacergnn import datasets
from dacergnn.distributed import DistributedGraph, partition
from dacergnn.modules import RGCN
from dacergnn.modules.ways.exchange import ExchangingGraph

FEATURES = 64
STEPS = 5


@question(data="aifb~0.1", processes=2)
def main(data: str = "am~", processes: int = 4, into: int = 8) -> None:
    """Measure steps of RGCN with gradients of the features, one thread for each process.

    Args:
        into: Features of the result; there are 64 before.
    """
    parts = spawned(processes, 1, steps, data, into)
    for name, seconds in parts[0]["seconds"].items():
        received = sum(part["received"][name] for part in parts)
        click.echo(f"{name}: {seconds:.2f} s, {received / 1e6:.0f} MB received by all")
    for line in parts[0]["lines"]:
        click.echo(line)


def steps(count: int, data: str, into: int) -> Answer:
    """Returns the median seconds of a step by its way, the bytes that this process receives, and lines about them."""
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
    lines: list[str] = []
    if isinstance(exchanging, ExchangingGraph):
        lines = [f"{exchanging.rows} rows are read of other processes, {exchanging.sums} sums have parts in them"]
        lines += [note for note in layer.notes[-1:] if note]
    medians = {name: median(own) for name, own in seconds.items()}
    return {"seconds": medians, "received": received, "lines": lines}

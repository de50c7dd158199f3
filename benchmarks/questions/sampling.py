"""Compares our sampling of neighbours with DGL's on one thread, by processor time of some hops around seeds.

In each hop, DGL samples for all nodes so far, and ours for those that the last hop found, as PyG does. So one hop is
the same work for both; more hops are compared by edges per second of processor time. Blocks of batches take turns;
values are medians.

Run: DACERGNN_DATA=... python -m benchmarks sampling [--data citeseer,mag_cut10] [--batch 1024] [--fanouts "10;15,10"]
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ.setdefault("DGLBACKEND", "pytorch")  # else DGL writes a settings file into the home folder

import click
import dgl
import torch
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.sampler import NodeSamplerInput

from benchmarks.options import question
from dacergnn import datasets
from dacergnn.bench.measure import OF_PROCESSOR, Timing, interleave
from dacergnn.bench.scatter import marked, noted
from dacergnn.sampler import NeighborSampler
from dacergnn.tables import Table

Edges = dict[tuple[str, str, str], tuple[Tensor, Tensor]]
Draw = Callable[[Tensor], int]
ROUNDS, BATCHES = 15, 8


def typed_edges(name: str) -> tuple[dict[str, int], Edges]:
    """Returns the number of nodes by type, and edges by type between nodes that count from 0 in each type."""
    graph = datasets.load(name).graph
    ranges = graph.node_ranges or ((0, graph.size("NS")),)
    names = list(graph.node_type_names)
    src, dst, etype = (graph.index("E", path).long() for path in ("src", "dst", "etype"))
    starts = torch.tensor([first for first, _ in ranges])
    edges: Edges = {}
    for number, relation in enumerate(graph.edge_type_names):
        of = etype == number
        types = [int(torch.searchsorted(starts, ends[of][0], right=True)) - 1 for ends in (src, dst)]
        pair = (src[of] - starts[types[0]], dst[of] - starts[types[1]])
        edges[names[types[0]], relation, names[types[1]]] = pair
    return {key: last - first for key, (first, last) in zip(names, ranges, strict=True)}, edges


def of_dacergnn(counts: dict[str, int], edges: Edges, fanouts: list[int], seed_type: str) -> Draw:
    data = HeteroData()
    for key, count in counts.items():
        data[key].num_nodes = count
    for key, pair in edges.items():
        data[key].edge_index = torch.stack(pair)
    sampler = NeighborSampler(data, fanouts)

    def draw(seeds: Tensor) -> int:
        found = sampler.sample_from_nodes(NodeSamplerInput(None, seeds, None, seed_type))
        return sum(map(len, found.row.values()))

    return draw


def of_dgl(counts: dict[str, int], edges: Edges, fanouts: list[int], seed_type: str) -> Draw:
    library: Any = dgl
    graph = library.heterograph(edges, counts)
    graph.create_formats_()
    sampler = dgl.dataloading.NeighborSampler(fanouts[::-1])  # DGL lists the hop next to the seeds last

    def draw(seeds: Tensor) -> int:
        _, _, blocks = sampler.sample(graph, {seed_type: seeds})
        return sum(block.num_edges() for block in blocks)

    return draw


def measured(draws: dict[str, Draw], batches: list[Tensor]) -> dict[str, tuple[Timing, float]]:
    """Returns the processor time for all batches, and edges per second, by library."""
    edges = {name: sum(map(draw, batches)) for name, draw in draws.items()}  # warms up, too
    blocks = {name: partial(_all, draw, batches) for name, draw in draws.items()}
    timings = interleave(blocks, ROUNDS, clock=OF_PROCESSOR)
    return {name: (timing, 1e3 * edges[name] / timing.ms) for name, timing in timings.items()}


def _all(draw: Draw, batches: list[Tensor]) -> None:
    for batch in batches:
        draw(batch)


@question(data=(), batch=())
def main(
    data: tuple[str, ...] = ("citeseer", "mag_cut10", "heco_dblp", "aifb"), batch: tuple[int, ...] = (128, 1024),
    fanouts: str = "10;15,10",
) -> None:  # fmt: skip
    torch.set_num_threads(1)
    rates = ("M edges/s (ours)", "M edges/s (DGL)", "ratio")
    table = Table("Batches of seeds", ("graph", "seeds", "fanouts", "ms (ours)", "ms (DGL)", *rates), keys=3)
    for name in data:
        counts, edges = typed_edges(name)
        seed_type = max(counts, key=lambda key: sum(len(d) for (_, _, end), (_, d) in edges.items() if end == key))
        for hops in fanouts.split(";"):
            sizes = [int(number) for number in hops.split(",")]
            draws = {"ours": of_dacergnn(counts, edges, sizes, seed_type)}
            draws["dgl"] = of_dgl(counts, edges, sizes, seed_type)
            for size in batch:
                torch.manual_seed(0)
                found = measured(draws, [torch.randperm(counts[seed_type])[:size] for _ in range(BATCHES)])
                (own, rate), (other, other_rate) = found["ours"], found["dgl"]
                times = (marked(f"{timing.ms / BATCHES:.2f}", timing.scatters) for timing in (own, other))
                scattering = own.scatters or other.scatters
                ratio = marked(f"{rate / other_rate:.1f}", scattering)
                table.add_row(name, str(size), hops, *times, f"{rate / 1e6:.1f}", f"{other_rate / 1e6:.1f}", ratio)
    click.echo(noted(table))

"""Counts how many ranges of destinations read a source, in the present order of nodes and in that of `locality_order`.

python -m benchmarks order_of_nodes --data fb15k237,pubmed --ranges 16
"""

from __future__ import annotations

import click
import torch
from torch import Tensor

from benchmarks.options import question
from dacergnn import datasets
from dacergnn.graph import HeteroGraph, locality_order
from dacergnn.graph.destination_ranges import DestinationRanges

DATA = ("aifb", "fb15k237", "pubmed", "wn18rr", "mag_cut10", "am~0.1", "mag~0.1")


@question(data=())
def main(data: tuple[str, ...] = DATA, ranges: int = 16) -> None:
    """Print the mean over all sources of each graph."""
    for name in data:
        graph = datasets.resolve(name).graph
        order = locality_order(graph)
        before, after = (read_by(graph, own, ranges) for own in (torch.arange(len(order)), order.argsort()))
        click.echo(f"{name}: {before:.1f} as it is, {after:.1f} in the order")


def read_by(graph: HeteroGraph, numbers: Tensor, ranges: int) -> float:
    """Returns the number of ranges that read a source, in the mean, if nodes have other numbers."""
    src, dst = (numbers[graph.index("E", end).long()] for end in ("src", "dst"))
    renumbered = HeteroGraph.from_arrays((src, dst), None, num_nodes=len(numbers))
    bounds = torch.tensor(DestinationRanges.of(renumbered).bounds(ranges))
    pairs = torch.searchsorted(bounds, dst, right=True) * len(numbers) + src
    return len(pairs.unique()) / len(src.unique())

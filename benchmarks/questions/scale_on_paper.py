"""Estimates a training step on graphs that no single machine holds, by the cost model: time, memory and exchange.

python -m benchmarks scale_on_paper [--machines 16,64,256]

A machine has `MACHINE`, a network of `NETWORK` bytes per second, and a part of the destinations of each relation.
Edges are spread evenly, so each part reads as many rows of other machines as a random graph would: this is the worst
case, since real graphs can be divided better.
"""

from __future__ import annotations

from math import exp, log2
from typing import NamedTuple

import click
import torch

from benchmarks.options import question
from dacergnn import modules
from dacergnn.config import TYPICAL_RATES, Config, Rates
from dacergnn.cost import program_cost
from dacergnn.graph.profile import Profile
from dacergnn.modules.programs import compiled_program
from dacergnn.sdfg_passes import compile_program
from dacergnn.tuning.collect import INDEX

FEATURES = 64
TIMES = 8
"""Times the rates of two cores that a machine of 16 cores has."""
MACHINE = Rates(*(TIMES * rate for rate in vars(TYPICAL_RATES["cpu"]).values()))
NETWORK = 12.5e9
LATENCY = 20e-6
"""Seconds for each round of an exchange among all machines."""


class Relation(NamedTuple):
    """Describes the edges of a type: the types of their ends, and their number."""

    source: str
    destination: str
    edges: int


class Graph(NamedTuple):
    """Describes a graph by its numbers of nodes and its relations."""

    name: str
    nodes: dict[str, int]
    relations: list[Relation]


MAG = Graph("mag", {"paper": 736_389, "author": 1_134_649, "field": 59_965, "institution": 8_740}, [
    Relation("paper", "paper", 5_416_271), Relation("author", "paper", 7_145_660),
    Relation("paper", "field", 7_505_078), Relation("author", "institution", 1_043_998),
])  # fmt: skip
MAG240M = Graph("ogbn-mag240M", {"paper": 121_751_666, "author": 122_383_112, "institution": 25_721}, [
    Relation("author", "paper", 386_022_720), Relation("paper", "author", 386_022_720),
    Relation("paper", "paper", 1_297_748_926), Relation("paper", "paper", 1_297_748_926),
    Relation("author", "institution", 44_592_586), Relation("institution", "author", 44_592_586),
])  # fmt: skip
"""Has an inverse of each relation."""
LARGEST = Graph("10^10 edges", {"node": 10**9}, [Relation("node", "node", 10**10 // 4)] * 4)


def distinct(rows: int, draws: float) -> float:
    """Returns how many of some rows are drawn at least once."""
    return rows * (1 - exp(-draws / rows))


def part_sizes(graph: Graph, count: int) -> tuple[dict[str, int], int]:
    """Returns the rows of a part by row space, and the rows that it reads of other machines."""
    own = sum(graph.nodes.values()) / count
    read = 0.0
    for kind, nodes in graph.nodes.items():
        draws = sum(r.edges for r in graph.relations if r.source == kind) / count
        read += distinct(nodes, draws) * (1 - 1 / count)
    spaces: dict[str, float] = dict.fromkeys(("E", "U", "V", "Es", "Us", "Vs", "Ed", "Ud", "Vd"), 0.0)
    for relation in graph.relations:
        edges = relation.edges / count
        targets = graph.nodes[relation.destination] // count + 1
        pairs = {"E": edges, "U": distinct(graph.nodes[relation.source], edges), "V": distinct(targets, edges)}
        side = "s" if pairs["U"] <= pairs["V"] else "d"
        for space, number in pairs.items():
            spaces[space] += number
            spaces[space + side] += number
    types = len(graph.relations), len(graph.nodes)
    rows = {"NS": own + read, "ND": own, "RNS": types[0] * (own + read), "R": types[0], "T": types[1], "ONE": 1}
    return {space: round(number) for space, number in (spaces | rows).items()}, round(read)


def estimate(model: str, sizes: dict[str, int], rates: Rates) -> tuple[float, int]:
    """Returns the seconds of a step, with gradients of the features, and its bytes, with the features."""
    relations, types = sizes["R"], sizes["T"]
    layer = {
        "RGCN": lambda: modules.RGCN(FEATURES, FEATURES, relations),
        "RGAT": lambda: modules.RGAT(FEATURES, FEATURES, relations),
        "HGT": lambda: modules.HGT(FEATURES, types, relations),
    }[model]()
    profile = Profile(tuple(sizes.items()), single_typed=True)
    compiled = compiled_program(layer.program(), torch.float32, torch.int32, Config(), profile)
    mask = tuple(name != "norm" for name in compiled.inputs)
    wrt = [name for name, needed in zip(compiled.inputs, mask, strict=True) if needed]
    made = compile_program(compiled.sdfg, wrt, Config(), INDEX, profile)
    costs = [program_cost(sdfg, sizes) for sdfg in (made.forward, made.backward) if sdfg is not None]
    return sum(cost.seconds(rates) for cost in costs), compiled.need(sizes, mask).peak + 4 * FEATURES * sizes["NS"]


@question(machines=(), models=())
def main(machines: tuple[int, ...] = (16, 64, 256), models: tuple[str, ...] = ("RGCN", "RGAT", "HGT")) -> None:
    """Prints a row for each model, graph and number of machines."""
    sizes, _ = part_sizes(MAG, 1)
    for model in models:
        seconds, need = estimate(model, sizes, TYPICAL_RATES["cpu"])
        click.echo(f"{model:5} {MAG.name}, two cores: {seconds:.2f} s, {need / 1e9:.2f} GB")
    for graph in (MAG240M, LARGEST):
        for model in models:
            for count in machines:
                sizes, read = part_sizes(graph, count)
                seconds, need = estimate(model, sizes, MACHINE)
                moved = 2 * read * FEATURES * 4
                exchange = moved / NETWORK + 2 * LATENCY * log2(count)
                click.echo(
                    f"{model:5} {graph.name:13} {count:4} machines: {seconds:6.2f} s and {exchange:5.2f} s of exchange "
                    f"({moved / 1e9:6.2f} GB), {need / 1e9:7.1f} GB"
                )

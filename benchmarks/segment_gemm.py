"""SegmentGemm against torch.mm: a typed product with gather and scatter, and torch.mm on rows gathered before.

Run: python benchmarks/segment_gemm.py [--rows 200000] [--types 100] [--features 64]
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import click
import torch

from dacergnn import HeteroGraph, parse
from dacergnn.bench.measure import time_call
from dacergnn.runtime.executable import Executable
from dacergnn.sdfg_passes import Context, SelectAdjacency

PROGRAMS = {
    "gather": """
def gather(g, x: NS[{d}], W: R[{d}, {d}]):
    for e in g.edges():
        e["y"] = linear(e.src.x, W[e.etype])
    return y
""",
    "gather and scatter": """
def gather_scatter(g, x: NS[{d}], W: R[{d}, {d}], s: E):
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["y"] += e["s"] * linear(e.src.x, W[e.etype])
    return y
""",
    "transposed": """
def transposed(g, x: NS[{d}], W: R[{d}, {d}]):
    for e in g.edges():
        e["y"] = linear(e.src.x, W[e.etype].T)
    return y
""",
    "outer product": """
def outer(g, x: NS[{d}], z: ND[{d}]):
    for e in g.edges():
        W[e.etype] += outer_prod(e.src.x, e.dst.z)
    return W
""",
}


def compiled(text: str, graph: HeteroGraph, features: int) -> Callable[[], object]:
    """A program on random arrays as a call that allocates its results, as torch.mm does."""
    sdfg = parse(text.format(d=features))
    SelectAdjacency().run(sdfg, Context())
    executable = Executable(sdfg)
    prepared = executable.prepare(graph)
    inputs = [torch.randn(shape) for shape in prepared.inputs.shapes.values()]
    return lambda: executable(prepared, inputs)


@click.command()
@click.option("--rows", default=200_000, show_default=True)
@click.option("--types", default=100, show_default=True)
@click.option("--features", default=64, show_default=True)
@click.option("--repeat", default=30, show_default=True)
def main(rows: int, types: int, features: int, repeat: int) -> None:
    """Print medians of interleaved runs on two threads, in GFLOP/s, and ratios to torch.mm."""
    torch.set_num_threads(2)
    nodes = max(rows // 8, 1)
    edges = torch.randint(0, nodes, (2, rows))
    graph = HeteroGraph.from_arrays(edges, torch.randint(0, types, (rows,)), num_nodes=nodes, num_edge_types=types)
    gathered = torch.randn(rows, features)
    weights = torch.randn(features, features)
    calls: dict[str, Callable[[], object]] = {"torch.mm, rows gathered before": lambda: torch.mm(gathered, weights)}
    calls |= {name: compiled(text, graph, features) for name, text in PROGRAMS.items()}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeat):
        for name, call in calls.items():
            samples[name].append(time_call(call))
    flops = 2.0 * rows * features * features
    rates = {name: flops / median(times) / 1e9 for name, times in samples.items()}
    peer = next(iter(rates.values()))
    for name, rate in rates.items():
        click.echo(f"{name:32s} {rate:8.1f} GFLOP/s {rate / peer:6.2f}x")


if __name__ == "__main__":
    main()

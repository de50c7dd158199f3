"""Compares SegmentGemm with torch.mm: typed products with gather and scatter, or products of all nodes with one weight.

Run: python -m benchmarks segment_gemm [--rows 200000] [--types 100] [--features 64]
     python -m benchmarks segment_gemm --untyped [--threads 1] [--shapes 3327x3703x256,19717x500x64]

Typed products are compared with torch.mm on rows that were gathered before. Shapes of untyped products are rows,
columns of the rows, and columns of the products: `linear(n.x, W)` and the gradient of W, each beside torch.mm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import click
import torch

from benchmarks.options import question
from dacergnn import HeteroGraph, parse
from dacergnn.bench.measure import Timing, interleave
from dacergnn.bench.scatter import NOTE, marked
from dacergnn.runtime.executable import Executable
from dacergnn.sdfg_passes import Context, SelectAdjacency
from dacergnn.tables import Table

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
PRODUCT = """
def product(g, x: NS[{k}], W: ONE[{k}, {m}]):
    for n in g.src_nodes():
        n["y"] = linear(n.x, W)
    return y
"""
GRADIENT = """
def gradient(g, x: NS[{k}], z: NS[{m}]):
    for n in g.src_nodes():
        W += outer_prod(n.x, n.z)
    return W
"""
# Layers of citation graphs (their words, 16 to 256 hidden channels), of Amazon's products, and of relational graphs.
SHAPES = (
    "3327x3703x256", "3327x3703x64", "2708x1433x16", "2708x1433x64", "19717x500x64", "19717x500x256", "13752x767x64",
    "8285x64x64", "50000x128x128", "100000x128x64", "100000x256x256", "200000x64x64",
)  # fmt: skip


def compiled(text: str, graph: HeteroGraph, inputs: list[torch.Tensor] | None = None) -> Callable[[], object]:
    """Returns a call of a program on these arrays, or random ones; it allocates its results, as torch.mm does."""
    sdfg = parse(text)
    SelectAdjacency().run(sdfg, Context())
    executable = Executable(sdfg)
    prepared = executable.prepare(graph)
    given = inputs or [torch.randn(prepared.inputs.shape(name)) for name in executable.lowered.inputs]
    return lambda: executable(prepared, given)


@dataclass(frozen=True)
class Rate:
    """Holds a rate in GFLOP/s, and the runs whose median it is of."""

    value: float
    timing: Timing

    def over(self, peer: Rate) -> str:
        """Returns the ratio to another rate, marked if the runs of one of both scatter."""
        return marked(f"{self.value / peer.value:.2f}", self.timing.scatters or peer.timing.scatters)


def rates(calls: Mapping[str, Callable[[], object]], flops: float, repeat: int) -> dict[str, Rate]:
    """Returns the rates of interleaved runs."""
    return {name: Rate(flops / timing.ms / 1e6, timing) for name, timing in interleave(calls, repeat).items()}


def typed(rows: int, types: int, features: int, repeat: int) -> None:
    """Prints the rates of typed products and their ratios to that of torch.mm."""
    nodes = max(rows // 8, 1)
    edges = torch.randint(0, nodes, (2, rows))
    graph = HeteroGraph.from_arrays(edges, torch.randint(0, types, (rows,)), num_nodes=nodes, num_edge_types=types)
    gathered = torch.randn(rows, features)
    weights = torch.randn(features, features)
    calls: dict[str, Callable[[], object]] = {"torch.mm, rows gathered before": lambda: torch.mm(gathered, weights)}
    calls |= {name: compiled(text.format(d=features), graph) for name, text in PROGRAMS.items()}
    found = rates(calls, 2.0 * rows * features * features, repeat)
    peer = next(iter(found.values()))
    for name, rate in found.items():
        click.echo(f"{name:32s} {rate.value:8.1f} GFLOP/s {rate.over(peer):>7s} x")


def rates_of(shape: str, repeat: int) -> list[str]:
    """Returns the shape, the rates of a product and of the gradient of its weight, and their ratios to torch.mm's."""
    n, k, m = map(int, shape.split("x"))
    graph = HeteroGraph.from_arrays(torch.zeros(2, 0, dtype=torch.long), None, num_nodes=n)
    x, weight, z = torch.randn(n, k), torch.randn(k, m), torch.randn(n, m)
    product, gradient = torch.empty(n, m), torch.empty(k, m)
    cells = [f"{n:,} x {k:,} x {m}"]
    for text, inputs, peer in (
        (PRODUCT, [x, weight[None]], lambda: torch.mm(x, weight, out=product)),
        (GRADIENT, [x, z], lambda: torch.mm(x.T, z, out=gradient)),
    ):
        calls = {"torch": peer, "ours": compiled(text.format(k=k, m=m), graph, inputs)}
        found = rates(calls, 2.0 * n * k * m, repeat)
        cells += [f"{found[name].value:.0f}" for name in ("torch", "ours")] + [found["ours"].over(found["torch"])]
    return cells


@question(rows=20_000, shapes=(), repeat=3)
def main(
    rows: int = 200_000, types: int = 100, features: int = 64, untyped: bool = False,
    shapes: tuple[str, ...] = SHAPES, threads: int = 2, repeat: int = 30,
) -> None:  # fmt: skip
    """Print medians of interleaved runs, in GFLOP/s, and ratios to torch.mm.

    Args:
        untyped: Products with one weight, of --shapes.
        shapes: Rows x columns x columns of the products.
    """
    torch.set_num_threads(threads)
    click.echo(NOTE)
    if not untyped:
        typed(rows, types, features, repeat)
        return
    headings = ("shape", "torch.mm", "product", "ratio", "torch.mm", "gradient", "ratio")
    click.echo(Table("", headings, rows=(rates_of(shape, repeat) for shape in shapes)).markdown())

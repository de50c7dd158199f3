"""Defines the command `python -m benchmarks networks`."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import click

from benchmarks.networks.tables import means, table
from benchmarks.relational.peers import library_module
from benchmarks.relational.settings import check
from benchmarks.suite import end, json_option, quickly, terminal, threads_option
from dacergnn.bench.runner import Limits
from dacergnn.cli.options import device_option, names, numbers, present

EDGES = (250, 3_000, 40_000)
QUICK = ("GCN", "HeteroConv(SAGE)")
PEERS = {"dgl": "DGL", "plain": "plain", "compile": "compiled"}
"""Values of --peers, and how the names of such candidates begin."""


@click.command()
@click.option("--networks", default="", callback=names, help="Comma-separated; by default all.")
@click.option("--edges", default="", callback=numbers, help="Edges of random graphs, of which each step has a new one; "
              f"by default {','.join(map(str, EDGES))}, and none with --graph.")  # fmt: skip
@click.option("--graph", "graphs", default="", callback=names, help="Whole graphs, which all steps are on.")
@click.option("--peers", default="", callback=names,
              help=f"Beside PyG's layers, where they compute the same: {', '.join(PEERS)}.")  # fmt: skip
@click.option("--repeat", default=30, show_default=True, type=click.IntRange(1), help="Most rounds.")
@click.option("--budget", default=4.0, show_default=True, help="Seconds for the rounds of one candidate.")
@threads_option
@click.option("--memory/--no-memory", default=True, help="Measure peak memory, each in a process of its own.")
@device_option
@json_option
@quickly(networks=QUICK, edges=EDGES[:1], graphs=(), repeat=3, budget=0.3, memory=False)
def networks(
    networks: tuple[str, ...], edges: tuple[int, ...], graphs: tuple[str, ...], peers: tuple[str, ...], repeat: int,
    budget: float, threads: int, memory: bool, device: str, path: Path | None,
) -> None:  # fmt: skip
    """Measure training steps of whole networks: as PyG has them, compiled, and of peers.

    Three layers, 64 features wide, each with a norm, ReLU, dropout and a residual; a linear head, cross entropy, and
    Adam. Losses of the first steps are compared; then steps run in turns in one process, and times are medians.
    """
    library_module("pyg")
    from benchmarks.networks.layers import KINDS
    from benchmarks.networks.network import ORIGINAL, OURS
    from benchmarks.networks.training import Training, run_trainings

    check("networks", networks or QUICK, tuple(KINDS))
    check("peers", peers or tuple(PEERS), tuple(PEERS))
    chosen = networks or tuple(KINDS)
    sizes = edges or (() if graphs else EDGES)
    limits = Limits(("train",), threads, repeat, budget, device=device)
    cases = [Training(name, size, device=device) for size, name in product(sizes, chosen)]
    cases += [Training(name, data=data, device=device) for data, name in product(map(present, graphs), chosen)]
    console = terminal()
    kinds = {ORIGINAL, OURS, *(PEERS[name] for name in peers)}
    rows = run_trainings(
        cases, lambda case: [name for name in case.names() if name.partition(" ")[0] in kinds], limits,
        weighed=lambda _: memory, path=path, console=console, threads=threads,
    )  # fmt: skip
    click.echo(f"{table(rows)}\n\n{means(rows)}")
    wrong = [row for row in rows if row["library"] == OURS and row["status"] != "ok"]
    end(console, [f"{row['network']}: {row['status']} {row['note']}" for row in wrong])

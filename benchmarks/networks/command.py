"""Defines the command `python -m benchmarks networks`."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import click

from benchmarks.networks.tables import means, table
from benchmarks.options import question
from benchmarks.relational.peers import library_module
from benchmarks.relational.settings import check
from benchmarks.suite import end, terminal
from dacergnn.bench.runner import Limits
from dacergnn.cli.options import present

EDGES = (250, 3_000, 40_000)
QUICK = ("GCN", "HeteroConv(SAGE)")
PEERS = {"dgl": "DGL", "plain": "plain", "compile": "compiled"}
"""Values of --peers, and how the names of such candidates begin."""


@question(networks=QUICK, edges=EDGES[:1], graph=(), repeat=3, budget=0.3, memory=False)
def networks(
    networks: tuple[str, ...] = (), edges: tuple[int, ...] = (), graph: tuple[str, ...] = (),
    peers: tuple[str, ...] = (), repeat: int = 30, budget: float = 4.0, threads: int = 2, memory: bool = True,
    device: str = "cpu", path: Path | None = None,
) -> None:  # fmt: skip
    """Measure training steps of whole networks: as PyG has them, compiled, and of peers.

    Three layers, 64 features wide, each with a norm, ReLU, dropout and a residual; a linear head, cross entropy, and
    Adam. Losses of the first steps are compared; then steps run in turns in one process, and times are medians.

    Args:
        networks: Comma-separated; by default all.
        edges: Edges of random graphs, of which each step has a new one; by default 250, 3000 and 40000, and none with
            --graph.
        graph: Whole graphs, which all steps are on.
        peers: Beside PyG's layers, where they compute the same: dgl, plain, compile.
        repeat: Most rounds.
        budget: Seconds for the rounds of one candidate.
        memory: Measure peak memory, each in a process of its own.
    """
    library_module("pyg")
    from benchmarks.networks.layers import KINDS
    from benchmarks.networks.network import ORIGINAL, OURS
    from benchmarks.networks.training import Training, run_trainings

    check("networks", networks or QUICK, tuple(KINDS))
    check("peers", peers or tuple(PEERS), tuple(PEERS))
    chosen = networks or tuple(KINDS)
    sizes = edges or (() if graph else EDGES)
    limits = Limits(("train",), threads, repeat, budget, device=device)
    cases = [Training(name, size, device=device) for size, name in product(sizes, chosen)]
    cases += [Training(name, data=data, device=device) for data, name in product(map(present, graph), chosen)]
    console = terminal()
    kinds = {ORIGINAL, OURS, *(PEERS[name] for name in peers)}
    rows = run_trainings(
        cases, lambda case: [name for name in case.names() if name.partition(" ")[0] in kinds], limits,
        weighed=lambda _: memory, path=path, console=console, threads=threads,
    )  # fmt: skip
    click.echo(f"{table(rows)}\n\n{means(rows)}")
    wrong = [row for row in rows if row["library"] == OURS and row["status"] != "ok"]
    end(console, [f"{row['network']}: {row['status']} {row['note']}" for row in wrong])

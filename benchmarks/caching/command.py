"""Defines the command `python -m benchmarks caching`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks.caching.report import tables
from benchmarks.caching.runner import divided, run
from benchmarks.caching.settings import AGAINST, GRADIENTS, MODELS, NETWORKS, CachingSettings
from benchmarks.caching.task import Limits
from benchmarks.suite import json_option, quickly, terminal, threads_option
from dacergnn.cli.options import data_option, device_option, names, numbers, rates_option
from dacergnn.config import AGGREGATIONS, Rates
from dacergnn.json_lines import Row


def _list(name: str, default: tuple[str, ...], text: str) -> Callable[[Any], Any]:
    return click.option(name, default=",".join(default), callback=names, show_default=bool(default), help=text)


@click.command()
@_list("--models", MODELS, "Comma-separated, as all lists here.")
@data_option(*CachingSettings.data)
@_list("--networks", CachingSettings.networks, f"Of {', '.join(NETWORKS)}: one layer on random features, two on "
       "those of the data set, two whose first takes them as a sparse tensor.")  # fmt: skip
@click.option("--hidden", default="", callback=numbers, help="Sizes, of each head where there are heads; by default "
              "8 to 1024, 8 to 128 with heads, 64 on clouds.")  # fmt: skip
@click.option(
    "--features", default=CachingSettings.features, show_default=True, help="Input features of a single layer."
)
@click.option("--heads", default=CachingSettings.heads, show_default=True, help="Of layers that attend.")
@_list("--gradients", GRADIENTS, "Whether the input of a single layer needs gradients.")
@_list("--strategies", CachingSettings.strategies, "What is saved: cache_all, recompute_all, papers, auto, "
       "budget:BYTES, any of them +cache:NAME or +recompute:NAME and called LABEL=..., or "
       "'named' for all that papers name.")  # fmt: skip
@_list("--formats", CachingSettings.formats, "Sparse formats of traversals: auto, csr, csc, coo, ell, hybrid.")
@_list("--orders", CachingSettings.orders, f"Of a product and a sum over neighbours: {', '.join(AGGREGATIONS)}.")
@_list("--against", CachingSettings.against, f"Peers, in turns with ours: {', '.join(AGAINST)}.")
@_list("--modes", Limits.modes, "Forward without gradients, forward that saves, forward and backward.")
@click.option("--repeat", default=Limits.repeat, show_default=True, type=click.IntRange(1), help="Most rounds.")
@click.option("--budget", default=Limits.budget_s, show_default=True, help="Seconds for the timing of one case.")
@threads_option
@device_option
@rates_option
@click.option("--seed", default=Limits.seed, show_default=True, help="Of random features.")
@click.option("--memory/--no-memory", default=True, help="Measure peak memory, each case in a process of its own.")
@click.option("--dry-run", is_flag=True, help="List the cases that are left to measure.")
@click.option("--report", is_flag=True, help="Measure nothing: print the tables of what --json holds of these cases.")
@json_option
@quickly(models=(), data=(), networks=(), hidden=(8,), gradients=(), repeat=3, budget=0.3, memory=False)
def caching(
    models: tuple[str, ...], data: tuple[str, ...], networks: tuple[str, ...], hidden: tuple[int, ...], features: int,
    heads: int, gradients: tuple[str, ...], strategies: tuple[str, ...], formats: tuple[str, ...],
    orders: tuple[str, ...], against: tuple[str, ...], modes: tuple[str, ...], repeat: int, budget: float,
    threads: int, device: str, rates: Rates | None, seed: int, memory: bool, dry_run: bool, report: bool,
    path: Path | None,
) -> None:  # fmt: skip
    """Measure what homogeneous layers gain by saving or recomputing, by size, order and sparse format.

    Times are medians of runs in turns in one process, with peers where asked for. A run that was ended goes on where it
    stopped when it is started again with the same file.
    """
    limits = Limits(modes, threads, repeat, budget, device=device, seed=seed, rates=rates)
    settings = CachingSettings(
        models, data, networks, hidden, gradients, strategies, formats, orders, against, features, heads, memory, limits
    )
    console = terminal()

    def on_case(rows: Sequence[Row]) -> None:
        for row in rows:
            if row["status"] != "ok":
                console.print(f"{row['library']} {row['name']}, {row['model']} on {row['data']}: {row['note']}")

    deadline = -math.inf if report or dry_run else math.inf
    rows = run(settings, path, console=console, on_case=on_case, deadline=deadline)
    if dry_run:
        done, left = divided(settings, rows)
        for task, candidates in left:
            console.print(f"{task}: {', '.join(map(str, candidates))}", highlight=False)
        count, known = (sum(len(candidates) for _, candidates in some) for some in (left, done))
        console.print(f"{count} cases of {len(left)} networks are left, {known} are done.")
        return
    for table in tables(rows):
        click.echo(table)

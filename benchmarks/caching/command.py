"""Defines the command `python -m benchmarks caching`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import click

from benchmarks.caching.report import tables
from benchmarks.caching.runner import divided, run
from benchmarks.caching.settings import CachingSettings
from benchmarks.options import settings
from benchmarks.suite import json_option, quickly, terminal
from dacergnn.json_lines import Row


@click.command()
@quickly(models=(), data=(), networks=(), hidden=(8,), gradients=(), repeat=3, budget_s=0.3, memory=False)
@settings(CachingSettings)
@click.option("--dry-run", is_flag=True, help="List the cases that are left to measure.")
@click.option("--report", is_flag=True, help="Measure nothing: print the tables of what --json holds of these cases.")
@json_option
def caching(settings: CachingSettings, dry_run: bool, report: bool, path: Path | None) -> None:
    """Measure what homogeneous layers gain by saving or recomputing, by size, order and sparse format.

    Times are medians of runs in turns in one process, with peers where asked for. A run that was ended goes on where it
    stopped when it is started again with the same file.
    """
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

"""Defines the command `python -m benchmarks scale`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import click

from benchmarks.options import question
from benchmarks.relational.settings import MODELS, check
from benchmarks.scale.limits import WithinLimits
from benchmarks.suite import end, run_cases, run_experiments, terminal
from dacergnn.bench.process import ask
from dacergnn.bench.runner import Limits
from dacergnn.bench.scatter import Ratio, marked, noted, ratio_cell, scatters
from dacergnn.config import Config
from dacergnn.distributed import METHODS
from dacergnn.json_lines import Row
from dacergnn.tables import Table

LIMIT_BYTES = 64 << 30
LIMIT_S = 1800.0
"""Seconds for one process, including the graph, builds and encodings."""


@question(models=(), data=(), limits=(), steps=1)
def scale(
    models: tuple[str, ...] = MODELS, data: tuple[str, ...] = ("mag~", "wikikg2~"), limits: tuple[str, ...] = ("4GB",),
    hidden: int = 64, steps: int = 3, threads: int = 2, processes: tuple[int, ...] = (), method: str = "ranges",
    rounds: str = "", path: Path | None = None,
) -> None:  # fmt: skip
    """Measure training steps within a limit of memory, or in several processes, against steps without.

    Steps with and without a limit run in turns in one process, and times are medians. Peaks come from processes of
    their own: what a step takes at the most beside features and parameters, with the encodings of the graph.

    Args:
        models: Comma-separated.
        limits: Config(memory=...), comma-separated.
        hidden: Features in and out.
        steps: Measured steps of each limit.
        processes: Numbers of processes, comma-separated: measures full-graph training in these on this machine, instead
            of limits.
        method: Divides the nodes among processes: METHODS.
        rounds: A size of memory for rows of nodes, as in 500MB: processes run layers piece by piece
            (DistributedGraph.run).
    """
    check("method", (method,), METHODS)
    if any(count < 1 for count in processes):
        raise click.BadParameter("holds a number below 1", param_hint="--processes")
    if rounds and not processes:
        raise click.BadParameter("is for several processes; give --processes, too", param_hint="--rounds")
    for limit in (*limits, rounds or "1GB"):
        Config(memory=limit)  # raises an error for what is no size

    console = terminal()
    options: dict[str, Any] = {"path": path, "console": console}
    request: Row = {"hidden": hidden, "steps": steps, "threads": threads}
    if processes:
        requests = [{"model": model, "data": graph, **request, "method": method, "rounds": rounds}
                    for model, graph in product(models, data)]  # fmt: skip
        rows = run_cases(
            requests, lambda case, _: in_processes(case, processes), **options,
            fields=lambda case: [case | {"processes": count} for count in processes],
        )  # fmt: skip
    else:
        cases = [(WithinLimits(model, graph, hidden), ["", *limits]) for model, graph in product(models, data)]
        bounds = Limits(("train",), threads, steps, LIMIT_S, LIMIT_S, LIMIT_BYTES)
        rows = run_experiments(
            cases, bounds, lambda case, limit: {"model": case.model, "data": case.data, **request, "limit": limit},
            lambda _: True, **options,
        )  # fmt: skip
    click.echo(_table_of_processes(rows) if processes else _table(rows))
    failed = [row for row in rows if "error" in row or row.get("status", "ok") != "ok"]
    end(console, [f"{row['model']} on {row['data']}: {row.get('error') or row['note']}" for row in failed])


def in_processes(request: Row, counts: Sequence[int]) -> list[Row]:
    """Returns a row for each number of processes: seconds, the largest peak of one, and what all receive, in bytes."""
    rows = [{**request, "processes": count} for count in counts]
    return [
        row | ask("benchmarks.scale.processes.measured", row, limit_s=LIMIT_S, threads=row["threads"],
                  limit_bytes=LIMIT_BYTES)
        for row in rows
    ]  # fmt: skip


def _table_of_processes(rows: list[Row]) -> Table:
    headings = ("model", "graph", "processes", "step s", "peak GB", "of the first", "received MB", "of the least")
    table = Table("Full-graph training in several processes", headings, keys=2)
    first: dict[tuple[str, str], float] = {}
    for row in rows:
        names = row["model"], row["data"], str(row["processes"])
        if "error" in row:
            table.add_row(*names)
            table.add_note(f"{', '.join(names)}: {row['error']}")
            continue
        share = row["peak"] / first.setdefault(names[:2], row["peak"])
        least = f"{row['received'] / row['least']:.2f}" if row["least"] else ""
        sizes = f"{row['peak'] / 1e9:.3f}", f"{share:.2f}", f"{row['received'] / 1e6:.1f}"
        table.add_row(*names, f"{row['seconds']:.3f}", *sizes, least)
    return table


def _table(rows: list[Row]) -> Table:
    headings = ("model", "graph", "limit", "ranges", "step s", "ratio", "peak GB", "estimated GB", "difference")
    table = Table("Training steps within a limit of memory", headings, keys=3)
    whole: dict[tuple[str, str], Row] = {}
    for row in rows:
        names = row["model"], row["data"], row["limit"] or "none"
        if row["status"] != "ok":
            table.add_row(*names)
            table.add_note(f"{', '.join(names)}: {row['note']}")
            continue
        ratio = Ratio.of(row, whole.setdefault(names[:2], row), "train_ms")
        peak = "" if row["peak_mb"] is None else f"{row['peak_mb'] / 1e3:.2f}"
        table.add_row(
            *names, str(row["ranges"]), marked(f"{row['train_ms'] / 1e3:.2f}", scatters(row, "train_ms")),
            ratio_cell(ratio), peak, f"{row['estimate'] / 1e9:.2f}",
            f"{row['max_error']:.0e}",
        )  # fmt: skip
    return noted(table)

"""Defines the command `python -m benchmarks batches`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from benchmarks.batches.runner import ratio_of, run, steady_ratios
from benchmarks.batches.settings import BatchSettings
from benchmarks.options import settings
from benchmarks.rows import OURS, grouped, label
from benchmarks.suite import end, json_option, quickly, terminal
from dacergnn.bench.scatter import noted, ratio_cell, time_cell
from dacergnn.json_lines import Row
from dacergnn.tables import Table


@click.command()
@quickly(layers=(), seeds=(), steps=2)
@settings(BatchSettings)
@json_option
def batches(settings: BatchSettings, path: Path | None) -> None:
    """Measure training on sampled batches against the layers of PyG and DGL.

    Every batch is new, and all candidates train on it in turn; times are medians. Losses are compared in every step.
    """
    console = terminal()
    rows = run(settings, path=path, console=console)
    click.echo(_table(rows, settings))
    for name, steady in steady_ratios(rows).items():
        console.print(f"geometric mean of {name}: {steady.text()}", highlight=False)
    wrong = (row for row in rows if row["status"] != "ok")
    end(console, [f"{row['network']}: {label(row)}: {row['status']} {row['note']}" for row in wrong])


def _table(rows: list[Row], settings: BatchSettings) -> Table:
    headings = ["layer", "seeds", "edges", "sample ms", "eager ms", "ours ms", "ratio", "of processor time", "encoding",
               "eager steps/s", "ours steps/s", *(["compiled ms", "ratio"] if settings.compiled else [])]  # fmt: skip
    title = f"Training steps on {settings.data}, fan-outs {list(settings.fanouts)} (wall time)"
    table, step = Table(title, headings, keys=2), partial(time_cell, time="step_wall_ms", form=".2f")
    for case in grouped(rows):
        own = case.named(OURS)
        if case.failed or own is None:
            continue
        eager, *compiled = case.peers()
        cells = [
            f"{own['edges']:,.0f}", f"{own['sample_wall_ms']:.2f}", step(eager), step(own),
            ratio_cell(ratio_of(case, "ratio wall")), ratio_cell(ratio_of(case, "ratio processor")),
            f"{own['encode_wall_ms'] / own['step_wall_ms']:.0%}",
            f"{eager['steps_per_s']:.1f}", f"{own['steps_per_s']:.1f}",
        ]  # fmt: skip
        for row in compiled:
            cells += [step(row), ratio_cell(ratio_of(case, "ratio compiled"))]
        table.add_row(case["network"], str(case["seeds"]), *cells)
    return noted(table)

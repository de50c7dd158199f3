"""Defines the command `python -m benchmarks batches`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from benchmarks.batches.runner import ratio_of, run, steady_ratios
from benchmarks.batches.settings import DATA, LAYERS, BatchSettings
from benchmarks.suite import end, json_option, quickly, terminal, threads_option
from dacergnn.bench.scatter import noted, ratio_cell, time_cell
from dacergnn.cli.options import data_option, names, numbers
from dacergnn.json_lines import Row
from dacergnn.tables import Table


@click.command()
@click.option("--layers", default=",".join(LAYERS), callback=names, show_default=True, help="Comma-separated.")
@data_option(DATA)
@click.option("--seeds", default="16,256,4096", callback=numbers, show_default=True, help="Seeds of a batch.")
@click.option("--fanouts", default="10,10", callback=numbers, show_default=True,
              help="Neighbours in each hop, -1 for all; the network has as many layers.")  # fmt: skip
@click.option("--steps", default=BatchSettings.steps, show_default=True, help="Measured steps of a case.")
@threads_option
@click.option("--compiled", is_flag=True, help="Run the libraries' layers through torch.compile(dynamic=True), too.")
@json_option
@quickly(layers=(), seeds=(), steps=2)
def batches(
    layers: tuple[str, ...], data: str, seeds: tuple[int, ...], fanouts: tuple[int, ...], steps: int,
    threads: int, compiled: bool, path: Path | None,
) -> None:  # fmt: skip
    """Measure training on sampled batches against the layers of PyG and DGL.

    Every batch is new, and all candidates train on it in turn; times are medians. Losses are compared in every step.
    """
    settings = BatchSettings(layers, data, seeds, fanouts, steps, threads, compiled)
    console = terminal()
    rows = run(settings, path=path, console=console)
    click.echo(_table(rows, settings))
    for name, steady in steady_ratios(rows).items():
        console.print(f"geometric mean of {name.replace('_', ' ')}: {steady.text()}", highlight=False)
    end(console, [f"{row['layer']}: {row['error']}" for row in rows if "error" in row])


def _table(rows: list[Row], settings: BatchSettings) -> Table:
    headings = ["layer", "seeds", "edges", "sample ms", "eager ms", "ours ms", "ratio", "of processor time", "encoding",
               "eager steps/s", "ours steps/s", *(["compiled ms", "ratio"] if settings.compiled else [])]  # fmt: skip
    title = f"Training steps on {settings.data}, fan-outs {list(settings.fanouts)} (wall time)"
    table, step = Table(title, headings, keys=2), partial(time_cell, time="step_wall_ms", form=".2f")
    for row in [row for row in rows if "error" not in row]:
        eager, ours = row["eager"], row["ours"]
        cells = [
            f"{row['edges']:,.0f}", f"{row['sample_wall_ms']:.2f}", step(eager), step(ours),
            ratio_cell(ratio_of(row, "ratio_wall")), ratio_cell(ratio_of(row, "ratio_processor")),
            f"{row['encode_share_wall']:.0%}", f"{eager['steps_per_s']:.1f}", f"{ours['steps_per_s']:.1f}",
        ]  # fmt: skip
        if settings.compiled:
            cells += [step(row["compiled"]), ratio_cell(ratio_of(row, "ratio_compiled"))]
        table.add_row(row["layer"], str(row["seeds"]), *cells)
    return noted(table)

"""Defines the command `python -m benchmarks plot`."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarks.caching.plot.draw import figures
from benchmarks.caching.records import load
from benchmarks.rows import grouped
from dacergnn.errors import DacergnnError


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("plots"), show_default=True,
              help="Folder of the figures.")  # fmt: skip
def plot(file: Path, out: Path) -> None:
    """Draw the figures of FILE, which `python -m benchmarks caching --json FILE` wrote, as PNG and SVG."""
    found = grouped(load(file))
    out.mkdir(parents=True, exist_ok=True)
    count = 0
    for name, figure in figures(found):
        for ending in ("png", "svg"):
            figure.savefig(out / f"{name}.{ending}", dpi=150)
        click.echo(str(out / f"{name}.png"))
        count += 1
    if not count:
        raise DacergnnError(f"{file} has no results that a figure shows: none of its cases is timed.")

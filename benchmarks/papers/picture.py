"""Draws what was found, as bars or lines."""

from __future__ import annotations

from pathlib import Path

from benchmarks.papers.artefact import Cell, Found
from dacergnn.bench.picture import Panel, picture, save


def draw(found: Found, title: str, path: Path) -> None:
    """Draws a result into a file."""
    shown = found.picture
    places = [" ".join(str(cell) for cell in row[: shown.labels] if cell is not None) for row in found.rows]
    series = {name: [_number(row[found.columns.index(name)]) for row in found.rows] for name in shown.values}
    form = "lines" if shown.lines else "stacked" if shown.stacked else "bars"
    panel = Panel(title, series, places, form, shown.unit, "", shown.logarithmic, shown.reference)
    save(picture([panel]), path)


def _number(cell: Cell) -> float | None:
    return float(cell) if isinstance(cell, (int, float)) else None

"""Draws what was found, as bars or lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.papers.artefact import Cell, Found
from dacergnn.bench.picture import colour, new_figure

MOST_LABELS = 60
"""Rows up to which each is labelled."""


def draw(found: Found, title: str, path: Path) -> None:
    """Draws a result into a file."""
    picture = found.picture
    labels = [" ".join(str(cell) for cell in row[: picture.labels] if cell is not None) for row in found.rows]
    figure = new_figure(max(6.0, min(0.35 * len(labels) + 2, 16)), 4.2)
    axes: Any = figure.subplots()
    series = {name: [_number(row[found.columns.index(name)]) for row in found.rows] for name in picture.values}
    places = range(len(labels))
    if picture.lines:
        for n, (name, values) in enumerate(series.items()):
            axes.plot(places, values, marker="o", color=colour(n), label=name)
    elif picture.stacked:
        bottom = [0.0] * len(labels)
        for n, (name, values) in enumerate(series.items()):
            heights = [0.0 if value != value else value for value in values]
            axes.bar(places, heights, 0.8, bottom=bottom, color=colour(n), label=name)
            bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    else:
        width = 0.8 / max(len(series), 1)
        for n, (name, values) in enumerate(series.items()):
            axes.bar([place + n * width for place in places], values, width, color=colour(n), label=name, align="edge")
    if picture.logarithmic:
        axes.set_yscale("log")
    if picture.reference is not None:
        axes.axhline(picture.reference, color="black", linewidth=0.8)
    centre = 0.0 if picture.lines or picture.stacked else 0.4
    if len(labels) <= MOST_LABELS:
        axes.set_xticks([place + centre for place in places], labels, rotation=45, ha="right", fontsize="small")
    axes.set_ylabel(picture.unit)
    axes.set_title(title, fontsize="medium")
    axes.legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def _number(cell: Cell) -> float:
    return float(cell) if isinstance(cell, (int, float)) else float("nan")

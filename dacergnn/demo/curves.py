"""Draws loss curves in the terminal, and as a picture where matplotlib is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

# Bit of each dot of a braille character, by row and column.
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def terminal_curve(values: Sequence[float], low: float, high: float, width: int = 40, height: int = 8) -> str:
    """Draws `values` as a curve of braille dots between `low` and `high`, in `height` lines of `width` characters."""
    cells = [[0] * width for _ in range(height)]
    columns, rows = 2 * width, 4 * height
    previous: int | None = None
    for column in range(columns):
        position = column * (len(values) - 1) / (columns - 1)
        before, part = int(position), position % 1
        value = values[before] + part * (values[min(before + 1, len(values) - 1)] - values[before])
        share = (value - low) / (high - low) if high > low else 0.0
        row = round((1.0 - min(max(share, 0.0), 1.0)) * (rows - 1))
        # The dots between this row and the last one are set, too, so that a steep curve stays connected.
        start, stop = sorted((row, row if previous is None else previous))
        for r in range(start, stop + 1):
            cells[r // 4][column // 2] |= _DOTS[r % 4][column % 2]
        previous = row
    return "\n".join("".join(chr(0x2800 + cell) for cell in line) for line in cells)


def save_picture(curves: Mapping[str, Sequence[float]], file: Path) -> bool:
    """Draws the curves into `file`; returns False if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot(xlabel="epoch", ylabel="training loss")
    for (name, values), style in zip(curves.items(), ("-", "--"), strict=False):
        axes.plot(range(1, len(values) + 1), values, style, label=name)
    axes.legend()
    figure.savefig(file, dpi=150)
    return True

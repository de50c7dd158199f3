"""Makes figures, where matplotlib is there."""

from __future__ import annotations

from typing import Any

from dacergnn.errors import DacergnnError

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#8C613C", "#999999",
           "#1B3A57", "#7F5500", "#004D38", "#7A2E00", "#6E3857", "#2B6C91", "#3F2A17", "#555555")  # fmt: skip
"""Colours that the colour-blind can tell apart, too (the first by Okabe and Ito); further names use them again."""


def colour(number: int) -> str:
    """Returns the colour of a number; after the last one the first comes again."""
    return COLOURS[number % len(COLOURS)]


def new_figure(width: float, height: float, what: str = "a picture") -> Any:
    """Returns an empty figure of so many inches.

    Raises:
        DacergnnError: matplotlib cannot be imported, which ``what`` needs.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise DacergnnError(
            f"{what} needs matplotlib, which cannot be imported here ({error}); pip install 'dacergnn[plot]'."
        ) from error
    return Figure(figsize=(width, height), layout="constrained")

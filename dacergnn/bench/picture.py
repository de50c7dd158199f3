"""Draws tables of numbers side by side as bars, lines or points, where matplotlib is there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import fill
from typing import Any, Literal

from dacergnn.errors import DacergnnError

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#8C613C", "#999999",
           "#1B3A57", "#7F5500", "#004D38", "#7A2E00", "#6E3857", "#2B6C91", "#3F2A17", "#555555")  # fmt: skip
"""Colours that the colour-blind can tell apart, too (the first by Okabe and Ito); further names use them again."""
MOST_LABELS = 60
"""Places up to which each is labelled."""
Values = Sequence[float | None]


@dataclass(frozen=True)
class Panel:
    """Describes a part of a picture.

    Args:
        series: Values by place, or pairs of numbers for points, by name; None where there is no value.
        places: Names of the places, or rising numbers on a logarithmic axis.
        form: How values are drawn: bars side by side, stacked bars, lines, or points.
        marked: Names and places of values that scatter.
        reference: A value that a line marks, such as 1 for speed-ups.
        faint: Pairs that each name's point is a mean of.
    """

    title: str
    series: Mapping[str, Any]
    places: Sequence[Any] = ()
    form: Literal["bars", "stacked", "lines", "points"] = "bars"
    unit: str = ""
    about: str = ""
    logarithmic: bool = False
    reference: float | None = None
    marked: Collection[tuple[str, Any]] = ()
    faint: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict[str, Any])

    def draw(self, axes: Any, colours: Mapping[str, str]) -> dict[str, Any]:
        """Draws the panel, and returns what stands for each name in a legend."""
        numbered = self.form == "lines" and not isinstance(next(iter(self.places), ""), str)
        bottom, width = [0.0] * len(self.places), 0.8 / max(len(self.series), 1)
        handles: dict[str, Any] = {}
        for number, (name, values) in enumerate(self.series.items()):
            look: dict[str, Any] = {"color": colours[name]}
            if self.form == "points":
                look["linestyle"], look["marker"] = "", "o"
                axes.plot(*_columns(self.faint.get(name, ())), **look, markersize=3, alpha=0.3)
                size = 7 if len(values) < 20 else 2
                (handles[name],) = axes.plot(*_columns(values), **look, markersize=size)
                continue
            heights = [float("nan") if value is None else value for value in values]
            at = [*self.places] if numbered else [*range(len(heights))]
            if self.form == "lines":
                (handles[name],) = axes.plot(at, heights, marker="o", markersize=5, **look)
            elif self.form == "stacked":
                parts = [0.0 if value is None else value for value in values]
                handles[name] = axes.bar(at, parts, 0.8, bottom=bottom, **look)
                bottom = heights = [low + part for low, part in zip(bottom, parts, strict=True)]
            else:
                at = [place + number * width for place in at]
                handles[name] = axes.bar(at, heights, width, align="edge", **look)
            for x, y, place in zip(at, heights, self.places, strict=True):
                if (name, place) in self.marked:
                    axes.annotate("*", (x, y), xytext=(3, -3), textcoords="offset points", **look, fontsize=12)
        if numbered:
            axes.set_xscale("log", base=2)
            axes.set_xticks([*self.places], [*map(str, self.places)])
        elif self.form != "points" and len(self.places) <= MOST_LABELS:
            middle = 0.4 if self.form == "bars" else 0.0
            at = [place + middle for place in range(len(self.places))]
            axes.set_xticks(at, [*map(str, self.places)], rotation=45, ha="right", fontsize="small")
        if self.logarithmic:
            axes.set(yscale="log", **({"xscale": "log"} if self.form == "points" else {}))
        if self.reference is not None:
            axes.axhline(self.reference, color="black", linewidth=0.8)
            if self.form == "points":
                axes.axvline(self.reference, color="black", linewidth=0.8)
        axes.set(title=self.title, ylabel=self.unit, xlabel=self.about)
        axes.title.set_fontsize("medium")
        axes.grid(axis="y", alpha=0.25)
        axes.set_axisbelow(True)
        return handles


def _columns(pairs: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in pairs], [y for _, y in pairs]


def colour(number: int) -> str:
    """Returns the colour of a number; after the last one the first comes again."""
    return COLOURS[number % len(COLOURS)]


def picture(
    panels: Sequence[Panel], title: str = "", *, known: Sequence[str] = (), note: str = "", what: str = "a picture"
) -> Any:
    """Returns a figure of panels, three in a row at most.

    Args:
        known: Names that have the same colours in all pictures; black is that of "geometric mean".
        note: Stands below.
        what: What needs matplotlib.
    """
    names = dict.fromkeys([*known, *(name for panel in panels for name in panel.series)])
    colours = {name: colour(number) for number, name in enumerate(names)} | {"geometric mean": "black"}
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    longest = max(len(panel.places) for panel in panels)
    figure = new_figure(columns * max(4.2, min(0.35 * longest, 14)) + 2, 3.8 * rows, what)
    all_axes, handles = [*figure.subplots(rows, columns, squeeze=False).flat], dict[str, Any]()
    for panel, axes in zip(panels, all_axes, strict=False):
        handles |= panel.draw(axes, colours)
    for axes in all_axes[len(panels) :]:
        axes.set_visible(False)
    if len(handles) > 1:
        figure.legend(handles.values(), handles, loc="outside right upper", frameon=False, fontsize=9)
    figure.suptitle(title, fontsize=11)
    if note:
        figure.supxlabel(fill(note, int(15 * figure.get_figwidth())), fontsize=8)
    return figure


def save(figure: Any, path: Path) -> Path:
    """Saves a figure, as .png, .svg or .pdf, and returns the path.

    Raises:
        DacergnnError: matplotlib does not know the format.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        figure.savefig(path, dpi=150)
    except ValueError as error:
        raise DacergnnError(f"{path}: {error}") from error
    return path


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

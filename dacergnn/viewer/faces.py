"""Draws single boxes: an icon, formulas and the rows of their results; of a phase, what it is the gradient of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from dacergnn.viewer.boxes import Box, Line

ICONS = {
    "product": ("M2 2h12v12H2zM2 6h12M2 10h12M6 2v12M10 2v12", "product of rows with weights"),
    "weights": ("M3 3h10v10H3zM3 8h10M8 3v10", "product of weights"),
    "sum": ("M12.5 4V2.5h-9L9 8l-5.5 5.5h9V12", "reduction of rows"),
    "rows": ("M2 4h12M2 8h12M2 12h12", "row by row"),
    "loop": ("M13 8a5 5 0 1 1-1.5-3.6M13.5 1.5v3.5H10", "several statements in one loop"),
    "phase": ("M2 5l6-3 6 3-6 3zM2 8l6 3 6-3M2 11l6 3 6-3", "phase of several operators"),
}
"""The outline of an icon in 16 x 16 units, and its meaning, by the kind of a box."""
PAD = 10
"""Distance between the border of a box and its text."""
SMALL = 6.1
"""Width of a letter in the small print."""
_TITLE, _LETTER = 8.3, 7.3
"""Widths of a letter of a phase's title, and of a formula."""
_LINE, _INDENT = 17, 30
_COLUMNS = 46
"""Letters of a line, from which on formulas are broken."""


@dataclass(frozen=True)
class Face:
    """Holds what a box shows, and its size; a line has a text, rows, and whether it is less important."""

    box: Box
    lines: Sequence[tuple[str, str, bool]]

    @classmethod
    def of(cls, box: Box) -> Face:
        """Returns the face of a box."""
        if box.parts:
            return cls(box, [(box.summary, "", True)] if box.summary else [])
        return cls(box, [part for line in box.lines for part in _broken(line)])

    @property
    def height(self) -> float:
        return _LINE * (bool(self.box.title) + len(self.lines) + bool(self.box.note)) + 2 * PAD - 4

    @property
    def width(self) -> float:
        lines = [_LETTER * (len(text) + len(rows)) for text, rows, _ in self.lines]
        return _INDENT + max(_TITLE * len(self.box.title), SMALL * len(self.box.note), *lines, 0) + PAD

    def svg(self, left: float, top: float, identifier: str, mark: str) -> str:
        """Returns an SVG group at a place; ``mark`` is "new", "changed" or ""."""
        box, y = self.box, PAD + 10
        parts = [
            f'<g class="box {box.icon} {mark}" data-box="{escape(identifier)}" data-peer="{escape(box.peer)}" '
            f'tabindex="0" transform="translate({left:.1f} {top:.1f})">',
            f'<rect width="{self.width:.1f}" height="{self.height:.1f}" rx="6"/>',
            f'<path class="icon" transform="translate(8 8)" d="{ICONS[box.icon][0]}"/>',
        ]
        shown = [("title", escape(box.title))] * bool(box.title)
        for text, rows, quiet in self.lines:
            tail = f'<tspan class="rows">{escape(rows)}</tspan>' if rows else ""
            shown.append(("quiet" if quiet else "formula", escape(text) + tail))
        shown += [("note", escape(box.note))] * bool(box.note)
        for style, text in shown:
            parts.append(f'<text class="{style}" x="{_INDENT}" y="{y}" xml:space="preserve">{text}</text>')
            y += _LINE
        return "".join([*parts, "</g>"])


def _broken(line: Line) -> Iterator[tuple[str, str, bool]]:
    """Yields the lines that a formula takes; its rows are behind the last one."""
    text, rows = "", f"  [{line.rows}]"
    for word in line.formula.split(" "):
        if len(text) + len(word) > _COLUMNS:
            yield text, "", line.local
            text = "   "
        text += f" {word}" if text else word
    yield text, rows, line.local

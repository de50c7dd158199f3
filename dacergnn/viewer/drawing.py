"""Draws boxes, the arrays between them and those that come and go, as an SVG picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

from dacergnn.viewer.boxes import Array, Box
from dacergnn.viewer.faces import PAD, SMALL, Face
from dacergnn.viewer.layout import GAP, Layout, layout

HEAD = (
    '<svg width="0" height="0" style="position:absolute"><defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" '
    'markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0l8 4-8 4z"/></marker></defs></svg>'
)
"""The head of all arrows of a page; it has to be in a part of the page that is shown."""

_LABEL = 32
"""Height of the label of an array."""
_STEM = 14
"""Length of an arrow between a box and a label."""
_WIDE = 900
"""Width of a layer from which on boxes move to the layer above."""


class Picture(NamedTuple):
    """Holds an SVG element, and its width."""

    svg: str
    width: float


def draw(boxes: Sequence[Box], arrays: Mapping[str, Array], marks: Mapping[str, str], prefix: str) -> Picture:
    """Returns a picture.

    Args:
        boxes: What to draw, in an order in which it can run; phases show their titles alone.
        arrays: What is known of arrays.
        marks: "new" or "changed", by the name of an operator.
        prefix: The identifier of the picture, with which those of its boxes begin.
    """
    return _Drawing(boxes, arrays).picture(marks, prefix)


def box_id(prefix: str, box: Box) -> str:
    """Returns the identifier of a box in a page."""
    return f"{prefix}-{'phase-' if box.parts else ''}{box.name}"


class _Drawing:
    """Places boxes in layers, labels of arrays above and below them, and arrows from labels to boxes."""

    def __init__(self, boxes: Sequence[Box], arrays: Mapping[str, Array]) -> None:
        self.arrays = arrays
        self.faces = {box.name: Face.of(box) for box in boxes}
        self.writer = {name: box.name for box in boxes for name in box.writes}
        self.edges = [(self.writer[name], box.name, name) for box in boxes for name in box.reads if name in self.writer]
        self.widths = {name: self._width(face) for name, face in self.faces.items()}
        self.layout: Layout = layout(self.widths, [(a, b) for a, b, _ in self.edges], _WIDE)
        self.top: dict[str, float] = {}
        self.bands: list[tuple[float, float]] = []
        y = 0.0
        for layer in self.layout.layers:
            above = _LABEL + _STEM if any(self._given(self.faces[n].box) for n in layer) else 0
            below = max(self.faces[n].height for n in layer) + _STEM + _LABEL
            self.top.update(dict.fromkeys(layer, y + above))
            self.bands.append((y, y + above + below))
            y += above + below + 1.4 * GAP
        self.height = y
        self.ports = {name: at for box in boxes for name, at in self._spread(box.name, box.writes)}

    def picture(self, marks: Mapping[str, str], prefix: str) -> Picture:
        width, height = self.layout.width + 2 * PAD, self.height + 2 * PAD
        inside = [*self._arrows(), *(part for face in self.faces.values() for part in self._box(face, marks, prefix))]
        box = f"{-PAD} {-PAD} {width:.0f} {height:.0f}"
        return Picture(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}">{"".join(inside)}</svg>', width)

    def _given(self, box: Box) -> list[str]:
        """Returns the arrays that a box reads and no box of the picture writes."""
        return [name for name in box.reads if name not in self.writer]

    def _label_width(self, name: str) -> float:
        array = self.arrays[name]
        return max(SMALL * max(len(name), len(array.numbers), len(array.memory)) + 14, 40)

    def _slot(self, name: str) -> float:
        """Returns the width that an array takes above a box that reads it: arrows have no label there."""
        return 16.0 if name in self.writer else self._label_width(name) + 6

    def _width(self, face: Face) -> float:
        above = sum(map(self._slot, face.box.reads))
        below = sum(self._label_width(name) + 6 for name in face.box.writes)
        return max(face.width, above, below)

    def _spread(self, box: str, names: Sequence[str]) -> Iterator[tuple[str, float]]:
        """Yields the places of labels side by side, centred below a box."""
        widths = [self._label_width(name) + 6 for name in names]
        at = self.layout.x[box] - sum(widths) / 2
        for name, width in zip(names, widths, strict=True):
            yield name, at + width / 2
            at += width

    def _entries(self, box: Box) -> dict[str, tuple[float, float]]:
        """Returns where arrays enter a box: in the row of labels above, arrows amid labels, and at its border."""
        given, written = self._given(box), [name for name in box.reads if name in self.writer]
        half = (len(given) + 1) // 2
        names = [*given[:half], *sorted(written, key=lambda name: self.ports[name]), *given[half:]]
        total, centre = sum(map(self._slot, names)), self.layout.x[box.name]
        squeeze = min(1, (self.faces[box.name].width - 2 * PAD) / max(total, 1))
        at = -total / 2
        entries: dict[str, tuple[float, float]] = {}
        for name in names:
            middle = at + self._slot(name) / 2
            entries[name] = centre + middle, centre + squeeze * middle
            at += self._slot(name)
        return entries

    def _arrows(self) -> Iterator[str]:
        entries = {name: self._entries(face.box) for name, face in self.faces.items()}
        for source, target, name in self.edges:
            x, y = self.ports[name], self.top[source] + self.faces[source].height + _STEM + _LABEL
            path = f"M{x:.1f} {y:.1f}"
            for layer, along in self.layout.ways[source, target]:
                first, last = self.bands[layer]
                path += f"{_curve(x, y, along, first)}V{last:.1f}"
                x, y = along, last
            along, end = entries[target][name]
            top = self.top[target]
            if self._given(self.faces[target].box):  # between the labels
                path += _curve(x, y, along, top - _STEM - _LABEL) + f"V{top - _STEM:.1f}"
                x, y = along, top - _STEM
            path += _curve(x, y, end, top - 2)
            about = f"{name}: {self.arrays[name].symbols}"
            yield f'<path class="arrow" marker-end="url(#head)" d="{path}"><title>{escape(about)}</title></path>'

    def _box(self, face: Face, marks: Mapping[str, str], prefix: str) -> Iterator[str]:
        box, top = face.box, self.top[face.box.name]
        left = self.layout.x[box.name] - face.width / 2
        kinds = {marks.get(part.name, "") for part in box.parts or (box,)}
        mark = "new" if "new" in kinds else "changed" if "changed" in kinds else ""
        for name, (x, end) in self._entries(box).items():
            if name not in self.writer:
                yield self._label(name, x, top - _STEM - _LABEL)
                stem = f"M{x:.1f} {top - _STEM:.1f}{_curve(x, top - _STEM, end, top - 2)}"
                yield f'<path class="arrow" marker-end="url(#head)" d="{stem}"/>'
        bottom = top + face.height
        for name in box.writes:
            x = self.ports[name]
            yield f'<path class="arrow" d="M{x:.1f} {bottom:.1f}V{bottom + _STEM:.1f}"/>'
            yield self._label(name, x, bottom + _STEM)
        yield face.svg(left, top, box_id(prefix, box), mark)

    def _label(self, name: str, x: float, y: float) -> str:
        array, width = self.arrays[name], self._label_width(name)
        about = f"{name}: {array.symbols}, {array.memory}" if array.memory else f"{name}: {array.symbols}"
        return (
            f'<g class="array {array.role}"><title>{escape(about)}</title>'
            f'<rect x="{x - width / 2:.1f}" y="{y:.1f}" width="{width:.1f}" height="{_LABEL}" rx="9"/>'
            f'<text class="name" x="{x:.1f}" y="{y + 13:.1f}">{escape(name)}</text>'
            f'<text x="{x:.1f}" y="{y + 26:.1f}">{escape(array.numbers)}</text></g>'
        )


def _curve(x: float, y: float, to_x: float, to_y: float) -> str:
    middle = (y + to_y) / 2
    return f"C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}"

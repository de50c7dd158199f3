"""Writes one HTML page with a picture of every step that changed something; it needs no server and no network."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from dacergnn.graph.spaces import kind
from dacergnn.sdfg_passes import PassStep
from dacergnn.viewer.boxes import Array, Box
from dacergnn.viewer.drawing import HEAD, Picture, box_id, draw
from dacergnn.viewer.faces import ICONS
from dacergnn.viewer.steps import Side, Step, steps_of

_SPACES = {
    "E": "edges", "NS": "source nodes", "ND": "destination nodes", "R": "edge types", "T": "node types",
    "U": "(source, edge type) pairs", "V": "(destination, edge type) pairs", "RNS": "(edge type, source) pairs",
}  # fmt: skip
_PARTS = "Suffix s: relations with fewer source pairs than destination pairs; d: the others."
_SOURCES = {
    "frontend": "The program as the front end wrote it.",
    "loaded": "The SDFGs as load_sdfg read them.",
}
"""Describes the steps that are no passes."""
_SIGNS = (
    "<b>x W</b> product",
    "<b>a · b</b> dot product",
    "<b>a ⊗ b</b> outer product",
    "<b>x[src]</b> the row of x that belongs to the source",
)
_COLOURS = {
    "role input": "input",
    "role gradient": "gradient of a result",
    "role saved": "saved by the forward for the backward",
    "role result": "result",
    "mark new": "new in this step",
    "mark changed": "changed in this step",
}

_ZOOMS = {
    "-": ("\N{MINUS SIGN}", "smaller"),
    "+": ("+", "larger"),
    "f": ("fit", "whole picture"),
    "0": ("reset", "readable size"),
}
"""The face and the meaning of the buttons below a key of the keyboard that does the same."""
_ZOOM = "".join(
    f'<button data-zoom="{key}" title="{text} (key {key})">{face}</button>' for key, (face, text) in _ZOOMS.items()
)
_MOVES = (
    "<b>Ctrl + wheel</b> or <b>+ -</b> zoom",
    "<b>drag</b>, <b>wheel</b> or <b>arrow keys</b> move a picture",
    "<b>f</b> whole picture",
    "<b>0</b> readable size",
)


def page(steps: Sequence[PassStep], sizes: Mapping[str, int], files: Mapping[tuple[int, str], str], title: str) -> str:
    """Returns HTML text that shows the steps of a compilation in pictures of forward and backward.

    Args:
        steps: All steps, with their SDFGs; those that changed nothing are left out.
        sizes: The rows of the row spaces of the graph, where it is known; may be empty.
        files: The names of the files beside the page, by the number of the step and the role of the program.
        title: The title of the page.
    """
    shown = [*steps_of(steps, sizes, files)]
    style, *scripts = (
        (Path(__file__).parent / name).read_text(encoding="utf-8") for name in ("page.css", "zoom.js", "page.js")
    )
    sections = "".join(_section(step) for step in shown)
    buttons = "".join(_button(step) for step in shown)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{style}</style></head><body>'
        f"{HEAD}<header><h1>{escape(title)}</h1>"
        f"<details><summary>Legend</summary>{_legend(shown, sizes)}</details></header>"
        f'<main><aside><nav id="steps">{buttons}</nav><section id="panel"></section></aside>'
        f'<div id="stage">{sections}</div></main>'
        f"<script>{''.join(scripts)}</script></body></html>\n"
    )


def _button(step: Step) -> str:
    found = [side.difference for side in step.sides if side.difference is not None]
    counts = {
        "+{}": sum(len(d.added) for d in found),
        "-{}": sum(len(d.removed) for d in found),
        "{} fused": sum(len(d.fused) for d in found),
        "{} chosen": sum(len(d.chosen) for d in found),
    }
    shown = " ".join(text.format(count) for text, count in counts.items() if count)
    return (
        f'<button data-step="{step.number}"><b>{step.number:02d}</b> {escape(step.name.replace("_", " "))}'
        f"<small>{shown}</small></button>"
    )


def _section(step: Step) -> str:
    """Returns the pictures of a step, and the texts that the panel shows."""
    figures = "".join(_figure(f"s{step.number}-{side.role}", side) for side in step.sides)
    details = "".join(_details(f"s{step.number}-{side.role}", side) for side in step.sides)
    changes = "".join(_changes(side) for side in step.sides)
    about = f"<h2>{escape(step.name.replace('_', ' '))}</h2><p>{escape(_sentence(step.name))}</p>"
    return (
        f'<section class="step" data-step="{step.number}" hidden><div class="sides">{figures}</div>'
        f'<template class="changes">{about}{changes}</template>{details}</section>'
    )


def _sentence(name: str) -> str:
    """Returns what a step does: the first paragraph that its module says about itself."""
    if name in _SOURCES:
        return _SOURCES[name]
    about = importlib.import_module(f"dacergnn.sdfg_passes.{name}").__doc__ or ""
    return " ".join(about.partition("\n\n")[0].split())


def _figure(prefix: str, side: Side) -> str:
    marks = side.difference.marks if side.difference is not None else {}
    every, count = draw(side.boxes, side.arrays, marks, prefix), f"{len(side.boxes)} operators"
    if side.role == "forward":
        return (
            f"<figure><figcaption>forward <small>{count}</small>{_ZOOM}</figcaption>{_view('forward', every)}</figure>"
        )
    phases = draw(side.phases, side.arrays, marks, prefix)
    switch = '<button class="switch">show all operators</button>'
    return (
        f"<figure><figcaption>backward <small>{count} in {len(side.phases)} phases</small>{switch}{_ZOOM}</figcaption>"
        f"{_view('phases', phases)}{_view('operators', every, hidden=True)}</figure>"
    )


def _view(kind: str, picture: Picture, *, hidden: bool = False) -> str:
    """Returns a picture in an element that scrolls; the arrow keys move the picture that has the focus."""
    return (
        f'<div class="view {kind}" data-kind="{kind}" style="--width: {picture.width:.0f}px" '
        f'tabindex="0"{" hidden" * hidden}>{picture.svg}</div>'
    )


def _changes(side: Side) -> str:
    """Returns what a step changed, as lists of removed and added statements."""
    found = side.difference
    file = f' <a href="{escape(side.file)}">{escape(side.file)}</a>' if side.file else ""
    if found is None:
        return f"<h3>{side.role}{file}</h3><p>{len(side.boxes)} operators.</p>"
    lists = {"removed": found.removed, "added": found.added, "fused": found.fused, "chosen": found.chosen}
    inside = "".join(_list(name, texts) for name, texts in lists.items())
    return f"<h3>{side.role}{file}</h3>{inside or '<p>Unchanged.</p>'}"


def _list(name: str, texts: Sequence[str]) -> str:
    if not texts:
        return ""
    return f'<h4>{name}</h4><ul class="{name}">{"".join(f"<li>{escape(text)}</li>" for text in texts)}</ul>'


def _details(prefix: str, side: Side) -> str:
    boxes = {box_id(prefix, box): box for box in (*side.boxes, *side.phases)}
    return "".join(_detail(name, box, side.arrays) for name, box in boxes.items())


def _detail(name: str, box: Box, arrays: Mapping[str, Array]) -> str:
    rows = "".join(
        f"<tr><td>{way}</td><td>{escape(array)}</td><td>{arrays[array].symbols}</td><td>{arrays[array].numbers}</td>"
        f"<td>{arrays[array].memory}</td></tr>"
        for way, names in (("reads", box.reads), ("writes", box.writes))
        for array in names
    )
    formulas = "".join(f"<li>{escape(line.formula)} <i>[{line.rows}]</i></li>" for line in box.lines)
    return (
        f'<template data-detail="{escape(name)}"><h2>{escape(box.title or box.name)}</h2>'
        f'<p>{escape(box.note)}</p><ul class="formulas">{formulas}</ul>'
        f"{_list('statements', box.statements)}{_list('choices', box.choices)}"
        f"{_list('encodings', box.encodings)}"
        f"<h4>arrays</h4><table>{rows}</table></template>"
    )


def _legend(steps: Sequence[Step], sizes: Mapping[str, int]) -> str:
    """Returns what row spaces, signs, icons and colours mean."""
    arrays = [array for step in steps for side in step.sides for array in side.arrays.values()]
    spaces = {array.symbols.partition(" ")[0] for array in arrays}
    rows = [
        f"<b>{space}</b> {f'{sizes[space]:,} ' if space in sizes else ''}{text}"
        for space, text in _SPACES.items()
        if space in map(kind, spaces)
    ]
    rows += [_PARTS] if any(space != kind(space) for space in spaces) else []
    icons = [
        f'<svg class="key" viewBox="0 0 16 16"><path class="icon" d="{path}"/></svg>{text}'
        for path, text in ICONS.values()
    ]
    colours = [f'<span class="{style}">{text}</span>' for style, text in _COLOURS.items()]
    return "".join(
        f'<p class="legend">{"".join(f"<span>{text}</span>" for text in texts)}</p>'
        for texts in (rows, [*_SIGNS, *icons], colours, _MOVES)
    )

"""Lays out a graph of boxes in layers, each below the boxes that it needs, with arrows around the boxes between."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

GAP = 26
"""Least distance of neighbours in a layer."""
_THREAD = -14
"""Width of an arrow that passes a layer: arrows may be nearer to each other, and to boxes, than boxes are."""
_SWEEPS = 24


@dataclass(frozen=True)
class Layout:
    """Holds the centre of each box, the layer of each, and the way of each arrow through the layers between."""

    x: Mapping[str, float]
    layers: Sequence[Sequence[str]]
    ways: Mapping[tuple[str, str], Sequence[tuple[int, float]]]
    width: float


def layout(widths: Mapping[str, float], edges: Iterable[tuple[str, str]], limit: float) -> Layout:
    """Returns where boxes go.

    Args:
        widths: The width of each box, in an order in which boxes come after those that they need.
        edges: Pairs of a box and one that needs it.
        limit: The width of a layer from which on boxes move to the layer above.
    """
    edges = [*dict.fromkeys(edges)]
    level = _levels(widths, edges, limit)
    layers: list[list[str]] = [[] for _ in range(max(level.values(), default=-1) + 1)]
    for name in widths:
        layers[level[name]].append(name)
    ways: dict[tuple[str, str], list[str]] = {}
    room = dict(widths)
    neighbours: dict[str, tuple[list[str], list[str]]] = {name: ([], []) for name in widths}
    for source, target in edges:
        way = [source]
        for between in range(level[source] + 1, level[target]):
            thread = f"{source}>{target}@{between}"
            room[thread], neighbours[thread] = _THREAD, ([], [])
            layers[between].append(thread)
            way.append(thread)
        way.append(target)
        for upper, lower in pairwise(way):
            neighbours[lower][0].append(upper)
            neighbours[upper][1].append(lower)
        ways[source, target] = way[1:-1]
    _order(layers, neighbours)
    x = _centres(layers, neighbours, room)
    left = min((x[n] - room[n] / 2 for n in room), default=0)
    x = {name: centre - left for name, centre in x.items()}
    where = {name: number for number, layer in enumerate(layers) for name in layer}
    return Layout(
        x,
        [[name for name in layer if name in widths] for layer in layers],
        {edge: [(where[thread], x[thread]) for thread in way] for edge, way in ways.items()},
        max((x[n] + room[n] / 2 for n in room), default=0),
    )


def _levels(widths: Mapping[str, float], edges: Sequence[tuple[str, str]], limit: float) -> dict[str, int]:
    """Returns the layer of each box: the lowest one above all boxes that need it which has room."""
    used: dict[int, float] = {}
    above: dict[str, int] = {}
    for name in reversed([*widths]):
        height = max((above[target] + 1 for source, target in edges if source == name), default=0)
        while used.get(height) and used[height] + widths[name] + GAP > limit:
            height += 1
        above[name] = height
        used[height] = used.get(height, 0) + widths[name] + GAP
    top = max(above.values(), default=0)
    return {name: top - height for name, height in above.items()}


def _order(layers: list[list[str]], neighbours: Mapping[str, tuple[list[str], list[str]]]) -> None:
    """Orders layers so that few arrows cross: by the mean place of the neighbours above, and below, in turns."""
    place = {name: i for layer in layers for i, name in enumerate(layer)}
    for sweep in range(_SWEEPS):
        side = sweep % 2
        for layer in layers if side == 0 else reversed(layers):
            wanted = {n: fmean(place[m] for m in neighbours[n][side] or [n]) for n in layer}
            layer.sort(key=wanted.__getitem__)
            place.update({name: i for i, name in enumerate(layer)})


def _centres(
    layers: Sequence[Sequence[str]], neighbours: Mapping[str, tuple[list[str], list[str]]], room: Mapping[str, float]
) -> dict[str, float]:
    """Returns centres near those of the neighbours, without overlap and in the order of the layers."""
    x: dict[str, float] = {}
    for layer in layers:
        at = 0.0
        for name in layer:
            x[name] = at + room[name] / 2
            at += room[name] + GAP
    for sweep in range(_SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            near = {n: [m for side in neighbours[n] for m in side] for n in layer}
            wanted = [fmean(x[m] for m in near[n] or layer) for n in layer]
            x.update(zip(layer, _apart(wanted, [room[n] for n in layer]), strict=True))
    return x


def _apart(wanted: Sequence[float], widths: Sequence[float]) -> list[float]:
    """Returns the centres nearest to the wanted ones, by least squares, that keep the order and the gaps."""
    offsets = [0.0]
    for left, right in pairwise(widths):
        offsets.append(offsets[-1] + (left + right) / 2 + GAP)
    blocks: list[list[float]] = []  # neighbours that touch have one mean
    for value in (w - o for w, o in zip(wanted, offsets, strict=True)):
        blocks.append([value])
        while len(blocks) > 1 and fmean(blocks[-2]) > fmean(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    means = [fmean(block) for block in blocks for _ in block]
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]

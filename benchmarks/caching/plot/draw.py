"""Draws the figures, with the same colour for the same data set, scheme or library in all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import fill
from typing import Any

from benchmarks.caching.analysis import families
from benchmarks.caching.plot import series
from benchmarks.caching.plot.series import MEAN, Bar, Curve
from benchmarks.rows import Group, label
from dacergnn.bench.picture import COLOURS, new_figure
from dacergnn.bench.scatter import MARK, NOTE, Steady, with_left_out

_KNOWN = {
    "data": ("cora", "citeseer", "pubmed", "flickr~", "arxiv~", "clouds~"),
    "scheme": ("cache_all", "recompute_all", "papers", "auto", "features", "node attention", "edge weights", "nothing"),
}
_MARKERS = "osD^vPX*"
_MARKS = (
    (0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.3, 1.4),
    (0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0),
    (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0),
    tuple(2.0**k for k in range(-20, 21)),
)
"""Marks for axes of ratios; each axis has the first tuple that reaches from its one end to the other."""
_UNDIVIDED = "hatched: the forward, measured apart, took longer than the whole; not divided"
_MODES = {"infer": "inference", "forward": "forward", "train": "forward and backward"}


def figures(row_groups: Sequence[Group]) -> Iterator[tuple[str, Any]]:
    """Yields names and figures, for all figures that there are results for."""
    palette = Palette(row_groups)
    for (model, network), members in families(row_groups).items():
        title, stem = f"{model}, {network}", f"{model}_{network}".replace(", ", "_").replace(" ", "_")
        curves = {mode: series.speedups(members, f"{mode}_ms") for mode in ("forward", "train")}
        if any(curves.values()):
            yield f"speedup_{stem}", _curves(title, curves, palette, "fastest library / ours")
        for name in series.format_names(members):
            curves = {mode: series.formats(members, name, f"{mode}_ms") for mode in ("forward", "train")}
            yield f"format_{name}_{stem}", _curves(f"{title}: {name}", curves, palette, f"coo / {name}")
        gains = series.gains(members)
        if gains:
            yield f"schemes_{stem}", _gains(title, gains, palette)
        for data in dict.fromkeys(group["data"] for group in members):
            bars = series.bars(group for group in members if group["data"] == data)
            if bars:
                yield f"bars_{stem}_{data.strip('~')}", _bars(f"{title}, {data}", bars, palette)
    planes = {key: points for key, members in families(row_groups).items() if len(points := series.plane(members)) > 1}
    if planes:
        yield "plane", _planes(planes, palette)


class Palette:
    """Chooses colours and markers by name, for known names first, so that they are the same in all runs."""

    def __init__(self, row_groups: Sequence[Group]) -> None:
        self._data = _ordered(_KNOWN["data"], [g["data"] for g in row_groups])
        ours = [row["name"] for g in row_groups for row in g.ours]
        self._schemes = _ordered(_KNOWN["scheme"], ours)
        self._peers = _ordered((), [label(row) for g in row_groups for row in g.peers()])

    def data(self, name: str) -> dict[str, Any]:
        if name == MEAN:
            return {"color": "black", "marker": "o", "linewidth": 2.4, "zorder": 3}
        position = self._data.index(name)
        return {"color": _at(COLOURS, position), "marker": _at(_MARKERS, position), "linewidth": 1.2}

    def scheme(self, name: str) -> str:
        if name in self._schemes:
            return _at(COLOURS, self._schemes.index(name))
        return _at(("#444444", "#777777", "#AAAAAA", "#CCCCCC"), self._peers.index(name))

    def marker(self, name: str) -> str:
        return _at(_MARKERS, self._schemes.index(name))


def _ordered(known: Sequence[str], names: Sequence[str]) -> list[str]:
    return [*known, *sorted({*names} - {*known})]


def _at(choices: Sequence[str], position: int) -> str:
    return choices[position % len(choices)]


def _curves(title: str, panels: dict[str, list[Curve]], palette: Palette, label: str) -> Any:
    """Draws ratios over hidden sizes, with a panel for each mode."""
    panels = {mode: curves for mode, curves in panels.items() if curves}
    figure = new_figure(4.6 * len(panels) + 1.2, 3.8, "plot")
    all_axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axes, (mode, curves) in zip(all_axes, panels.items(), strict=True):
        for curve in curves:
            look = palette.data(curve.label)
            axes.plot(curve.sizes, curve.values, label=curve.label, markersize=5, **look)
            for size in curve.scattering:
                _mark(axes, size, curve.values[curve.sizes.index(size)], look["color"])
        axes.axhline(1.0, color="grey", linewidth=1, linestyle="--", zorder=0)
        axes.set_title(with_left_out(_MODES[mode], sum(curve.left_out for curve in curves)), fontsize=10)
        axes.set_xlabel("hidden size")
        axes.set_xscale("log", base=2)
        _number_sizes(axes, sorted({size for curve in curves for size in curve.sizes}))
        axes.grid(alpha=0.25)
    _ratio_axis(all_axes[0])
    all_axes[0].set_ylabel(label)
    handles, names = max((axes.get_legend_handles_labels() for axes in all_axes), key=lambda legend: len(legend[1]))
    figure.legend(handles, names, loc="outside right center", frameon=False, fontsize=9)
    figure.suptitle(title, fontsize=11)
    _explain(figure, NOTE if any(curve.scattering for curves in panels.values() for curve in curves) else "")
    return figure


def _gains(title: str, gains: dict[str, dict[str, Steady]], palette: Palette) -> Any:
    """Draws speed-ups of schemes, means over sizes, side by side for each data set."""
    places = [*dict.fromkeys(name for values in gains.values() for name in values if name != MEAN), MEAN]
    figure = new_figure(max(1.6 + 1.2 * len(places), 6.0), 3.8, "plot")
    axes = figure.subplots()
    width = 0.8 / len(gains)
    for position, (scheme, found) in enumerate(gains.items()):
        values = {place: steady.mean for place, steady in found.items() if steady.mean is not None}
        shown = with_left_out(scheme, found[MEAN].left_out)
        at = [i + (position - (len(gains) - 1) / 2) * width for i, place in enumerate(places) if place in values]
        heights = [values[place] - 1 for place in places if place in values]
        axes.bar(at, heights, width * 0.92, bottom=1.0, color=palette.scheme(scheme), label=shown)
    axes.axhline(1.0, color="grey", linewidth=1)
    axes.set_xticks(range(len(places)), places, fontsize=9)
    axes.set_ylabel("speed-up over saving nothing")
    axes.grid(axis="y", alpha=0.25)
    axes.set_axisbelow(True)
    figure.legend(loc="outside upper center", ncols=min(len(gains), 4), frameon=False, fontsize=9, title=title)
    _explain(figure, NOTE if any(found[MEAN].left_out for found in gains.values()) else "")
    return figure


def _bars(title: str, bars: Sequence[Bar], palette: Palette) -> Any:
    """Draws forward (dark) and backward (light) of schemes and libraries; each size has a panel with its own axis."""
    sizes, labels = sorted({bar.size for bar in bars}), [*dict.fromkeys(bar.label for bar in bars)]
    columns = min(len(sizes), 4)
    rows = -(-len(sizes) // columns)
    figure = new_figure(2.4 + columns * (1.2 + 0.16 * len(labels)), 2.5 * rows + 0.4, "plot")
    panels = figure.subplots(rows, columns, squeeze=False).flat
    handles: dict[str, Any] = {}
    for size, axes in zip(sizes, panels, strict=False):
        for bar in (bar for bar in bars if bar.size == size):
            colour, at = palette.scheme(bar.label), labels.index(bar.label)
            handles[bar.label] = axes.bar(at, bar.forward, 0.88, color=colour, hatch="///" if bar.undivided else "")
            axes.bar(at, bar.backward, 0.88, bottom=bar.forward, color=colour, alpha=0.45)
            if bar.scatters:
                _mark(axes, at, bar.forward + bar.backward, "black")
        axes.set_title(f"hidden size {size}", fontsize=10)
        axes.set_xlim(-0.7, len(labels) - 0.3)
        axes.set_xticks([])
        axes.grid(axis="y", alpha=0.25)
        axes.set_axisbelow(True)
    _hide_rest(panels)
    figure.supylabel("ms (dark: forward, light: backward)", fontsize=9)
    notes = [NOTE] if any(bar.scatters for bar in bars) else []
    _explain(figure, "\n".join([*notes, *([_UNDIVIDED] if any(bar.undivided for bar in bars) else [])]))
    order = [label for label in labels if label in handles]
    figure.legend([handles[n] for n in order], order, loc="outside right upper", frameon=False, fontsize=9, title=title)
    return figure


def _planes(planes: dict[tuple[str, str], list[series.Point]], palette: Palette) -> Any:
    """Draws means and ranges of schemes' time over memory, relative to saving everything; each model has a panel."""
    columns = min(len(planes), 3)
    rows = -(-len(planes) // columns)
    figure = new_figure(3.6 * columns, 3.3 * rows + 0.6, "plot")
    panels = figure.subplots(rows, columns, squeeze=False).flat
    handles: dict[str, Any] = {}
    for ((model, network), points), axes in zip(planes.items(), panels, strict=False):
        for point in points:
            ranges = {"xerr": _around(point.memory, point.memory_range), "yerr": _around(point.time, point.time_range)}
            look = {"color": palette.scheme(point.label), "marker": palette.marker(point.label)}
            axes.errorbar(point.memory, point.time, **ranges, color=look["color"], elinewidth=0.8, alpha=0.3)
            (handles[point.label],) = axes.plot(point.memory, point.time, **look, markersize=7, linestyle="")
            if point.left_out:
                axes.annotate(f"{point.left_out} left out", (point.memory, point.time), fontsize=7)
        axes.set_title(f"{model}, {network}", fontsize=10)
        axes.axhline(1.0, color="grey", linewidth=0.8, linestyle="--", zorder=0)
        axes.axvline(1.0, color="grey", linewidth=0.8, linestyle="--", zorder=0)
        axes.set_xlabel("memory / that of cache_all", fontsize=9)
        axes.set_ylabel("time / that of cache_all", fontsize=9)
        axes.grid(alpha=0.25)
    _hide_rest(panels)
    figure.legend(handles.values(), handles, loc="outside upper center", ncols=5, frameon=False, fontsize=9)
    _explain(figure, NOTE if any(point.left_out for points in planes.values() for point in points) else "")
    return figure


def _mark(axes: Any, x: float, y: float, colour: str) -> None:
    """Marks a value that scatters."""
    axes.annotate(MARK, (x, y), xytext=(5, -3), textcoords="offset points", color=colour, fontsize=12)


def _explain(figure: Any, note: str) -> None:
    """Writes what marks mean below a figure that has some."""
    if note:
        columns = int(15 * figure.get_figwidth())
        figure.supxlabel("\n".join(fill(line, columns) for line in note.splitlines()), fontsize=8)


def _around(value: float, span: tuple[float, float]) -> list[list[float]]:
    return [[max(value - span[0], 0.0)], [max(span[1] - value, 0.0)]]


def _number_sizes(axes: Any, sizes: Sequence[int]) -> None:
    from matplotlib.ticker import NullLocator

    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.xaxis.set_minor_locator(NullLocator())


def _ratio_axis(axes: Any) -> None:
    """Makes an axis of ratios logarithmic, with marks at plain numbers, and includes 1 in it."""
    from matplotlib.ticker import FuncFormatter, NullLocator

    axes.set_yscale("log", base=2)
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, 0.95), max(high, 1.05))
    low, high = axes.get_ylim()
    marks = next(m for m in _MARKS if m[0] <= 1.3 * low and 1.3 * m[-1] >= high)
    axes.set_yticks([value for value in marks if low <= value <= high])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def _hide_rest(panels: Any) -> None:
    """Hides the panels that an iterator over all of them has left over."""
    for axes in panels:
        axes.set_visible(False)

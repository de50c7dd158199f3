"""Draws the figures of the suite: `python -m benchmarks plot FILE`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any

import click

from benchmarks.caching.analysis import default, families
from benchmarks.caching.records import load
from benchmarks.rows import Group, grouped, label, least, relative
from dacergnn.bench.picture import Panel, picture, save
from dacergnn.bench.scatter import MARK, NOTE, Ratio, Steady, scatters, with_left_out
from dacergnn.errors import DacergnnError
from dacergnn.json_lines import Row

MEAN = "geometric mean"
KNOWN = (
    "forward", "rest of the step", "cache_all", "recompute_all", "papers", "auto", "features", "node attention",
    "edge weights", "nothing", "cora", "citeseer", "pubmed", "flickr~", "arxiv~", "clouds~",
)  # fmt: skip
"""Parts of steps, schemes and data sets, which have the same colours in all figures."""
BASES = ("nothing", "recompute_all")
"""Schemes that save nothing; others are compared with the first one that was measured."""
BASE_FORMAT = "coo"
WHOLE = " (whole)"
"""Ends the name of a bar whose forward, measured apart, took longer than the whole; it is not divided."""
MODES = {"forward_ms": "forward", "train_ms": "forward and backward"}


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("plots"), show_default=True,
              help="Folder of the figures.")  # fmt: skip
def plot(file: Path, out: Path) -> None:
    """Draw the figures of FILE, which `python -m benchmarks caching --json FILE` wrote, as PNG and SVG."""
    found = [*figures(grouped(load(file)))]
    if not found:
        raise DacergnnError(f"{file} has no results that a figure shows: none of its cases is timed.")
    for name, title, panels in found:
        made = drawn(panels, title)
        save(made, out / f"{name}.svg")
        click.echo(str(save(made, out / f"{name}.png")))


def drawn(panels: list[Panel], title: str) -> Any:
    """Returns a figure, with what marks mean below if it has some."""
    scattering = any(panel.marked or "left out" in panel.title for panel in panels)
    return picture(panels, title, known=KNOWN, note=NOTE if scattering else "", what="plot")


def figures(cases: Sequence[Group]) -> Iterator[tuple[str, str, list[Panel]]]:
    """Yields the name, the title and the panels of all figures that there are results for."""
    planes: list[Panel] = []
    for (model, network), members in families(cases).items():
        title, stem = f"{model}, {network}", f"{model}_{network}".replace(", ", "_").replace(" ", "_")
        unit = "fastest library / ours"
        yield from _found(f"speedup_{stem}", title, [
            curves({(g["data"], g["hidden"]): g.speedup(default(g), field) for g in members}, mode, unit)
            for field, mode in MODES.items()
        ])  # fmt: skip
        for name in format_names(members):
            yield from _found(f"format_{name}_{stem}", f"{title}: {name}", [
                curves(formats(members, name, field), mode, f"{BASE_FORMAT} / {name}") for field, mode in MODES.items()
            ])  # fmt: skip
        yield from _found(f"schemes_{stem}", title, [gains(members)])
        for data in dict.fromkeys(group["data"] for group in members):
            own = sorted((group for group in members if group["data"] == data), key=lambda group: group["hidden"])
            yield from _found(f"bars_{stem}_{data.strip('~')}", f"{title}, {data}", [bars(group) for group in own])
        planes.append(plane(title, members))
    yield from _found("plane", "", [panel for panel in planes if len(panel.series) > 1])


def _found(name: str, title: str, panels: list[Panel]) -> Iterator[tuple[str, str, list[Panel]]]:
    shown = [panel for panel in panels if panel.series]
    if shown:
        yield name, title, shown


def curves(ratios: dict[tuple[str, int], Ratio | None], mode: str, unit: str) -> Panel:
    """Returns ratios by hidden size: a line for each data set, and one of the means of those that do not scatter."""
    known = {key: ratio for key, ratio in ratios.items() if ratio is not None}
    sizes = sorted({size for _, size in known})
    lines: dict[str, list[float | None]] = {}
    for data in dict.fromkeys(data for data, _ in known):
        own = (known.get((data, size)) for size in sizes)
        lines[data] = [None if ratio is None else ratio.value for ratio in own]
    left_out = 0
    if len(lines) > 1:
        steady = [Steady.of(ratio for (_, own), ratio in known.items() if own == size) for size in sizes]
        lines[MEAN], left_out = [one.mean for one in steady], sum(one.left_out for one in steady)
    marks = [key for key, ratio in known.items() if ratio.scatters]
    return Panel(with_left_out(mode, left_out), lines, sizes, "lines", unit, "hidden size", True, 1.0, marks)


def formats(members: Sequence[Group], name: str, field: str) -> dict[tuple[str, int], Ratio | None]:
    """Returns the time on coordinates over that on another format, by data set and size."""
    ratios: dict[tuple[str, int], Ratio | None] = {}
    for group in members:
        own = least(_on(group, name), field)
        base = None if own is None else least([row for row in _on(group, BASE_FORMAT) if _alike(row, own)], field)
        ratios[group["data"], group["hidden"]] = relative(base, own, field)
    return ratios


def format_names(members: Iterable[Group]) -> list[str]:
    """Returns the formats that were measured besides coordinates."""
    names = dict.fromkeys(r["adjacency"] for g in members if _on(g, BASE_FORMAT) for r in g.ours)
    return [name for name in names if name not in ("auto", BASE_FORMAT)]


def gains(members: Sequence[Group]) -> Panel:
    """Returns every scheme's speed-ups over saving nothing: means over sizes for each data set, and over all."""
    base = next((name for name in BASES if any(g.named(name) for g in members)), "")
    places, series, left_out = [*dict.fromkeys(group["data"] for group in members), MEAN], dict[str, Any](), 0
    for scheme in (name for name in _schemes(members) if name != base):
        ratios = [(group["data"], group.ratio(base, scheme, "train_ms")) for group in members]
        steady = {place: Steady.of(r for data, r in ratios if place in (data, MEAN)) for place in places}
        if steady[MEAN].values or steady[MEAN].left_out:
            series[scheme], left_out = [steady[place].mean for place in places], left_out + steady[MEAN].left_out
    unit = "speed-up over saving nothing"
    return Panel(with_left_out("training", left_out), series, places, unit=unit, reference=1.0)


def bars(group: Group) -> Panel:
    """Returns the milliseconds of every scheme and library: of the forward that saves, and what the whole has more."""
    places: list[str] = []
    forwards, backwards = list[float](), list[float]()
    for row in (*_on(group, "auto"), *group.peers()):
        if row.get("forward_ms") is not None and row.get("train_ms") is not None:
            longer = row["forward_ms"] > row["train_ms"]
            scattering = any(scatters(row, time) for time in MODES)
            places.append(f"{label(row)}{WHOLE * longer}{f' {MARK}' * scattering}")
            forwards.append(min(row["forward_ms"], row["train_ms"]))
            backwards.append(row["train_ms"] - forwards[-1])
    series = {"forward": forwards, "rest of the step": backwards} if places else {}
    marks = [("forward", place) for place in places if place.endswith(MARK)]
    return Panel(f"hidden size {group['hidden']}", series, places, "stacked", "ms", marked=marks)


def plane(title: str, members: Sequence[Group]) -> Panel:
    """Returns memory and time of schemes over those of cache_all; memory is the peak if measured, else what is saved.

    Schemes that have the programs of other schemes in all cases would be at the same points, and are left out.
    """
    field = "peak_mb" if any(row.get("peak_mb") for group in members for row in group.ours) else "saved_bytes"
    means, pairs, left_out = dict[str, Any](), dict[str, list[tuple[float, float]]](), 0
    for scheme in _schemes(members, distinct=True):
        ratios = [[group.ratio(scheme, "cache_all", name) for name in (field, "train_ms")] for group in members]
        known = [(memory, time) for memory, time in ratios if memory is not None and time is not None]
        steady = [(memory.value, time.value) for memory, time in known if not time.scatters]
        left_out += len(known) - len(steady)
        if steady:
            pairs[scheme], means[scheme] = steady, [tuple(_mean(column) for column in zip(*steady, strict=True))]
    shown, time, memory = with_left_out(title, left_out), "time / that of cache_all", "memory / that of cache_all"
    return Panel(shown, means, (), "points", time, memory, reference=1.0, faint=pairs)


def _mean(values: Sequence[float]) -> float:
    """Returns the geometric mean, or the arithmetic mean if a value is 0, as when nothing is saved."""
    return geometric_mean(values) if min(values) > 0 else fmean(values)


def _schemes(members: Iterable[Group], *, distinct: bool = False) -> list[str]:
    """Returns the schemes on the format that is chosen for them; `formats` shows the other formats."""
    rows = [row for group in members for row in _on(group, "auto")]
    return [*dict.fromkeys(row["name"] for row in rows if not (distinct and "same_as" in row))]


def _on(group: Group, adjacency: str) -> list[Row]:
    return [row for row in group.ours if row["adjacency"] == adjacency]


def _alike(a: Row, b: Row) -> bool:
    return all(a[field] == b[field] for field in ("caching", "cache", "recompute", "order"))

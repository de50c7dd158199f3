"""Computes the numbers that the figures show; nothing here draws."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean

from benchmarks.caching.analysis import default
from benchmarks.rows import Group, label, least, relative
from dacergnn.bench.scatter import Ratio, Steady, scatters
from dacergnn.json_lines import Row

MEAN = "geometric mean"
BASES = ("nothing", "recompute_all")
"""Schemes that save nothing; others are compared with the first one that was measured."""
BASE_FORMAT = "coo"


@dataclass(frozen=True)
class Curve:
    """Holds values over hidden sizes, ascending; sizes whose values scatter, or how many values a mean leaves out."""

    label: str
    sizes: tuple[int, ...]
    values: tuple[float, ...]
    scattering: tuple[int, ...] = ()
    left_out: int = 0


@dataclass(frozen=True)
class Point:
    """Holds geometric means of memory and time relative to cache_all, their ranges, and how many they leave out."""

    label: str
    memory: float
    time: float
    memory_range: tuple[float, float]
    time_range: tuple[float, float]
    left_out: int = 0


@dataclass(frozen=True)
class Bar:
    """Holds the milliseconds of a scheme at a size: of the forward that saves, and what the whole takes beyond it.

    The forward and the whole are measured apart. If the forward alone took longer than the whole, the bar is
    ``undivided``: all of it is the whole.
    """

    label: str
    size: int
    forward: float
    backward: float
    scatters: bool = False

    @property
    def undivided(self) -> bool:
        return self.backward == 0


def speedups(members: Sequence[Group], field: str) -> list[Curve]:
    """Returns the time of the fastest library over ours by size: a curve for each data set, and one of the means."""
    values = {(g["data"], g["hidden"]): g.speedup(default(g), field) for g in members}
    return _curves({key: value for key, value in values.items() if value is not None})


def formats(members: Sequence[Group], name: str, field: str) -> list[Curve]:
    """Returns time on coordinates over time on another format by size: a curve for each data set, one of the means."""
    values: dict[tuple[str, int], Ratio] = {}
    for group in members:
        own = least(_on(group, name), field)
        base = None if own is None else least([r for r in _on(group, BASE_FORMAT) if _alike(r, own)], field)
        ratio = relative(base, own, field)
        if ratio is not None:
            values[group["data"], group["hidden"]] = ratio
    return _curves(values)


def format_names(members: Iterable[Group]) -> list[str]:
    """Returns the formats that were measured besides coordinates."""
    names = dict.fromkeys(r["adjacency"] for g in members if _on(g, BASE_FORMAT) for r in g.ours)
    return [name for name in names if name not in ("auto", BASE_FORMAT)]


def plane(members: Sequence[Group]) -> list[Point]:
    """Returns memory and time of schemes relative to cache_all; memory is the peak if measured, else the saved bytes.

    Schemes that have the programs of other schemes in all cases would be at the same points, and are left out.
    """
    field = "peak_mb" if any(row.get("peak_mb") for group in members for row in group.ours) else "saved_bytes"
    points: list[Point] = []
    for scheme in _schemes(members, distinct=True):
        pairs: list[tuple[float, float]] = []
        left_out = 0
        for group in members:
            memory, time = (group.ratio(scheme, "cache_all", name) for name in (field, "train_ms"))
            if memory is not None and time is not None:
                left_out += time.scatters
                pairs += [] if time.scatters else [(memory.value, time.value)]
        if pairs:
            columns = [*zip(*pairs, strict=True)]
            means, ranges = [_mean(c) for c in columns], [(min(c), max(c)) for c in columns]
            points.append(Point(scheme, means[0], means[1], ranges[0], ranges[1], left_out))
    return points


def bars(members: Iterable[Group]) -> list[Bar]:
    """Returns a bar for each scheme and library at each size, for groups on one data set."""
    all_bars: list[Bar] = []
    for group in sorted(members, key=lambda group: group["hidden"]):
        for row in (*_on(group, "auto"), *group.peers()):
            if row.get("forward_ms") is not None and row.get("train_ms") is not None:
                forward, whole = min(row["forward_ms"], row["train_ms"]), row["train_ms"]
                scattering = any(scatters(row, time) for time in ("forward_ms", "train_ms"))
                all_bars.append(Bar(label(row), group["hidden"], forward, whole - forward, scattering))
    return all_bars


def gains(members: Sequence[Group]) -> dict[str, dict[str, Steady]]:
    """Returns every scheme's speed-ups over saving nothing by data set, and over all, to make means of sizes."""
    base = next((name for name in BASES if any(g.named(name) for g in members)), None)
    by_scheme: dict[str, dict[str, Steady]] = {}
    if base is None:
        return by_scheme
    for scheme in (name for name in _schemes(members) if name != base):
        ratios: dict[str, list[Ratio]] = {}
        for group in members:
            ratio = group.ratio(base, scheme, "train_ms")
            if ratio is not None:
                ratios.setdefault(group["data"], []).append(ratio)
        if ratios:
            means = {data: Steady.of(values) for data, values in ratios.items()}
            by_scheme[scheme] = means | {MEAN: Steady.of(v for values in ratios.values() for v in values)}
    return by_scheme


def _mean(values: Sequence[float]) -> float:
    """Returns the geometric mean, or the arithmetic mean if a value is 0, as when nothing is saved."""
    return geometric_mean(values) if min(values) > 0 else fmean(values)


def _curves(values: dict[tuple[str, int], Ratio]) -> list[Curve]:
    curves: list[Curve] = []
    for data in dict.fromkeys(data for data, _ in values):
        sizes = sorted(size for other, size in values if other == data)
        scattering = tuple(size for size in sizes if values[data, size].scatters)
        curves.append(Curve(data, tuple(sizes), tuple(values[data, size].value for size in sizes), scattering))
    if len(curves) > 1:
        sizes = sorted({size for _, size in values})
        by_size = {size: Steady.of(v for (_, other), v in values.items() if other == size) for size in sizes}
        means = {size: steady.mean for size, steady in by_size.items() if steady.mean is not None}
        left_out = sum(steady.left_out for steady in by_size.values())
        curves.append(Curve(MEAN, tuple(means), tuple(means.values()), left_out=left_out))
    return curves


def _schemes(members: Iterable[Group], *, distinct: bool = False) -> list[str]:
    """Returns the schemes on the format that is chosen for them; `formats` shows the other formats."""
    rows = [row for group in members for row in _on(group, "auto")]
    return [*dict.fromkeys(row["name"] for row in rows if not (distinct and "same_as" in row))]


def _on(group: Group, adjacency: str) -> list[Row]:
    return [row for row in group.ours if row["adjacency"] == adjacency]


def _alike(a: Row, b: Row) -> bool:
    return all(a[field] == b[field] for field in ("caching", "cache", "recompute", "order"))

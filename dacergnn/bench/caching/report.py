"""Makes tables of a run: ours against the libraries, cost and gain of recomputation, and how well "auto" chooses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import geometric_mean

from rich.table import Table

from dacergnn.bench.caching.analysis import NetworkRows, choices, families, groups, relative, speedup
from dacergnn.bench.caching.records import Row
from dacergnn.bench.caching.task import Limits

Value = Callable[[NetworkRows], float | None]


def tables(rows: Iterable[Row]) -> list[Table]:
    """Returns all tables that have rows."""
    row_groups = groups(rows)
    return [
        t for t in (against_libraries(row_groups), recomputation(row_groups), choice_table(row_groups)) if t.row_count
    ]


def against_libraries(row_groups: Sequence[NetworkRows]) -> Table:
    """Divides the time of the fastest library and the memory of the leanest by ours, by model and network."""
    fields = [*(f"{mode}_ms" for mode in Limits.modes), "peak_mb"]
    table = _table("Fastest library / ours and leanest library / ours: geometric mean (smallest)", *fields)
    for name, members in families(row_groups).items():
        values = [_ratios(members, lambda g, field=field: speedup(g, g.own, field)) for field in fields]
        if any(values):
            table.add_row(*name, *(_mean(v, min) for v in values), str(len(members)))
    return table


def recomputation(row_groups: Sequence[NetworkRows]) -> Table:
    """Compares recompute_all with cache_all, by model and network."""
    fields = ["train_ms", "peak_mb", "saved_bytes"]
    table = _table("recompute_all / cache_all: geometric mean (largest)", *fields)
    for name, members in families(row_groups).items():
        values = [
            _ratios(members, lambda g, f=field: relative(g.named("recompute_all"), g.named("cache_all"), f))
            for field in fields
        ]
        if values[0]:
            table.add_row(*name, *(_mean(v, max) for v in values), str(len(members)))
    return table


def choice_table(row_groups: Sequence[NetworkRows]) -> Table:
    """Shows how often "auto" is the fastest scheme, and how much slower it is in its worst case."""
    table = _table("auto against the best fixed scheme, training", "fastest in", "worst", "where", count="of")
    for name, members in families(row_groups).items():
        made = choices(members)
        if not made:
            continue
        right, worst = sum(choice.right for choice in made), max(made, key=lambda choice: choice.slowdown)
        where = f"{worst.group.data}, {worst.group.hidden}: {worst.best['name']}"
        share = f"{right} ({right / len(made):.0%})"
        table.add_row(*name, share, f"{worst.slowdown:.3f}", where, str(len(made)))
    return table


def _table(title: str, *columns: str, count: str = "cases") -> Table:
    table = Table(title=title)
    for name in ("model", "network"):
        table.add_column(name)
    for name in (*columns, count):
        table.add_column(name, justify="right")
    return table


def _ratios(members: Sequence[NetworkRows], value: Value) -> list[float]:
    return [ratio for ratio in map(value, members) if ratio]


def _mean(values: Sequence[float], extreme: Callable[[Sequence[float]], float]) -> str:
    return f"{geometric_mean(values):.2f} ({extreme(values):.2f})" if values else "-"

"""Makes tables of a run: ours against the libraries, cost and gain of recomputation, and how well "auto" chooses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from benchmarks.caching.analysis import choices, default, families
from benchmarks.caching.task import Limits
from benchmarks.rows import Group, grouped
from dacergnn.bench.scatter import Ratio, Steady, noted, with_left_out
from dacergnn.json_lines import Row
from dacergnn.tables import Table

Value = Callable[[Group], Ratio | None]


def tables(rows: Iterable[Row]) -> list[Table]:
    """Returns all tables that have rows."""
    row_groups = grouped(rows)
    return [t for t in (against_libraries(row_groups), recomputation(row_groups), choice_table(row_groups)) if t.rows]


def against_libraries(row_groups: Sequence[Group]) -> Table:
    """Divides the time of the fastest library and the memory of the leanest by ours, by model and network."""
    fields = [*(f"{mode}_ms" for mode in Limits.modes), "peak_mb"]
    table = _table("Fastest library / ours and leanest library / ours: geometric mean (smallest)", *fields)
    for name, members in families(row_groups).items():
        values = [_ratios(members, lambda g, field=field: g.speedup(default(g), field)) for field in fields]
        if any(values):
            _add_means(table, name, values, len(members), min)
    return noted(table)


def recomputation(row_groups: Sequence[Group]) -> Table:
    """Compares recompute_all with cache_all, by model and network."""
    fields = ["train_ms", "peak_mb", "saved_bytes"]
    table = _table("recompute_all / cache_all: geometric mean (largest)", *fields)
    for name, members in families(row_groups).items():
        values = [_ratios(members, lambda g, f=field: g.ratio("recompute_all", "cache_all", f)) for field in fields]
        if values[0]:
            _add_means(table, name, values, len(members), max)
    return noted(table)


def choice_table(row_groups: Sequence[Group]) -> Table:
    """Shows how often "auto" is the fastest scheme, and how much slower it is in its worst case."""
    table = _table("auto against the best fixed scheme, training", "fastest in", "worst", "where", count="of")
    for name, members in families(row_groups).items():
        every = choices(members)
        made = [choice for choice in every if not choice.scatters]
        if not every:
            continue
        shown = ("-", "-", "-")
        if made:
            right, worst = sum(choice.right for choice in made), max(made, key=lambda choice: choice.slowdown)
            where = f"{worst.group['data']}, {worst.group['hidden']}: {worst.best['name']}"
            shown = (f"{right} ({right / len(made):.0%})", f"{worst.slowdown:.3f}", where)
        table.add_row(*name, *shown, with_left_out(str(len(made)), len(every) - len(made)))
    return noted(table)


def _add_means(
    table: Table,
    name: tuple[str, str],
    values: Sequence[list[Ratio]],
    cases: int,
    extreme: Callable[[Sequence[float]], float],
) -> None:
    """Adds a row of means to a table."""
    table.add_row(*name, *(Steady.of(ratios).text(extreme) for ratios in values), str(cases))


def _table(title: str, *columns: str, count: str = "cases") -> Table:
    return Table(title, ("model", "network", *columns, count), keys=2, words=("where",))


def _ratios(members: Sequence[Group], value: Value) -> list[Ratio]:
    return [ratio for ratio in map(value, members) if ratio is not None and ratio.value]

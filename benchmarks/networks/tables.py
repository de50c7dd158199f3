"""Makes tables of the rows of a run."""

from __future__ import annotations

from collections.abc import Iterable

from dacergnn.bench.scatter import Ratio, Steady, noted, ratio_cell, time_cell
from dacergnn.json_lines import Row
from dacergnn.tables import Table

TIME = "train_ms"


def graph_of(row: Row) -> str:
    """Returns the name of a row's graph, or the number of edges of its random graphs."""
    return row["data"] or f"{row['edges']:,} edges"


def table(rows: list[Row]) -> Table:
    """Returns times and peaks of memory, and how many times as much as ours they are."""
    headings = ("network", "graph", "candidate", "step ms", "p20", "p80", "/ ours", "peak MB", "/ ours", "difference")
    shown = Table("Training steps of whole networks", headings, keys=3)
    for row in rows:
        names, own = (row["network"], graph_of(row), row["candidate"]), _own(rows, row)
        if row["status"] != "ok":
            shown.add_row(*names, row["status"])
            shown.add_note(f"{', '.join(names)}: {row['note']}")
            continue
        times = (
            time_cell(row, TIME),
            f"{row['train_p20_ms']:.3g}",
            f"{row['train_p80_ms']:.3g}",
        )
        peak = row.get("peak_mb")
        sizes = "" if peak is None else f"{peak:.4g}", ratio_cell(Ratio.of(row, own, "peak_mb"))
        shown.add_row(*names, *times, ratio_cell(Ratio.of(row, own, TIME)), *sizes, f"{row['max_error']:.0e}")
    return noted(shown)


def means(rows: list[Row]) -> Table:
    """Returns the geometric means over networks of times over ours, and the smallest ones."""
    shown = Table(
        "Geometric means over networks (smallest) of times over ours", ("graph", "candidate", "/ ours"), keys=2
    )
    groups: dict[tuple[str, str], list[Ratio | None]] = {}
    for row in rows:
        if row["candidate"] != "ours":
            key = graph_of(row), row["candidate"].partition(" ")[0]
            groups.setdefault(key, []).append(Ratio.of(row, _own(rows, row), TIME))
    for key, ratios in groups.items():
        shown.add_row(*key, Steady.of(ratios).text())
    return shown


def _own(rows: Iterable[Row], row: Row) -> Row:
    """Returns the row of ours beside a row."""
    names = ("network", "edges", "data")
    same = (own for own in rows if own["candidate"] == "ours" and all(own[name] == row[name] for name in names))
    return next(same, {})

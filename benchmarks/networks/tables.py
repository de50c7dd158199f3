"""Makes tables of the rows of a run."""

from __future__ import annotations

from benchmarks.rows import OURS, grouped, label, relative
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
    for case in grouped(rows):
        own = case.named(OURS)
        for row in case.rows:
            names = row["network"], graph_of(row), label(row)
            if row["status"] != "ok":
                shown.add_row(*names, row["status"])
                shown.add_note(f"{', '.join(names)}: {row['note']}")
                continue
            times = (time_cell(row, name) for name in (TIME, "train_p20_ms", "train_p80_ms"))
            time, peak = (ratio_cell(relative(row, own, field)) for field in (TIME, "peak_mb"))
            size = time_cell(row, "peak_mb", ".4g")
            shown.add_row(*names, *times, time, size, peak, f"{row['max_error']:.0e}")
    return noted(shown)


def means(rows: list[Row]) -> Table:
    """Returns the geometric means over networks of times over ours, and the smallest ones."""
    shown = Table(
        "Geometric means over networks (smallest) of times over ours", ("graph", "candidate", "/ ours"), keys=2
    )
    ratios: dict[tuple[str, str], list[Ratio | None]] = {}
    for case in grouped(rows):
        for row in (row for row in case.rows if row["library"] != OURS):
            ratios.setdefault((graph_of(row), row["library"]), []).append(relative(row, case.named(OURS), TIME))
    for key, own in ratios.items():
        shown.add_row(*key, Steady.of(own).text())
    return shown

"""Writes the figures of docs/results/NAME.md from what a run of the suite has stored.

python -m benchmarks batches --threads 1 --steps 10 --json batches.json
python docs/make_results.py batches batches.json
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pages import FOLDER, replaced

from benchmarks.batches.runner import ratio_of, steady_ratios
from benchmarks.networks.tables import means, table
from dacergnn.bench.scatter import NOTE, Steady, ratio_cell, time_cell
from dacergnn.json_lines import Row, load
from dacergnn.tables import Table

COLUMNS = ("layer", "seeds", "edges", "sample ms", "eager ms", "ours ms", "ratio", "encoding", "steps/s eager", "ours")


def last_run(path: Path) -> tuple[Row, list[Row]]:
    """Returns the last run in a file: what it says of the machine, and its rows."""
    records = load(path)
    about, *rows = records[max(n for n, record in enumerate(records) if "environment" in record) :]
    return about, rows


def batches(about: Row, every: list[Row]) -> list[str]:
    """Returns what the figures are of, the table, and the mean below it."""
    settings, rows = about["settings"], [row for row in every if "error" not in row]
    return [
        f"These are steps on {settings['data']} with fan-outs {', '.join(map(str, settings['fanouts']))}:",
        "",
        Table("", COLUMNS, rows=map(_cells, rows)).markdown(),
        "",
        f"The geometric mean (smallest) of the ratios is {_mean(rows, 'ratio_wall')} by wall time and "
        f"{_mean(rows, 'ratio_processor')} by processor time.",
        *(["", f"\\{NOTE}."] if any(ratio.scatters for row in rows if (ratio := ratio_of(row, "ratio_wall"))) else []),
    ]


def networks(_: Row, rows: list[Row]) -> list[str]:
    """Returns the means and the table, with notes below."""
    every = table(rows)
    notes = [line for note in every.notes for line in ("", f"\\{note}." if note == NOTE else f"{note}.")]
    return [means(rows).markdown(), "", every.markdown(), *notes]


PAGES: dict[str, Callable[[Row, list[Row]], list[str]]] = {"batches": batches, "networks": networks}


def figures(name: str, path: Path) -> str:
    """Returns the figures of the last run in a file, below its command, machine and commit."""
    about, rows = last_run(path)
    machine, threads = about["environment"], about.get("threads") or about["settings"]["threads"]
    lines = [
        *("```sh", about["command"], "```", ""),
        f"On {threads} of the {machine['cores']} cores of a shared server ({machine['cpu']}), so that ratios count; "
        f"commit {about['commit']}.",
        "",
        *PAGES[name](about, rows),
    ]
    return "\n".join(lines) + "\n"


def _mean(rows: list[Row], name: str) -> str:
    return steady_ratios(rows).get(name, Steady([], 0)).text()


def _cells(row: dict[str, Any]) -> list[str]:
    eager, ours = row["eager"], row["ours"]
    cells = [row["layer"], f"{row['seeds']:,}", f"{row['edges']:,.0f}", f"{row['sample_wall_ms']:,.1f}"]
    cells += [time_cell(one, "step_wall_ms", ",.1f") for one in (eager, ours)]
    cells += [ratio_cell(ratio_of(row, "ratio_wall"))]
    cells += [f"{100 * row['encode_share_wall']:.0f} %"]
    return [*cells, f"{eager['steps_per_s']:.1f}", f"{ours['steps_per_s']:.1f}"]


if __name__ == "__main__":
    name, path = sys.argv[1:]
    page = FOLDER / "results" / f"{name}.md"
    page.write_text(replaced(page.read_text(), "figures", figures(name, Path(path))))

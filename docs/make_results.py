"""Writes the figures of docs/results/NAME.md from what a run of the suite has stored.

python -m benchmarks batches --threads 1 --steps 10 --json batches.json
python docs/make_results.py batches batches.json
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from pages import FOLDER, replaced

from benchmarks.batches.runner import ratio_of, steady_ratios
from benchmarks.networks.tables import means, table
from benchmarks.rows import Group, grouped
from dacergnn.bench.scatter import NOTE, Steady, ratio_cell, time_cell
from dacergnn.json_lines import Row, load
from dacergnn.tables import Table

COLUMNS = ("layer", "seeds", "edges", "sample ms", "eager ms", "ours ms", "ratio", "encoding", "steps/s eager", "ours")


def last_run(path: Path) -> tuple[Row, list[Row]]:
    """Returns what the last run in a file says of the machine, and its rows, with those that it did not repeat."""
    records, rows, same = load(path), list[Row](), False
    about = [record for record in records if "environment" in record][-1]
    for record in records:
        if "environment" in record:
            same = all(record.get(name) == about.get(name) for name in ("environment", "settings", "threads"))
        elif same:
            rows.append(record)
    return about, rows


def batches(about: Row, rows: list[Row]) -> list[str]:
    """Returns what the figures are of, the table, and the mean below it."""
    settings, cases = about["settings"], [case for case in grouped(rows) if not case.failed]
    noted = any(ratio is not None and ratio.scatters for ratio in (ratio_of(case, "ratio wall") for case in cases))
    return [
        f"These are steps on {settings['data']} with fan-outs {', '.join(map(str, settings['fanouts']))}:",
        "",
        Table("", COLUMNS, rows=map(_cells, cases)).markdown(),
        "",
        f"The geometric mean (smallest) of the ratios is {_mean(rows, 'ratio wall')} by wall time and "
        f"{_mean(rows, 'ratio processor')} by processor time.",
        *(["", f"\\{NOTE}."] if noted else []),
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


def _cells(case: Group) -> list[str]:
    ours, (eager, *_) = case.ours[0], case.peers()
    cells = [case["network"], f"{case['seeds']:,}", f"{ours['edges']:,.0f}", f"{ours['sample_wall_ms']:,.1f}"]
    cells += [time_cell(one, "step_wall_ms", ",.1f") for one in (eager, ours)]
    cells += [ratio_cell(ratio_of(case, "ratio wall"))]
    cells += [f"{100 * ours['encode_wall_ms'] / ours['step_wall_ms']:.0f} %"]
    return [*cells, f"{eager['steps_per_s']:.1f}", f"{ours['steps_per_s']:.1f}"]


if __name__ == "__main__":
    name, path = sys.argv[1:]
    page = FOLDER / "results" / f"{name}.md"
    page.write_text(replaced(page.read_text(), "figures", figures(name, Path(path))))

"""Writes the figures of docs/results/batches.md from what a run of the suite has stored.

python -m benchmarks batches --threads 1 --steps 10 --json batches.json
python docs/make_batches.py batches.json
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pages import FOLDER, replaced

from benchmarks.batches.runner import geometric_means, left_out, ratio_of
from dacergnn.bench.scatter import NOTE, marked, scatters, with_left_out
from dacergnn.json_lines import load
from dacergnn.tables import Table

PAGE = FOLDER / "results" / "batches.md"
COLUMNS = ("layer", "seeds", "edges", "sample ms", "eager ms", "ours ms", "ratio", "encoding", "steps/s eager", "ours")


def figures(path: Path) -> str:
    """Returns the table of the last run in a file, with the graph and the command above it and the mean below."""
    records = load(path)
    about, *every = records[max(n for n, record in enumerate(records) if "environment" in record) :]
    settings, machine = about["settings"], about["environment"]
    rows = [row for row in every if "error" not in row]
    lines = [
        "```sh",
        about["command"],
        "```",
        "",
        f"On {settings['data']} with fan-outs {', '.join(map(str, settings['fanouts']))}, on {settings['threads']} of "
        f"the {machine['cores']} cores of a shared server ({machine['cpu']}), so that ratios count:",
        "",
        Table("", COLUMNS, rows=map(_cells, rows)).markdown(),
        "",
        f"The geometric mean of the ratios is {_mean(rows, 'ratio_wall')} by wall time and "
        f"{_mean(rows, 'ratio_processor')} by processor time.",
        *(["", f"\\{NOTE}."] if any(ratio.scatters for row in rows if (ratio := ratio_of(row, "ratio_wall"))) else []),
    ]
    return "\n".join(lines) + "\n"


def _mean(rows: list[dict[str, Any]], name: str) -> str:
    means = geometric_means(rows)
    return with_left_out(f"{means[name]:.2f}" if name in means else "-", left_out(rows).get(name, 0))


def _cells(row: dict[str, Any]) -> list[str]:
    eager, ours = row["eager"], row["ours"]
    cells = [row["layer"], f"{row['seeds']:,}", f"{row['edges']:,.0f}", f"{row['sample_wall_ms']:,.1f}"]
    cells += [marked(f"{one['step_wall_ms']:,.1f}", scatters(one, "step_wall_ms")) for one in (eager, ours)]
    ratio = ratio_of(row, "ratio_wall")
    cells += ["-" if ratio is None else marked(f"{ratio.value:.2f}", ratio.scatters)]
    cells += [f"{100 * row['encode_share_wall']:.0f} %"]
    return [*cells, f"{eager['steps_per_s']:.1f}", f"{ours['steps_per_s']:.1f}"]


if __name__ == "__main__":
    PAGE.write_text(replaced(PAGE.read_text(), "figures", figures(Path(sys.argv[1]))))

"""Writes the figures of docs/batches.md from what a run of the suite has stored.

dacergnn bench --suite batches --threads 1 --steps 10 --json batches.json
python docs/make_batches.py batches.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pages import FOLDER, replaced

PAGE = FOLDER / "batches.md"
COLUMNS = ("layer", "seeds", "edges", "sample ms", "eager ms", "ours ms", "ratio", "encoding", "steps/s eager", "ours")


def figures(report: dict[str, Any]) -> str:
    """Returns the table of a report, with the graph and the command above it and the mean below."""
    settings, machine = report["settings"], report["environment"]
    mean = report["geomean"]
    lines = [
        "```sh",
        report["command"],
        "```",
        "",
        f"On {settings['data']} with fan-outs {', '.join(map(str, settings['fanouts']))}, on {settings['threads']} of "
        f"the {machine['cores']} cores of a shared server ({machine['cpu']}), so that ratios count:",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|---|" + "---:|" * (len(COLUMNS) - 1),
        *(_line(row) for row in report["rows"] if "error" not in row),
        "",
        f"The geometric mean of the ratios is {mean['ratio_wall']:.2f} by wall time and "
        f"{mean['ratio_processor']:.2f} by processor time.",
    ]
    return "\n".join(lines) + "\n"


def _line(row: dict[str, Any]) -> str:
    eager, ours = row["eager"], row["ours"]
    times = (row["sample_wall_ms"], eager["step_wall_ms"], ours["step_wall_ms"])
    cells = [row["layer"], f"{row['seeds']:,}", f"{row['edges']:,.0f}", *(f"{ms:,.1f}" for ms in times)]
    cells += [f"{row['ratio_wall']:.2f}", f"{100 * row['encode_share_wall']:.0f} %"]
    return "| " + " | ".join([*cells, f"{eager['steps_per_s']:.1f}", f"{ours['steps_per_s']:.1f}"]) + " |"


if __name__ == "__main__":
    report = json.loads(Path(sys.argv[1]).read_text())
    PAGE.write_text(replaced(PAGE.read_text(), "figures", figures(report)))

"""Shows what was found beside what the paper says, and writes it to files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.papers.artefact import Cell, Found
from benchmarks.papers.facts import Fact
from dacergnn.tables import Table


def shown(cell: Cell) -> str:
    """Returns a cell as text."""
    if cell is None:
        return "-"
    return cell if isinstance(cell, str) else f"{cell:,.4g}" if abs(cell) < 1e4 else f"{cell:,.0f}"


def found_table(found: Found, title: str) -> Table:
    """Returns what was found here."""
    table = Table(f"{title}: here", found.columns, keys=found.picture.labels)
    table.notes += found.notes
    for row in found.rows:
        table.add_row(*map(shown, row))
    return table


def facts_table(facts: tuple[Fact, ...], summary: Mapping[str, float], title: str) -> Table:
    """Returns the numbers of the paper, and the same numbers here where there are such."""
    table = Table(f"{title}: the paper's numbers", ("what", "place", "paper", "here"), keys=2)
    for fact in facts:
        table.add_row(fact.what, fact.place, shown(fact.value), shown(summary.get(fact.key)))
    return table


def as_json(found: Found, facts: tuple[Fact, ...], **about: Any) -> str:
    """Returns a result as JSON.

    Args:
        about: Paper, name and title of the figure; machine, versions, seed and seconds of the run.
    """
    content = {
        **about,
        "columns": found.columns,
        "rows": found.rows,
        "labels": found.picture.labels,
        "notes": found.notes,
        "facts": [{**asdict(fact), "here": found.summary.get(fact.key)} for fact in facts],
    }
    return json.dumps(content, indent=1) + "\n"


def stem(paper: str, name: str) -> str:
    """Returns the name of the files of a figure, without their ending."""
    return f"{paper}_{name.replace(' ', '_')}"


def write(folder: Path, paper: str, name: str, text: str) -> Path:
    """Writes the JSON of a figure into a folder, and returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem(paper, name)}.json"
    path.write_text(text)
    return path

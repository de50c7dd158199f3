"""Makes docs/papers.md of the figures and tables in docs/papers, which `dacergnn reproduce` has written.

for paper in hector pigeon cor zhang singh ablation; do dacergnn reproduce $paper --quick --out docs/papers; done
python docs/make_papers.py [--print]
"""

from __future__ import annotations

import json
from typing import Any

from pages import FOLDER, give

from dacergnn.reproduce.facts import paper_facts
from dacergnn.reproduce.papers import PAPERS, artefacts
from dacergnn.reproduce.report import shown, stem

INTRODUCTION = """# The papers' figures and tables, measured here

`dacergnn reproduce` measures figures and tables of the papers that this project builds on. It shows the papers' numbers
beside ours. This page has what it found with `--quick`: smaller graphs and fewer runs, so that a paper takes less than
ten minutes. Without `--quick` it takes the papers' graphs, where they are on the machine, or synthetic ones with their
counts.

```sh
dacergnn reproduce hector --quick
dacergnn reproduce cor --figure 5 --figure 7 --out results
dacergnn reproduce zhang --list
```

Most papers measured on GPUs, this page on a processor with two cores: compare ratios, not times. Numbers of a paper
without a number beside them cannot be measured here. The folder `docs/papers` has each table as JSON, with the machine,
the versions and the seed.
"""


def table(columns: list[str], rows: list[list[Any]], labels: int) -> list[str]:
    """Returns the lines of a table, whose first columns are text."""
    marks = ["---" if n < labels else "---:" for n in range(len(columns))]
    lines = [columns, marks, *([shown(cell) for cell in row] for row in rows)]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def section(paper: str, name: str) -> list[str]:
    """Returns the lines on a figure or table."""
    file = FOLDER / "papers" / f"{stem(paper, name)}.json"
    if not file.exists():
        return []
    found = json.loads(file.read_text())
    title = f"{name.capitalize()}: {found['title']}"
    lines = [f"### {title}", "", *table(found["columns"], found["rows"], found["labels"]), ""]
    lines += [" ".join(found["notes"]), ""] if found["notes"] else []
    comparable = [fact for fact in found["facts"] if fact["here"] is not None or not fact["key"]]
    if comparable:
        rows = [[fact["what"], fact["place"], fact["value"], fact["here"]] for fact in comparable]
        lines += [*table(["number", "place", "paper", "here"], rows, 2), ""]
    others = len(found["facts"]) - len(comparable)
    lines += [f"{others} more numbers of the paper are of cases that were not measured here.", ""] if others else []
    picture = file.with_suffix(".png")
    lines += [f"![{title}](papers/{picture.name})", ""] if picture.exists() else []
    return lines


def main() -> None:
    lines = [INTRODUCTION]
    for paper in PAPERS:
        facts = paper_facts(paper)
        parts = [line for name in artefacts(paper) for line in section(paper, name)]
        if parts:
            first = json.loads(next((FOLDER / "papers").glob(f"{paper}_*.json")).read_text())
            machine, seed = first["machine"], first["seed"]
            lines += [f"## {facts.title}", ""]
            where = f"The paper's machine: {facts.machine}. " if facts.machine else ""
            lines += [
                f"{where}Here: {machine['cpu']}, {first['threads']} threads, torch {machine['torch']}, seed {seed}."
            ]
            lines += ["", *parts]
    give("papers.md", "\n".join(lines).rstrip() + "\n")


if __name__ == "__main__":
    main()

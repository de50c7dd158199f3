"""Makes docs/papers.md of the figures and tables in docs/papers, which `python -m benchmarks papers` has written.

for paper in hector pigeon cor zhang singh ablation; do
    python -m benchmarks papers $paper --quick --out docs/papers
done
python docs/make_papers.py [--print]
"""

from __future__ import annotations

import json
import re
from typing import Any

from pages import FOLDER, give
from papers_claims import CLAIMS, Claim

from benchmarks.papers.facts import paper_facts
from benchmarks.papers.papers import PAPERS, artefacts
from benchmarks.papers.report import shown, stem
from dacergnn.sdfg_passes.transformations import TRANSFORMATIONS
from dacergnn.tables import Table

INTRODUCTION = """# The papers' figures and tables, measured here

`python -m benchmarks papers`, in a checkout, measures figures and tables of the papers that this project builds on. It
shows the papers' numbers beside ours. Most papers measured on GPUs, this page on a processor with two cores: compare
ratios, not times.

## In short

These are claims of the papers, and whether they hold here. A gain holds if there is one, however large; other numbers
hold if they are within a tenth of the paper's. "In part" is said where some of the numbers hold. The other systems are
PyG and DGL. A number may be of few cases, and many times scatter; the tables below tell.
"""

MEASURING = """## How it is measured

```sh
python -m benchmarks papers hector --quick
python -m benchmarks papers cor --figure 5 --figure 7 --out results
python -m benchmarks papers zhang --list
```

This page has what was found with `--quick`: smaller graphs and fewer runs, so that a paper takes less than ten minutes.
Without `--quick` the command takes the papers' graphs, where they are on the machine, or synthetic ones with their
counts. Numbers of a paper without a number beside them cannot be measured here. The folder `docs/papers` has each table
as JSON, with the machine, the versions and the seed.
"""


def table(columns: list[str], rows: list[list[Any]], labels: int) -> str:
    """Returns a table whose first columns are text."""
    return Table("", columns, labels, rows=[[*map(shown, row)] for row in rows]).markdown()


def stored(paper: str, name: str) -> dict[str, Any] | None:
    """Returns what was found for a figure or table, if it was measured."""
    file = FOLDER / "papers" / f"{stem(paper, name)}.json"
    return json.loads(file.read_text()) if file.exists() else None


def claim_row(claim: Claim) -> list[str]:
    """Returns the cells of a claim: its place, what it says, the paper's numbers and ours, and whether it holds."""
    paper, name = claim.place
    found = stored(paper, name)
    assert found is not None, f"{name} of {paper} was not measured"
    facts = {fact["key"]: fact for fact in found["facts"]}
    values, here = ([facts[key][side] for key in claim.keys] for side in ("value", "here"))
    borne_out = [claim.holds(*pair) for pair in zip(values, here, strict=True)]
    verdict = "yes" if all(borne_out) else "in part" if any(borne_out) else "no"
    title = re.split(r" \(|[:,]", paper_facts(paper).title)[0]
    return [f"{title}, {name}", claim.what, ", ".join(map(shown, values)), ", ".join(map(shown, here)), verdict]


def gains_of_passes() -> str:
    """Returns what our own passes gain."""
    found = stored("ablation", "table 1")
    assert found is not None, "table 1 of ablation was not measured"
    mean = dict(zip(found["columns"], found["rows"][-1], strict=True))
    single = [mean[name] for name in TRANSFORMATIONS if name in mean]
    return (
        f"[Our own passes](#our-own-passes): in the mean of {len(found['rows']) - 1} layers, a training step takes "
        f"{mean['none']:.2f} times as long without any of them, and {mean['hector']:.2f} times with those of the "
        f"Hector paper alone. Without a single one it takes {min(single):.2f} to {max(single):.2f} times as long."
    )


def section(paper: str, name: str) -> list[str]:
    """Returns the lines on a figure or table."""
    found = stored(paper, name)
    if found is None:
        return []
    title = f"{name.capitalize()}: {found['title']}"
    lines = [f"### {title}", "", table(found["columns"], found["rows"], found["labels"]), ""]
    lines += [" ".join(found["notes"]), ""] if found["notes"] else []
    comparable = [fact for fact in found["facts"] if fact["here"] is not None or not fact["key"]]
    if comparable:
        rows = [[fact["what"], fact["place"], fact["value"], fact["here"]] for fact in comparable]
        lines += [table(["number", "place", "paper", "here"], rows, 2), ""]
    others = len(found["facts"]) - len(comparable)
    lines += [f"{others} more numbers of the paper are of cases that were not measured here.", ""] if others else []
    picture = FOLDER / "papers" / f"{stem(paper, name)}.png"
    lines += [f"![{title}](papers/{picture.name})", ""] if picture.exists() else []
    return lines


def main() -> None:
    claims = table(["paper", "claim", "paper's", "here", "holds"], [claim_row(claim) for claim in CLAIMS], 5)
    lines = [INTRODUCTION, claims, "", gains_of_passes(), "", MEASURING]
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

"""Measures layers by family, and writes the figures into README.md: a table, and docs/images/families.png.

python docs/make_families.py               # measures, about twelve minutes, and writes docs/families.json first
python docs/make_families.py --quick       # the same with few rounds on small synthetic graphs: numbers mean nothing
python docs/make_families.py --only SAGE   # measures one family again, and keeps the rows of the others
python docs/make_families.py --no-measure  # writes README.md and the picture from docs/families.json
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from textwrap import fill
from typing import Any

import click
from matplotlib.figure import Figure
from pages import FOLDER, replaced

from dacergnn.bench.environment import commit, environment, load
from dacergnn.bench.runner import Limits, measure, weigh
from dacergnn.bench.scatter import LIMIT, marked, scatters
from dacergnn.cli.options import present
from dacergnn.tables import Table

README, RECORDS, PICTURE = FOLDER.parent / "README.md", FOLDER / "families.json", "docs/images/families.png"
Record = dict[str, Any]
SIZE = 64
FAMILIES = {
    "RGCN": ("RGCN", "aifb"),
    "RGCN, 30 bases": ("RGCN(bases)", "aifb"),
    "RGAT": ("RGAT", "aifb"),
    "HGT": ("HGT", "aifb"),
    "HeteroConv of SAGE": ("HeteroConv(SAGE)", "aifb"),
    "GAT, 4 heads": ("GAT", "pubmed"),
    "GCN": ("GCN", "pubmed"),
    "SAGE": ("SAGE", "pubmed"),
    "GIN": ("GIN", "pubmed"),
    "a layer of your own": ("own", "pubmed"),
}
"""Rows of the table: networks of the suite of networks, and the graph of each; that of relational ones has 104
relations."""
COMPILED = ("RGAT", "GAT, 4 heads", "GCN", "SAGE", "GIN", "a layer of your own")
"""Rows for which torch.compile ends in time; it unrolls loops over relations."""
MEASURES = {"layer": "one layer", "step": "a step", "batch": "a step on a batch", "memory": "memory of a step"}
ALONE = ("PyG", "ours")
GAIN = 1.1
"""Smaller factors are no gain."""
NOTE = """Each cell has what dacergnn takes, and how many times as much PyG's layer and the fastest of these take: DGL's
layer, careful plain PyTorch, PyG's layer with a `cached` normalization, or `compiled` by `torch.compile` (not where it
unrolls loops over relations). A layer runs forward and backward, {size} features wide. A step trains three of them with
norms, ReLU, dropout, residuals and a head, on the whole graph ({graphs}) or on new batches of about {batch:,} edges.
These are medians of runs in turns in one process, where all results agree; made by `{command}` on
{date} at {commits} ({cpu}, torch {torch}, PyG {torch_geometric}, DGL {dgl}).{more}"""
QUICK = " **These numbers are of a quick run on small graphs, beside other work, and mean nothing yet.**"
SCATTERS = f" A star marks runs that scatter: the middle three fifths spread over more than {LIMIT:.0%} of the median."


def best_peer(row: Record, measure: str) -> str:
    """Returns the name of the fastest candidate that is neither the original nor ours; empty if there is none."""
    timed = {name: one["ms"] for name, one in row[measure].items() if "ms" in one and name not in ALONE}
    return min(timed, key=timed.__getitem__, default="")


def factor(value: float, ours: float, worse: str = "slower") -> str:
    """Returns how many times ours something takes, in words where we gain nothing."""
    ratio = value / ours
    if ratio < GAIN:
        return "no gain" if ratio >= 1 / GAIN else f"{ratio:.2f}x ({worse})"
    return f"{ratio:.1f}x" if ratio < 9.95 else f"{ratio:,.0f}x"


def cell(row: Record, measure: str) -> str:
    """Returns what ours takes, and the factors of the original and of the best peer."""
    key, unit, worse = ("peak_mb", "MB", "more") if measure == "memory" else ("ms", "ms", "slower")
    peer = best_peer(row, "step" if measure == "memory" else measure)
    ours = row[measure]["ours"][key]
    shown = marked(f"{ours:,.0f}" if ours >= 99.5 else f"{ours:.3g}", scatters(row[measure]["ours"]))
    named = {"PyG": "PyG", peer.partition(" ")[0]: peer}
    values = {label: row[measure].get(name, {}).get(key) for label, name in named.items()}
    factors = [f"{label} {factor(value, ours, worse)}" for label, value in values.items() if value is not None]
    return f"{shown} {unit}: {', '.join(factors)}"


def table(report: Record) -> str:
    """Returns the table with the picture, and what was measured on what."""
    machine, rows = report["environment"], report["rows"]
    cells = [[row["family"], *(cell(row, measure) for measure in MEASURES)] for row in rows]
    headings = ("layers", *MEASURES.values())
    edges = {row["data"]: row["edges"] for row in rows}
    counts = Counter(row["data"] for row in rows)
    graphs = "; ".join(f"{data}, {count} rows, {edges[data]:,} edges" for data, count in counts.items())
    batch = round(sum(row["batch_edges"] for row in rows) / len(rows), -2)
    commits = " and ".join(dict.fromkeys(f"commit {row['commit']}" for row in rows))
    more = [QUICK] * report["quick"] + [SCATTERS] * any("*" in text for row in cells for text in row)
    note = NOTE.format(
        **(machine | report | {"date": report["date"][:10]}), batch=int(batch),
        graphs=graphs, more="".join(more), commits=commits,
    )  # fmt: skip
    picture = f"![Training steps of a model by family of layers, on a logarithmic scale]({PICTURE})"
    return "\n".join([picture, "", Table("", headings, len(headings), rows=cells).markdown(), "", fill(note, 120)])


def draw(report: Record) -> None:
    """Draws the steps on the whole graph."""
    rows = report["rows"]
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    axes = figure.subplots()
    for number, (label, colour) in enumerate({"dacergnn": "#0072B2", "best peer": "#999999", "PyG": "#E69F00"}.items()):
        names = [("ours", best_peer(row, "step"), "PyG")[number] for row in rows]
        times = [row["step"].get(name, {}).get("ms", 0) for row, name in zip(rows, names, strict=True)]
        axes.bar([place + 0.27 * (number - 1) for place in range(len(rows))], times, 0.25, color=colour, label=label)
    axes.set_xticks(range(len(rows)), [row["family"].replace(" ", "\n", 1) for row in rows], fontsize=8)
    axes.set_yscale("log")
    axes.set_ylabel("ms of a training step")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, ncols=3, fontsize=9)
    figure.savefig(FOLDER.parent / PICTURE, dpi=130)


def measured(title: str, quick: bool, threads: int) -> Record:
    """Returns the row of a family: times of all candidates, and peaks of PyG's layers, of the best peer and of ours."""
    from benchmarks.networks.training import OneLayer, Training

    network, graph = FAMILIES[title]
    data = f"{graph}~0.05" if quick else present(graph)
    limits = Limits(("train",), threads, *((3, 0.3) if quick else (20, 4.0)), limit_bytes=16 << 30)
    whole, batches = Training(network, data=data), Training(network, data=data, batches=True)
    names = [name for name in whole.names() if name != "compiled" or (title in COMPILED and not quick)]
    alike = Training(network, data=data, batches=True)
    row: Record = {"family": title, "data": data, "edges": alike.problem.num_edges, "load_before": load()}
    row["batch_edges"] = next(alike.stream())[0].problem().num_edges
    for key, case in {"layer": OneLayer(network, data=data), "step": whole, "batch": batches}.items():
        # A network that keeps its normalization cannot go from batch to batch.
        chosen = [name for name in names if not (key == "batch" and name.startswith("cached"))]
        found = measure(case, chosen, limits)
        row[key] = {name: {field.removeprefix("train_"): value for field, value in one.items()}
                    for name, one in found.items()}  # fmt: skip
    named = dict.fromkeys(name for name in (*ALONE, best_peer(row, "step")) if name)
    row |= {"memory": {name: weigh(whole, name, limits) for name in named}, "load_after": load()}
    for key in ("layer", "step", "batch"):
        if row[key]["ours"]["status"] != "ok":
            raise click.ClickException(f"{title}, {key}: {row[key]['ours']['note']}")
    return row


@click.command()
@click.option("--measure/--no-measure", default=True, help="Measure, or write what is in docs/families.json.")
@click.option("--quick", is_flag=True, help="Few rounds on small graphs: numbers mean nothing.")
@click.option("--only", multiple=True, metavar="FAMILY", help="Measure this family alone; may be given again.")
@click.option("--threads", default=2, show_default=True)
def main(measure: bool, quick: bool, only: tuple[str, ...], threads: int) -> None:
    """Measure layers by family, and write README's table of them."""
    if measure:
        known = {row["family"]: row for row in json.loads(RECORDS.read_text())["rows"]} if only else {}
        rows: list[Record] = []
        report = {
            "command": f"python docs/make_families.py --threads {threads}" + " --quick" * quick,
            "quick": quick, "size": SIZE,
            "date": datetime.now(UTC).isoformat(timespec="seconds"), "threads": threads,
            "environment": environment(), "rows": rows,
        }  # fmt: skip
        for title in FAMILIES:
            if only and title not in only:
                rows.append(known[title])
                continue
            click.echo(title)
            rows.append({"commit": commit(), **measured(title, quick, threads)})
        RECORDS.write_text(json.dumps(report, indent=1) + "\n")
    report = json.loads(RECORDS.read_text())
    README.write_text(replaced(README.read_text(), "families", table(report)))
    draw(report)


if __name__ == "__main__":
    main()

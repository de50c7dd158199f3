"""Defines the command `python -m benchmarks papers`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click
import torch
from rich.console import Console

from benchmarks.options import settings
from benchmarks.papers.artefact import Scale
from benchmarks.papers.facts import paper_facts
from benchmarks.papers.papers import PAPERS, artefacts, chosen
from benchmarks.papers.picture import draw
from benchmarks.papers.report import as_json, facts_table, found_table, stem, write
from dacergnn.bench.environment import environment


@click.command()
@click.argument("paper", type=click.Choice(PAPERS))
@click.option("--figure", "figures", multiple=True, type=int, help="Only this figure; may be given several times.")
@click.option("--table", "tables", multiple=True, type=int, help="Only this table; may be given several times.")
@click.option("--list", "only_list", is_flag=True, help="List the figures and tables, and measure nothing.")
@settings(Scale)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path),
              help="Folder for tables (JSON) and pictures (PNG).")  # fmt: skip
def papers(
    settings: Scale, paper: str, figures: tuple[int, ...], tables: tuple[int, ...], only_list: bool, out: Path | None
) -> None:
    """Measure figures and tables of a paper on this machine, beside the paper's numbers.

    Papers: hector (ASPLOS 2024), pigeon (its first version), cor (Cached Operator Reordering), zhang (MLSys 2022),
    singh (a performance model by graph networks); ablation has our own passes.
    """
    console = Console(width=None if sys.stdout.isatty() else 160)
    if only_list:
        for name, one in artefacts(paper).items():
            console.print(f"{name}: {one.title}", highlight=False)
        return
    facts, machine = paper_facts(paper), environment()
    torch.set_num_threads(settings.threads)
    where = f"The paper's machine: {facts.machine}. " if facts.machine else ""
    console.print(f"{facts.title}. {where}Here: {machine['cpu']}, {settings.threads} threads.")
    for name, one in chosen(paper, figures, tables).items():
        title, start = f"{paper}, {name}: {one.title}", time.perf_counter()
        with console.status(title):
            found = one.measure(settings)
        own, seconds = facts.facts.get(name, ()), time.perf_counter() - start
        click.echo(found_table(found, title))
        if own:
            click.echo(facts_table(own, found.summary, title))
        console.print(f"{seconds:.0f} s")
        if out is not None:
            about = {"paper": paper, "name": name, "title": one.title, "seconds": round(seconds), "machine": machine}
            about |= {name: getattr(settings, name) for name in ("quick", "device", "threads", "seed")}
            console.print(f"{write(out, paper, name, as_json(found, own, **about))}")
            draw(found, title, out / f"{stem(paper, name)}.png")

"""Defines the command `dacergnn bench`."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console

from dacergnn.bench.comparison import compare
from dacergnn.bench.measure import MODES
from dacergnn.bench.subject import LAYERS, Subject
from dacergnn.cli.layers import plan_option
from dacergnn.cli.options import data_option, device_option, names
from dacergnn.plan import Plan


@click.command()
@click.argument("source", default="")
@click.option("--model", "--layer", "layer", type=click.Choice(LAYERS), default=Subject.layer, show_default=True)
@data_option(Subject.data, aliases=("--graph",))
@click.option("--features", type=click.IntRange(min=1), default=Subject.features, show_default=True, help="In and out.")
@click.option("--heads", type=click.IntRange(min=1), default=Subject.heads, show_default=True)
@click.option("--caching", "strategies", default="cache_all", callback=names, show_default=True,
              help="Strategies to compare, comma-separated: cache_all, recompute_all, papers, auto, "
              "budget:500MB.")  # fmt: skip
@click.option("--mode", "modes", default=",".join(MODES), callback=names, show_default=True)
@plan_option
@device_option
@click.option("--threads", default=2, show_default=True, type=click.IntRange(1))
@click.option("--repeat", default=30, show_default=True, type=click.IntRange(1), help="Most rounds of a mode.")
@click.option("--budget", default=10.0, show_default=True, help="Seconds for the rounds of one candidate.")
@click.option("--memory/--no-memory", default=True, help="Measure peaks of memory, each in a process of its own.")
@click.option("--plot", "picture", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Draw times and peaks of memory, as .png, .svg or .pdf.")  # fmt: skip
@click.option("--json", "path", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Append the results to this file, as JSON lines.")  # fmt: skip
def bench(
    source: str, layer: str, data: str, features: int, heads: int, strategies: tuple[str, ...], modes: tuple[str, ...],
    plan: Plan | None, device: str, threads: int, repeat: int, budget: float, memory: bool, picture: Path | None,
    path: Path | None,
) -> None:  # fmt: skip
    """Compare a model as it is with the same model compiled: times and memory.

    SOURCE is MODULE:FUNCTION, a function without arguments that returns a model and the arguments of a call, as a
    tuple. Without it, the model is a layer of PyG (--layer) on a graph (--data). Several strategies of caching are
    compared side by side. Results and gradients are held against the original in float64 first; times are medians of
    runs in turns.
    """
    console = Console(stderr=True)
    found = compare(
        Subject(source, layer, data, features, heads, device), strategies, modes=modes, threads=threads, repeat=repeat,
        budget_s=budget, memory=memory, plan="" if plan is None else plan.to_json(), progress=console.print,
    )  # fmt: skip
    click.echo(found.text())
    if picture is not None:
        found.plot(picture)
    if path is not None:
        found.write(path)
    if not found.ok:
        sys.exit(1)

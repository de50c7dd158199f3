"""Defines `benchmarks model regret` and `searches`, which measure the plans that are chosen for layers on graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from hashlib import sha256
from itertools import product
from pathlib import Path
from statistics import fmean, geometric_mean, median
from typing import Any

import click
import torch

from benchmarks.learned_model import regret as regrets
from benchmarks.learned_model.figures import draw_regrets
from benchmarks.learned_model.searches import SEARCHES, compare
from benchmarks.programs import HOMOGENEOUS, program_of
from benchmarks.relational.settings import check
from benchmarks.suite import Tell, continued, json_option, quickly, results, run_cases, terminal, threads_option
from dacergnn.bench.measure import MODES
from dacergnn.cli.layers import MODELS
from dacergnn.cli.options import data_option, names
from dacergnn.graph import HeteroGraph
from dacergnn.json_lines import Row
from dacergnn.tables import Table
from dacergnn.tuning.model_file import SHIPPED
from dacergnn.tuning.tuned import shipped

CHOICES = {"default": "off", "model": "model", "fast": "fast", "measure": "measure"}
"""Field of `Regret` that has the seconds of a choice -> the value of `Config.tune` that makes this choice."""


def layer_options(*graphs: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command the options of its cases: layers on graphs, in modes."""

    def decorated(function: Callable[..., None]) -> Callable[..., None]:
        layers = f"Comma-separated, of {', '.join((*MODELS, *HOMOGENEOUS))}."
        for option in (
            threads_option,
            click.option("--heads", default=1, show_default=True, type=click.IntRange(1)),
            click.option("--features", default=64, show_default=True, type=click.IntRange(1), help="In and out."),
            click.option("--mode", default="infer,train", callback=names, show_default=True),
            data_option(*graphs),
            click.option("--models", default=",".join(MODELS), callback=names, show_default=True, help=layers),
        ):
            function = option(function)
        return function

    return decorated


def cases_of(models: Sequence[str], data: Sequence[str], mode: Sequence[str], **settings: int) -> list[Row]:
    """Returns the fields of each case."""
    for name, values, known in (("models", models, (*MODELS, *HOMOGENEOUS)), ("mode", mode, MODES)):
        check(name, values, known)
    return [{"layer": m, "data": d, "mode": way, **settings} for m, d, way in product(models, data, mode)]


def _program(case: Row, tell: Tell) -> tuple[Any, int, HeteroGraph]:
    tell(f"{case['layer']} on {case['data']}, {case['mode']}")
    return program_of(case["layer"], case["data"], case["features"], case["heads"], case["mode"])


@click.command()
@click.option("--out", "path", required=True, type=click.Path(dir_okay=False, path_type=Path),
              help="Results are appended to this file; cases in it are not measured again.")  # fmt: skip
@layer_options("aifb", "mutag", "fb15k237", "wn18rr")
@click.option("--builds", default=24, show_default=True, type=click.IntRange(1), help="Plans to build in a case, "
              "besides those that are chosen.")  # fmt: skip
@click.option("--evaluations", default=60, show_default=True, type=click.IntRange(1), help="Plans that a search sees.")
@click.option("--plots", type=click.Path(file_okay=False, path_type=Path), help="Draw all cases of the file into this "
              "folder.")  # fmt: skip
@quickly(models=(), data=(), mode=(), builds=2, evaluations=4)
def regret(path: Path, threads: int, plots: Path | None, **chosen: Any) -> None:
    """Measure how far chosen plans are from the fastest of many, for layers on graphs.

    The machine should have nothing else to do.
    """
    torch.set_num_threads(threads)
    about: Row = {"threads": threads, "model": sha256(SHIPPED.read_bytes()).hexdigest()}
    continued(path, **about)
    model = replace(shipped(), threads=threads)  # which features are computed for

    def measure(case: Row, tell: Tell) -> list[Row]:
        found = regrets.regret(
            *_program(case, tell), model, builds=case["builds"], evaluations=case["evaluations"]
        )  # fmt: skip
        return [{**case, **asdict(found)}]

    run_cases(
        cases_of(**chosen), measure, path=path, fields=lambda case: [case], console=terminal(), **about
    )  # fmt: skip
    every = results(path)
    click.echo(_table(every))
    if plots is not None:
        click.echo(draw_regrets(every, CHOICES, plots))


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Returns a table of cases, and of the means and the largest of their regrets.

    The last row has the most by which a choice is slower than "off".
    """
    headings = ("layer", "graph", "mode", "plans", "fastest ms", *(f'"{w}"' for w in CHOICES.values()), "choosing ms",
               "ranked right", "pairs")  # fmt: skip
    table = Table("Time of chosen plans over the fastest that was measured", headings, keys=3)
    regrets = {choice: [row[choice] / row["best"] for row in rows] for choice in CHOICES}
    for n, row in enumerate(rows):
        own = (f"{regrets[choice][n]:.3f}" for choice in CHOICES)
        scores = row["scores"]
        table.add_row(
            f"{row['layer']} {row['features']}, {row['heads']} heads", row["data"], row["mode"], str(row["plans"]),
            f"{1e3 * row['best']:.3f}", *own, f"{1e3 * row['choosing']:.0f}", f"{scores['ranked']:.1%}",
            str(scores["pairs"]),
        )  # fmt: skip
    for name, summary in (("mean", fmean), ("median", median), ("95th percentile", _high), ("largest", max)):
        table.add_row(name, "", "", "", "", *(f"{summary(values):.3f}" for values in regrets.values()))
    over = (max(row[choice] / row["default"] for row in rows) for choice in CHOICES)
    table.add_row('largest over "off"', "", "", "", "", *(f"{ratio:.3f}" for ratio in over))
    return table


def _high(values: Sequence[float]) -> float:
    """Returns the value below which 95 % of the values are."""
    return sorted(values)[min(round(0.95 * len(values)), len(values) - 1)]


@click.command()
@layer_options("aifb", "mutag")
@json_option
@quickly(models=(), data=(), mode=())
def searches(threads: int, path: Path | None, **chosen: Any) -> None:
    """Compare ways to search for plans by the model, in equal time: a beam, random plans, an evolution of plans."""
    torch.set_num_threads(threads)
    model = replace(shipped(), threads=threads)
    cases = cases_of(**chosen, threads=threads)

    def measure(case: Row, tell: Tell) -> list[Row]:
        found = compare(*_program(case, tell), model)
        return [{**case, "search": name, **asdict(one)} for name, one in found.items()]

    rows = run_cases(
        cases, measure, path=path, console=terminal(), fields=lambda case: [case | {"search": n} for n in SEARCHES]
    )
    title = "Plans found: measured time over that of the default (predicted; programs compiled)"
    table = Table(title, ("layer", "graph", "mode", *SEARCHES), keys=3)
    for found in (rows[start : start + len(SEARCHES)] for start in range(0, len(rows), len(SEARCHES))):
        cells = (f"{row['measured']:.3f} ({row['predicted']:.3f}; {row['programs']})" for row in found)
        table.add_row(*(found[0][name] for name in ("layer", "data", "mode")), *cells)
    means = (geometric_mean(row["measured"] for row in rows if row["search"] == name) for name in SEARCHES)
    table.add_row("geometric mean", "", "", *(f"{mean:.3f}" for mean in means))
    click.echo(table)

"""Defines `benchmarks model regret` and `searches`, which measure the plans that are chosen for layers on graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from benchmarks.suite import Tell, continued, quickly, run_cases, terminal, threads_option
from dacergnn.bench.measure import MODES
from dacergnn.cli.layers import MODELS
from dacergnn.cli.options import data_option, names
from dacergnn.errors import DacergnnError
from dacergnn.json_lines import Row
from dacergnn.tables import Table
from dacergnn.tuning.model_file import SHIPPED
from dacergnn.tuning.tuned import shipped

CHOICES = {"default": "off", "model": "model", "fast": "fast", "measure": "measure"}
"""Field of `Regret` that has the seconds of a choice -> the value of `Config.tune` that makes this choice."""

_LAYERS = f"Comma-separated, of {', '.join((*MODELS, *HOMOGENEOUS))}."


@click.command()
@click.option("--out", "path", required=True, type=click.Path(dir_okay=False, path_type=Path),
              help="Results are appended to this file; cases in it are not measured again.")  # fmt: skip
@click.option("--models", default=",".join(MODELS), callback=names, show_default=True, help=_LAYERS)
@data_option("aifb", "mutag", "fb15k237", "wn18rr")
@click.option("--mode", default="infer,train", callback=names, show_default=True)
@click.option("--features", default=64, show_default=True, type=click.IntRange(1), help="In and out.")
@click.option("--heads", default=1, show_default=True, type=click.IntRange(1))
@click.option("--builds", default=24, show_default=True, type=click.IntRange(1), help="Plans to build in a case, "
              "besides those that are chosen.")  # fmt: skip
@click.option("--evaluations", default=60, show_default=True, type=click.IntRange(1), help="Plans that a search sees.")
@threads_option
@click.option("--plots", type=click.Path(file_okay=False, path_type=Path), help="Draw all cases of the file into this "
              "folder.")  # fmt: skip
@quickly(models=(), data=(), mode=(), builds=2, evaluations=4)
def regret(
    path: Path, models: Sequence[str], data: Sequence[str], mode: Sequence[str], features: int, heads: int, builds: int,
    evaluations: int, threads: int, plots: Path | None,
) -> None:  # fmt: skip
    """Measure how far chosen plans are from the fastest of many, for layers on graphs.

    The machine should have nothing else to do.
    """
    torch.set_num_threads(threads)
    settings: Row = {"features": features, "heads": heads, "builds": builds, "evaluations": evaluations}
    cases: list[Row] = [{"layer": m, "data": d, "mode": way, **settings} for m, d, way in product(models, data, mode)]
    for name, values, known in (("models", models, (*MODELS, *HOMOGENEOUS)), ("mode", mode, MODES)):
        for value in {*values} - {*known}:
            raise DacergnnError(f"{name}: {value!r} is not one of {', '.join(known)}.")
    about: Row = {"threads": threads, "model": sha256(SHIPPED.read_bytes()).hexdigest()}
    earlier = continued(path, **about)
    model = replace(shipped(), threads=threads)  # which features are computed for
    known = {tuple(row[key] for key in cases[0]): row for row in earlier}

    def measure(case: Row, tell: Tell) -> list[Row]:
        tell(f"{case['layer']} on {case['data']}, {case['mode']}")
        program = program_of(case["layer"], case["data"], features, heads, case["mode"])
        return [{**case, **asdict(regrets.regret(*program, model, builds=builds, evaluations=evaluations))}]

    def found(case: Row) -> list[Row] | None:
        return [known[tuple(case.values())]] if tuple(case.values()) in known else None

    new = run_cases(cases, measure, path=path, earlier=found, console=terminal(), **about)
    measured = earlier + [row for row in new if row not in earlier]
    click.echo(_table(measured))
    if plots is not None:
        click.echo(draw_regrets(measured, CHOICES, plots))


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
@click.option("--models", default=",".join(MODELS), callback=names, show_default=True, help=_LAYERS)
@data_option("aifb", "mutag")
@click.option("--mode", default="infer,train", callback=names, show_default=True)
@click.option("--features", default=64, show_default=True, type=click.IntRange(1), help="In and out.")
@click.option("--heads", default=1, show_default=True, type=click.IntRange(1))
@threads_option
@quickly(models=(), data=(), mode=())
def searches(
    models: Sequence[str], data: Sequence[str], mode: Sequence[str], features: int, heads: int, threads: int
) -> None:
    """Compare ways to search for plans by the model, in equal time: a beam, random plans, an evolution of plans."""
    torch.set_num_threads(threads)
    model = replace(shipped(), threads=threads)
    title = "Plans found: measured time over that of the default (predicted; programs compiled)"
    table = Table(title, ("layer", "graph", "mode", *SEARCHES), keys=3)
    measured: dict[str, list[float]] = {name: [] for name in SEARCHES}
    for case in product(models, data, mode):
        layer, graph, way = case
        found = compare(*program_of(layer, graph, features, heads, way), model)
        cells = (f"{one.measured:.3f} ({one.predicted:.3f}; {one.programs})" for one in found.values())
        table.add_row(*case, *cells)
        for name, one in found.items():
            measured[name].append(one.measured)
    table.add_row("geometric mean", "", "", *(f"{geometric_mean(times):.3f}" for times in measured.values()))
    click.echo(table)

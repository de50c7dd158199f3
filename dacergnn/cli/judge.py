"""Defines `dacergnn tune evaluate` and `regret`, which judge performance models and the plans that they choose."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from itertools import product
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from dacergnn.bench.command import names, progress_bar
from dacergnn.bench.data_option import data_option
from dacergnn.bench.environment import environment
from dacergnn.bench.settings import MODES
from dacergnn.cli.layers import MODELS, called_program, compiled_layer
from dacergnn.config import Config
from dacergnn.errors import DacergnnError
from dacergnn.plan import Plan
from dacergnn.program import Program
from dacergnn.sdfg_passes import Compilation, compile_program
from dacergnn.tuning.collect import INDEX
from dacergnn.tuning.model_file import SHIPPED
from dacergnn.tuning.records import Row, Writer, load
from dacergnn.tuning.tuned import shipped

if TYPE_CHECKING:
    from dacergnn.performance.dataset import Measured
    from dacergnn.performance.scores import Scores

CHOICES = {"default": "off", "model": "model", "fast": "fast", "measure": "measure"}
"""Field of `Regret` that has the seconds of a choice -> the value of `Config.tune` that makes this choice."""


@click.command()
@click.option("--data", "path", required=True, type=click.Path(dir_okay=False, exists=True, path_type=Path),
              help="What `dacergnn tune collect` made; xz may have compressed it.")  # fmt: skip
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path),
              help="Train graph networks on all samples, and write them here.")  # fmt: skip
@click.option("--plots", type=click.Path(file_okay=False, path_type=Path), help="Draw figures into this folder.")
@click.option("--cross-validate", is_flag=True, help="Train and judge in turns, so that each layer is unseen once.")
@click.option("--epochs", default=20, show_default=True, type=click.IntRange(1))
@click.option("--members", default=4, show_default=True, type=click.IntRange(1), help="Networks to take the mean of.")
@click.option("--pooled", is_flag=True, help="Also train networks that read sums over operators.")
@click.option("--seed", default=0, show_default=True, help="Of the division of the samples, and of the training.")
def evaluate(
    path: Path, out: Path | None, plots: Path | None, cross_validate: bool, epochs: int, members: int, pooled: bool,
    seed: int,
) -> None:  # fmt: skip
    """Train the performance models, and score them on layers and graphs that none of them has seen."""
    from dacergnn.performance.contenders import OURS, graph_networks, predictions
    from dacergnn.performance.dataset import FOLDS, divide, samples_of
    from dacergnn.performance.scores import scores, scores_by_family

    rows = load(path)
    about = next((row for row in rows if "format" in row), None)
    if about is None:
        raise DacergnnError(f"{path}: no line says how its samples were made; name a file of `dacergnn tune collect`.")
    samples = samples_of(rows)
    console = Console(width=None if sys.stdout.isatty() else 200)
    unseen: list[Measured] = []
    parts: dict[str, list[np.ndarray]] = {}
    for fold in range(FOLDS if cross_validate else 1):
        division = divide(samples, seed, fold)
        console.print(
            f"{len(division.learned):,} samples to learn from, {len(division.unseen):,} of unseen layers on unseen "
            "graphs."
        )
        by_model = predictions(division, seed=seed, epochs=epochs, members=members, pooled=pooled)
        for name, times in by_model.items():
            parts.setdefault(name, []).append(times)
        unseen += division.unseen
    predicted = {name: np.concatenate(part) for name, part in parts.items()}
    all_scores = {name: scores(unseen, times, about["repeat"]) for name, times in predicted.items()}
    by_family = scores_by_family(unseen, predicted[OURS], about["repeat"])
    console.print(_score_table("model", all_scores))
    console.print(_score_table("family", by_family, OURS))
    if out is not None:
        graph_networks(samples, seed=seed, epochs=epochs, members=members).save(out)
    if plots is not None:
        from dacergnn.performance.figures import draw_predictions, draw_ranks

        for file in (draw_predictions(unseen, predicted, plots), draw_ranks(by_family, plots)):
            console.print(str(file))


def _score_table(what: str, all_scores: Mapping[str, Scores], model: str = "") -> Table:
    """Returns a table of scores by model, or of the scores of ``model`` by family."""
    table = Table(title="Unseen layers on unseen graphs" + (f", {model}" if model else ""))
    for column in (what, "samples", "mean error", "largest", "R2 of log time", "ranked right", "pairs"):
        table.add_column(column, justify="left" if column == what else "right")
    for name, one in all_scores.items():
        table.add_row(
            name, str(one.samples), f"{one.mean_error:.1%}", f"{one.largest_error:.0%}", f"{one.r2:.3f}",
            f"{one.ranked:.1%}", str(one.pairs),
        )  # fmt: skip
    return table


@click.command()
@click.option("--out", "path", required=True, type=click.Path(dir_okay=False, path_type=Path),
              help="Results are appended to this file; cases in it are not measured again.")  # fmt: skip
@click.option("--models", default=",".join(MODELS), callback=names, show_default=True, help="Comma-separated.")
@data_option("aifb", "mutag", "fb15k237", "wn18rr")
@click.option("--mode", default="infer,train", callback=names, show_default=True)
@click.option("--features", default=64, show_default=True, type=click.IntRange(1), help="In and out.")
@click.option("--heads", default=1, show_default=True, type=click.IntRange(1))
@click.option("--builds", default=24, show_default=True, type=click.IntRange(1), help="Plans to build in a case, "
              "besides those that are chosen.")  # fmt: skip
@click.option("--evaluations", default=60, show_default=True, type=click.IntRange(1), help="Plans that a search sees.")
@click.option("--threads", default=2, show_default=True, type=click.IntRange(1))
@click.option("--plots", type=click.Path(file_okay=False, path_type=Path), help="Draw all cases of the file into this "
              "folder.")  # fmt: skip
def regret(
    path: Path, models: Sequence[str], data: Sequence[str], mode: Sequence[str], features: int, heads: int, builds: int,
    evaluations: int, threads: int, plots: Path | None,
) -> None:  # fmt: skip
    """Measure how far chosen plans are from the fastest of many, for layers on graphs.

    The machine should have nothing else to do.
    """
    from dacergnn.performance.regret import regret as measured_regret

    torch.set_num_threads(threads)
    settings: Row = {"features": features, "heads": heads, "builds": builds, "evaluations": evaluations}
    cases: list[Row] = [{"layer": m, "data": d, "mode": way, **settings} for m, d, way in product(models, data, mode)]
    for name, values, known in (("models", models, MODELS), ("mode", mode, MODES)):
        for value in {*values} - {*known}:
            raise DacergnnError(f"{name}: {value!r} is not one of {', '.join(known)}.")
    rows = load(path) if path.exists() else []
    about: Row = {"machine": environment(), "threads": threads, "model": sha256(SHIPPED.read_bytes()).hexdigest()}
    if rows and rows[0] != about:
        raise DacergnnError(f"{path}: its results are of another machine or model; start another file.")
    writer, console = Writer(path), Console(width=None if sys.stdout.isatty() else 200)
    if not rows:
        writer.write([about])
    done = [{key: row.get(key) for key in cases[0]} for row in rows]
    with progress_bar(console) as bar:
        task = bar.add_task("cases", total=len(cases))
        for case in cases:
            bar.update(task, description=f"{case['layer']} on {case['data']}, {case['mode']}")
            if case not in done:
                case_regret = measured_regret(*_program(case), shipped(), builds=builds, evaluations=evaluations)
                rows.append({**case, **asdict(case_regret)})
                writer.write(rows[-1:])
            bar.advance(task)
    measured = [row for row in rows if "best" in row]
    console.print(_table(measured))
    if plots is not None:
        from dacergnn.performance.figures import draw_regrets

        console.print(str(draw_regrets(measured, CHOICES, plots)))


def _program(case: Row) -> tuple[Any, int, Any]:
    """Returns a function that compiles a case's program by a plan, the number of its results, and the graph."""
    layer = compiled_layer(case["layer"], case["data"], case["features"], case["heads"])
    compiled, wrt, graph = called_program(layer, case["mode"])
    wrt = [name for name in wrt if name != "x"]  # as in a first layer, like all measured samples

    def run(plan: Plan) -> Compilation:
        return compile_program(compiled.sdfg, wrt, Config(), INDEX, compiled.profile, tuned=plan, keep=False)

    return run, len(Program(compiled.sdfg).outputs), graph


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Returns a table of cases, and of their median and largest regrets."""
    table = Table(title="Time of chosen plans over the fastest that was measured")
    columns = ("layer", "graph", "mode", "plans", "fastest ms", *(f'"{w}"' for w in CHOICES.values()), "choosing ms",
               "ranked right", "pairs")  # fmt: skip
    for column in columns:
        table.add_column(column, justify="left" if column in columns[:3] else "right")
    regrets = {choice: [row[choice] / row["best"] for row in rows] for choice in CHOICES}
    for n, row in enumerate(rows):
        own = (f"{regrets[choice][n]:.3f}" for choice in CHOICES)
        scores = row["scores"]
        table.add_row(
            f"{row['layer']} {row['features']}, {row['heads']} heads", row["data"], row["mode"], str(row["plans"]),
            f"{1e3 * row['best']:.3f}", *own, f"{1e3 * row['choosing']:.0f}", f"{scores['ranked']:.1%}",
            str(scores["pairs"]),
        )  # fmt: skip
    for name, summary in (("median", median), ("largest", max)):
        table.add_row(name, "", "", "", "", *(f"{summary(values):.3f}" for values in regrets.values()))
    return table

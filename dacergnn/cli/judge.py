"""Defines `dacergnn tune evaluate`, which trains performance models and scores them on what they have not seen."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from dacergnn.errors import DacergnnError
from dacergnn.tables import Table
from dacergnn.tuning.records import Row, load

if TYPE_CHECKING:
    from dacergnn.performance.scores import Scores


def _numbers(_: click.Context, __: click.Parameter, value: str) -> tuple[int, ...]:
    return tuple(int(part) for part in value.split(",") if part.strip().isdecimal())


@click.command()
@click.option("--data", "paths", required=True, multiple=True,
              type=click.Path(dir_okay=False, exists=True, path_type=Path),
              help="What `dacergnn tune collect` made; may be given several times.")  # fmt: skip
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path),
              help="Train graph networks on all samples, and write them here.")  # fmt: skip
@click.option("--plots", type=click.Path(file_okay=False, path_type=Path), help="Draw figures into this folder.")
@click.option("--cross-validate", is_flag=True, help="Train and judge in turns, so that each layer is unseen once.")
@click.option("--machines", is_flag=True, help="Also judge on each machine after learning from the others.")
@click.option("--depths", default="", callback=_numbers, help="Also judge graph networks with these numbers of "
              "convolutions, as in 0,1,2,4,8.")  # fmt: skip
@click.option("--depth", default=0, show_default=True, type=click.IntRange(0), help="Convolutions in --out.")
@click.option("--epochs", default=20, show_default=True, type=click.IntRange(1))
@click.option("--members", default=4, show_default=True, type=click.IntRange(1), help="Members of each ensemble.")
@click.option("--pooled", is_flag=True, help="Also train networks that read sums over operators.")
@click.option("--seed", default=0, show_default=True, help="Of the division of the samples, and of the training.")
def evaluate(
    paths: tuple[Path, ...], out: Path | None, plots: Path | None, cross_validate: bool, machines: bool,
    depths: tuple[int, ...], depth: int, epochs: int, members: int, pooled: bool, seed: int,
) -> None:  # fmt: skip
    """Train the performance models, and score them on layers and graphs that none of them has seen.

    All models learn from the same samples, as ensembles of as many members. The times of each machine are scaled to
    one speed.
    """
    from dacergnn.performance.contenders import CALIBRATED, OURS
    from dacergnn.performance.dataset import FOLDS, machine_factors, on_one_scale, samples_of
    from dacergnn.performance.judging import Budget, Judged, by_depth, judge, on_another_machine

    rows: list[Row] = [row for path in paths for row in load(path)]
    if not any("format" in row for row in rows):
        names = ", ".join(map(str, paths))
        raise DacergnnError(f"{names}: no line says how its samples were made; name a file of `dacergnn tune collect`.")
    samples, budget = samples_of(rows), Budget(epochs, members, seed, pooled)
    console = Console(width=None if sys.stdout.isatty() else 200)
    factors = machine_factors(samples)
    counts = {machine: sum(s.machine == machine for s in samples) for machine in factors}
    for machine, count in counts.items():
        console.print(f"{count:,} samples on {machine}; {factors[machine]:.2f} times the analytic seconds.")
    if depths:
        click.echo(score_table("convolutions", by_depth(samples, depths, budget).scores))
    for machine in counts if machines and len(counts) > 1 else ():
        scores = on_another_machine(samples, machine, budget).scores
        click.echo(score_table(f"learned elsewhere than on {machine}", scores))
    unseen = Judged()
    for fold in range(FOLDS if cross_validate else 1):
        judge(unseen, samples, budget, fold)
        console.print(f"{len(unseen.samples):,} samples of unseen layers on unseen graphs so far.")
    click.echo(score_table("model", unseen.scores))
    families = unseen.by_family(OURS)
    click.echo(score_table("family", families, OURS))
    click.echo(score_table("family", unseen.by_family(CALIBRATED), CALIBRATED))
    if out is not None:
        budget.networks(on_one_scale(samples, factors), depth).save(out)
    if plots is not None:
        from dacergnn.performance.figures import draw_predictions, draw_ranks

        for file in (draw_predictions(unseen.samples, unseen.predicted, plots), draw_ranks(families, plots)):
            console.print(str(file))


def score_table(what: str, all_scores: Mapping[str, Scores], model: str = "") -> Table:
    """Returns a table of scores by model, or of the scores of ``model`` by family."""
    headings = (what, "samples", "mean error", "largest", "R2 of log time", "R2 of time", "ranked right", "pairs")
    table = Table("Unseen layers on unseen graphs" + (f", {model}" if model else ""), headings)
    for name, one in all_scores.items():
        table.add_row(
            name, str(one.samples), f"{one.mean_error:.1%}", f"{one.largest_error:.0%}", f"{one.r2:.3f}",
            f"{one.r2_seconds:.3f}", f"{one.ranked:.1%}", str(one.pairs),
        )  # fmt: skip
    return table

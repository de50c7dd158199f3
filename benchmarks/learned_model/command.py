"""Defines `python -m benchmarks model`: collects samples, trains performance models, and judges them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path

import click
import torch

from benchmarks.learned_model.choices import regret, searches
from benchmarks.learned_model.common_layers import common_layer
from benchmarks.learned_model.contenders import CALIBRATED, OURS, predictor
from benchmarks.learned_model.dataset import of_some_layers, samples_of
from benchmarks.learned_model.division import FOLDS, machine_factors, on_one_scale
from benchmarks.learned_model.figures import draw_predictions, draw_ranks
from benchmarks.learned_model.judging import Budget, Judged, Trial, by_depth, of_fold, on_another_machine
from benchmarks.learned_model.records import FORMAT, Rows
from benchmarks.options import settings
from benchmarks.suite import Tell, continued, json_option, quickly, run_cases, terminal
from dacergnn.cli.options import numbers
from dacergnn.errors import DacergnnError
from dacergnn.json_lines import Row, load
from dacergnn.tables import Table
from dacergnn.tuning.collect import Collector, CollectSettings
from dacergnn.tuning.programs import RandomLayer, random_layer
from dacergnn.tuning.samples import Measured
from dacergnn.tuning.scores import Scores

LAYERS: dict[str, Callable[[int], RandomLayer]] = {"random": random_layer, "common": common_layer}
"""Kinds of layers that samples are of."""


@click.group()
def model() -> None:
    """Collect samples of programs, and train and judge the models that choose plans."""


model.add_command(regret)
model.add_command(searches)


@model.command()
@quickly(layers=2, graphs=1, pool=1, builds=1, variants=0, repeat=2, limit=float("inf"))
@settings(CollectSettings)
@click.option("--out", "path", required=True, type=click.Path(dir_okay=False, path_type=Path),
              help="Samples are appended to this file; those in it are not measured again.")  # fmt: skip
@click.option("--layers", default=500, show_default=True, type=click.IntRange(1), help="Random layers.")
@click.option("--kind", default="random", type=click.Choice([*LAYERS]), show_default=True)
@click.option("--first", default=0, show_default=True, type=click.IntRange(0), help="Seed of the first one.")
@click.option("--minutes", default=float("inf"), help="Stop after so long, once a layer is done.")
@click.option("--build-only", is_flag=True, help="Measure nothing, but build what a later run measures: a machine may "
              "have other work meanwhile.")  # fmt: skip
def collect(
    settings: CollectSettings, path: Path, layers: int, kind: str, first: int, minutes: float, build_only: bool
) -> None:
    """Measure random plans of random layers on random graphs.

    Everything but the times follows from seeds. A run that was ended goes on where it stopped when it is started again
    with the same file. The machine should have nothing else to do.
    """
    settings = replace(settings, draw=LAYERS[kind])
    torch.set_num_threads(settings.threads)
    same = {name: getattr(settings, name) for name in ("repeat", "limit", "threads", "device")}
    about: Row = {"format": FORMAT, "layers": kind, **same}
    earlier = continued(path, **about)
    known = {row.get("layer") for row in earlier if build_only}
    collector = Collector(settings)
    rows, new = Rows(collector), list[Row]()

    def measured(seed: int, tell: Tell) -> list[Row]:
        tell(f"layer {seed}")
        if not build_only:
            new.extend(found := rows.of(seed))
            return found
        collector.build(seed)
        return []

    run_cases(
        [seed for seed in range(first, first + layers) if seed not in known], measured,
        path=None if build_only else path, console=terminal(),
        fields=lambda seed: [{"layer": seed}], deadline=time.monotonic() + 60 * minutes, **about,
    )  # fmt: skip
    click.echo(f"{sum('seconds' in row for row in new):,} samples measured into {path}.")


data_option = click.option(
    "--data", "paths", required=True, multiple=True, type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="What `model collect` made; may be given several times.",
)  # fmt: skip
samples_option = click.option("--samples", type=click.IntRange(1), help="About so many, of some of the layers.")


@model.command()
@quickly(epochs=1, members=1, samples=2_000)
@settings(Budget)
@data_option
@click.option("--out", required=True, type=click.Path(dir_okay=False, path_type=Path), help="File of the model.")
@samples_option
def train(settings: Budget, paths: tuple[Path, ...], out: Path, samples: int | None) -> None:
    """Train graph networks on all samples; the times of each machine are scaled to one speed."""
    predictor(settings.networks(on_one_scale(*_samples(paths, samples)))).save(out)


@model.command()
@quickly(depths=(), epochs=1, members=1, samples=2_000)
@settings(Budget)
@data_option
@click.option("--plots", type=click.Path(file_okay=False, path_type=Path), help="Draw figures into this folder.")
@click.option("--cross-validate", is_flag=True, help="Train and judge in turns, so that each layer is unseen once.")
@click.option("--machines", is_flag=True, help="Also judge on each machine after learning from the others.")
@click.option("--depths", default="", callback=numbers, help="Also judge graph networks with these numbers of "
              "convolutions, as in 0,1,2,4,8.")  # fmt: skip
@samples_option
@json_option
def judge(
    settings: Budget, paths: tuple[Path, ...], plots: Path | None, cross_validate: bool, machines: bool,
    depths: tuple[int, ...], samples: int | None, path: Path | None,
) -> None:  # fmt: skip
    """Train the performance models, and score them on layers and graphs that none of them has seen.

    All models learn from the same samples, as ensembles of as many members. The times of each machine are scaled to
    one speed.
    """
    (measured, factors), budget = _samples(paths, samples), settings
    digests = [sha256(data.read_bytes()).hexdigest() for data in paths]
    shared: Row = {"data": digests, "samples": samples, **asdict(budget)}
    folds = range(FOLDS if cross_validate else 1)
    trials: dict[str, Callable[[], Trial]] = {
        **({f"depths {','.join(map(str, depths))}": lambda: by_depth(measured, depths, budget)} if depths else {}),
        **{f"machine {name}": lambda name=name: on_another_machine(measured, name, budget)
           for name in (factors if machines and len(factors) > 1 else ())},
        **{f"fold {fold}": lambda fold=fold: of_fold(measured, budget, fold) for fold in folds},
    }  # fmt: skip

    def judged(case: str, tell: Tell) -> list[Row]:
        tell(case)
        predicted = trials[case]().predicted()
        return [{**shared, "trial": case, "model": name, "predicted": times} for name, times in predicted.items()]

    rows = run_cases(
        [*trials], judged, path=path, console=terminal(), fields=lambda case: [{**shared, "trial": case}]
    )  # fmt: skip

    def found(*cases: str) -> Judged:
        every = Judged()
        for case in cases:
            every.add(trials[case]().unseen, {r["model"]: r["predicted"] for r in rows if r["trial"] == case})
        return every

    for case in trials:
        kind, _, name = case.partition(" ")
        if kind != "fold":
            what = "convolutions" if kind == "depths" else f"learned elsewhere than on {name}"
            click.echo(score_table(what, found(case).scores))
    unseen = found(*(f"fold {fold}" for fold in folds))
    click.echo(score_table("model", unseen.scores))
    families = unseen.by_family(OURS)
    click.echo(score_table("family", families, OURS))
    click.echo(score_table("family", unseen.by_family(CALIBRATED), CALIBRATED))
    if plots is not None:
        click.echo(draw_predictions(unseen.samples, unseen.predicted, plots))
        click.echo(draw_ranks(families, plots))


def _samples(paths: tuple[Path, ...], most: int | None) -> tuple[list[Measured], dict[str, float]]:
    """Returns the samples of files, and how slow each machine is; says how many there are."""
    rows: list[Row] = [row for path in paths for row in load(path)]
    if not any("format" in row for row in rows):
        names = ", ".join(map(str, paths))
        raise DacergnnError(f"{names}: no line says how its samples were made; name a file of `model collect`.")
    samples = samples_of(rows if most is None else of_some_layers(rows, most))
    factors = machine_factors(samples)
    for machine, factor in factors.items():
        count = sum(s.machine == machine for s in samples)
        click.echo(f"{count:,} samples on {machine}; {factor:.2f} times the analytic seconds.")
    return samples, factors


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

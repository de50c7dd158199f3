"""Defines `dacergnn tune`, which measures programs for performance models to learn from, and chooses plans."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
import torch
from rich.console import Console

from dacergnn.bench.command import progress_bar
from dacergnn.bench.device_option import device_option, rates_option
from dacergnn.bench.environment import environment
from dacergnn.bench.programs import called_program, compiled_layer
from dacergnn.cli.judge import evaluate
from dacergnn.cli.layers import layer_options
from dacergnn.cli.regret import regret, searches
from dacergnn.config import LEVELS, Config, Rates
from dacergnn.errors import DacergnnError
from dacergnn.plan import Plan
from dacergnn.program import Program
from dacergnn.runtime.cuda_device import architectures
from dacergnn.sdfg_passes import Compilation, compile_program
from dacergnn.tables import Table
from dacergnn.tuning.collect import INDEX, LAYERS, Collector, CollectSettings
from dacergnn.tuning.features import RATES
from dacergnn.tuning.graph_facts import GraphFacts
from dacergnn.tuning.measure import Runnable, seconds
from dacergnn.tuning.model_file import own_file
from dacergnn.tuning.predictor import Analytic
from dacergnn.tuning.records import Row
from dacergnn.tuning.search import PlanCandidate, beam_search, predicted
from dacergnn.tuning.tuned import FINAL_REPEAT, MEASURED, ready, shipped


@click.group()
def tune() -> None:
    """Measure plans, for performance models to learn from, and choose by one."""


tune.add_command(evaluate)
tune.add_command(regret)
tune.add_command(searches)


@tune.command()
@click.option("--out", "path", required=True, type=click.Path(dir_okay=False, path_type=Path),
              help="Samples are appended to this file; those in it are not measured again.")  # fmt: skip
@click.option(
    "--layers", default=len(CollectSettings.layers), show_default=True, type=click.IntRange(1), help="Random layers."
)
@click.option("--kind", default=CollectSettings.kind, type=click.Choice([*LAYERS]), show_default=True)
@click.option("--first", default=0, show_default=True, type=click.IntRange(0), help="Seed of the first one.")
@click.option("--graphs", default=CollectSettings.graphs, show_default=True, help="Random graphs for each layer.")
@click.option("--pool", default=CollectSettings.pool, show_default=True, help="Graphs with relations to draw them "
              "from, and as many without.")  # fmt: skip
@click.option("--builds", default=CollectSettings.builds, show_default=True, help="Plans of a layer that are built.")
@click.option("--variants", default=CollectSettings.variants, show_default=True, help="Further plans for each build.")
@click.option("--small", default=CollectSettings.small, show_default=True, help="Share of graphs as small as batches.")
@click.option("--large", default=CollectSettings.large, show_default=True, help="Share of graphs of millions of edges.")
@click.option("--repeat", default=CollectSettings.repeat, show_default=True, help="Runs of each sample.")
@click.option("--limit", default=CollectSettings.limit, show_default=True, help="Seconds that a run may take.")
@click.option("--threads", default=CollectSettings.threads, show_default=True)
@device_option
@click.option("--minutes", default=float("inf"), help="Stop after so long, once a layer is done.")
@click.option("--build-only", is_flag=True, help="Measure nothing, but build what a later run measures: a machine may "
              "have other work meanwhile.")  # fmt: skip
def collect(
    path: Path, layers: int, kind: str, first: int, graphs: int, pool: int, builds: int, variants: int, small: float,
    large: float, repeat: int, limit: float, threads: int, device: str, minutes: float, build_only: bool,
) -> None:  # fmt: skip
    """Measure random plans of random layers on random graphs.

    Everything but the times follows from seeds. A run that was ended goes on where it stopped when it is started again
    with the same file. The machine should have nothing else to do.
    """
    settings = CollectSettings(
        range(first, first + layers), kind, graphs, pool, builds, variants, small, large, repeat, limit, threads, device
    )
    about: Row = {"machine": environment(), "repeat": repeat, "limit": limit, "threads": threads}
    if device != "cpu":
        about["device"] = device
    console = Console(width=None if sys.stdout.isatty() else 200)
    total, deadline = 0, time.monotonic() + 60 * minutes
    with progress_bar(console) as bar:
        task = bar.add_task("layers", total=layers)
        for seed, count in Collector(settings, path, about).run(deadline, measures=not build_only):
            total += count
            bar.update(task, advance=1, description=f"layer {seed}, {total:,} samples")
    console.print(f"{total:,} samples measured into {path}.")


@tune.command()
@click.option("--out", "path", type=click.Path(dir_okay=False, path_type=Path),
              help="File of the model, for Config(model=...). By default it is kept for this machine.")  # fmt: skip
@click.option("--threads", type=click.IntRange(1), help="Threads of the programs; those of torch by default.")
@click.option("--minutes", default=4.0, show_default=True, type=click.FloatRange(0, min_open=True),
              help="For building and measuring; fitting follows.")  # fmt: skip
def calibrate(path: Path | None, threads: int | None, minutes: float) -> None:
    """Fit the performance model to this machine, by programs that it is least sure of.

    The machine should have nothing else to do.
    """
    from dacergnn.performance.calibration import calibrate as fit

    threads = threads or torch.get_num_threads()
    console = Console(width=None if sys.stdout.isatty() else 200)
    model = replace(shipped(), threads=threads)
    with console.status("measuring") as status:

        def on_layer(layers: int, samples: int) -> None:
            status.update(f"measuring: {layers} layers, {samples} samples")

        found = fit(model, threads, minutes, on_layer)
    headings = ("", "mean error", "R2 of log time", "ranked right", "pairs")
    table = Table(f"{found.samples} samples, layers left out in turns", headings)
    for name, one in (("before", found.before), ("after", found.after)):
        table.add_row(name, f"{one.mean_error:.1%}", f"{one.r2:.3f}", f"{one.ranked:.1%}", str(one.pairs))
    click.echo(table)
    file = path or own_file(threads)
    file.parent.mkdir(parents=True, exist_ok=True)
    found.model.save(file)
    console.print(str(file))


@tune.command()
@layer_options
@click.option("--mode", type=click.Choice(("infer", "train")), default="train", show_default=True)
@click.option("--width", default=4, show_default=True, type=click.IntRange(1), help="Plans that go on in each step.")
@click.option("--depth", default=3, show_default=True, type=click.IntRange(1), help="Answers that a plan may change.")
@click.option(
    "--evaluations", default=200, show_default=True, type=click.IntRange(1), help="Plans to look at, at most."
)
@click.option("--top", default=MEASURED, show_default=True, type=click.IntRange(1), help="Plans to measure.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path),
              help="Write the fastest plan to this file, for --plan and Plan.load.")  # fmt: skip
@device_option
@rates_option
def run(
    model: str, data: str, features: int, heads: int, mode: str, width: int, depth: int, evaluations: int, top: int,
    out: Path | None, device: str, rates: Rates | None,
) -> None:  # fmt: skip
    """Search for a plan of a layer on a graph, and measure the best beside the levels O0, hector and O2.

    The trained model knows the processor alone: on a device, plans are ranked by their analytic cost.
    """
    if out is not None and not out.parent.is_dir():
        raise DacergnnError(f"--out: there is no folder {out.parent}; make it, or name a file elsewhere.")
    compiled, wrt, graph = called_program(compiled_layer(model, data, features, heads, device=device), mode)
    facts, predictor = GraphFacts.of(graph), (shipped() if device == "cpu" else Analytic())
    priced = RATES if device == "cpu" else Config(rates=rates).on(device).machine
    built_for = () if device == "cpu" else architectures(None)
    console = Console(width=None if sys.stdout.isatty() else 200)

    def compile_by(plan: Plan, level: str = "O2") -> Compilation:
        config = Config(level=level, rates=rates).on(device)
        return compile_program(compiled.sdfg, wrt, config, INDEX, facts, tuned=plan, keep=False)

    def on_step(best: Sequence[PlanCandidate], count: int) -> None:
        changes = ", ".join(f"{q}: {a}" for q, a in best[0].plan.answers) or "none"
        console.print(
            f"{count} plans, best predicted {1e3 * best[0].seconds:.3f} ms; changes: {changes}", highlight=False
        )

    chosen = beam_search(
        compile_by, facts, predictor, width=width, depth=depth, evaluations=evaluations, rates=priced, on_step=on_step
    )[:top]  # fmt: skip
    levels = [(level, compile_by(Plan(), level)) for level in LEVELS]
    plain = [PlanCandidate(Plan(), c, predicted(c, facts, predictor, priced)) for _, c in levels]
    candidates = plain + chosen
    names = [name for name, _ in levels] + [f"plan {n}" for n in range(1, len(chosen) + 1)]
    with console.status("building"):
        results = len(Program(compiled.sdfg).outputs)
        steps = ready({n: Runnable(c.found, results, built_for) for n, c in enumerate(candidates)}, graph)
    times = seconds(steps, FINAL_REPEAT)
    base = times[names.index("O2")]
    headings = ("", "predicted", "measured", "O2 / this", "changes")
    table = Table(f"{model} on {data}, {mode}: milliseconds", headings, words=("changes",))
    for name, candidate, own in zip(names, candidates, times.values(), strict=True):
        changes = "\n".join(f"{q}: {a}" for q, a in candidate.plan.answers)
        table.add_row(name, f"{1e3 * candidate.seconds:.3f}", f"{1e3 * own:.3f}", f"{base / own:.2f}", changes)
    click.echo(table)
    if out is not None:
        best = min(range(names.index("O2"), len(names)), key=times.__getitem__)  # other levels have other questions
        candidates[best].found.plan.save(out)

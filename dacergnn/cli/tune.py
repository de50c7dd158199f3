"""Defines `dacergnn tune`, which chooses plans by a performance model, and fits the model to this machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
import torch
from rich.console import Console

from dacergnn.cli.layers import layer_options
from dacergnn.cli.named_layers import called_program, compiled_layer
from dacergnn.cli.options import device_option, rates_option
from dacergnn.config import LEVELS, Config, Rates
from dacergnn.errors import DacergnnError
from dacergnn.plan import Plan
from dacergnn.program import Program
from dacergnn.runtime.cuda_device import architectures
from dacergnn.sdfg_passes import Compilation, compile_program
from dacergnn.tables import Table
from dacergnn.tuning import calibration
from dacergnn.tuning.collect import INDEX
from dacergnn.tuning.features import RATES
from dacergnn.tuning.graph_facts import GraphFacts
from dacergnn.tuning.measure import Runnable, seconds
from dacergnn.tuning.model_file import own_file
from dacergnn.tuning.predictor import Analytic
from dacergnn.tuning.search import PlanCandidate, beam_search, predicted
from dacergnn.tuning.tuned import FINAL_REPEAT, MEASURED, ready, shipped


@click.group()
def tune() -> None:
    """Choose a plan by a model of performance, and fit that model to this machine."""


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
    threads = threads or torch.get_num_threads()
    console = Console(width=None if sys.stdout.isatty() else 200)
    model = replace(shipped(), threads=threads)
    with console.status("measuring") as status:

        def on_layer(layers: int, samples: int) -> None:
            status.update(f"measuring: {layers} layers, {samples} samples")

        found = calibration.calibrate(model, threads, minutes, on_layer)
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

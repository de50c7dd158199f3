"""Defines the command `dacergnn bench`."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from dacergnn.bench.data_option import data_option
from dacergnn.bench.device_option import device_option
from dacergnn.bench.report import Report, Row, candidate_table, geomean_table, row_table
from dacergnn.bench.scatter import NOTE, marked
from dacergnn.bench.settings import AGAINST, MODELS, MODES, BenchSettings
from dacergnn.bench.suites import SuiteCommand, suite_option
from dacergnn.plan import Plan


def names(_: click.Context, __: click.Parameter, value: str) -> tuple[str, ...]:
    """Returns the names between the commas of an option's value."""
    return tuple(name.strip() for name in value.split(",") if name.strip())


def widths(_: click.Context, __: click.Parameter, value: str) -> tuple[int, ...]:
    """Returns the numbers between the commas of an option's value.

    Raises:
        click.BadParameter: One is no positive number, or there is none.
    """
    parts = [part.strip() for part in value.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise click.BadParameter(f"'{value}' is no list of positive numbers between commas, such as 32,64,128.")
    return tuple(map(int, parts))


@click.command(cls=SuiteCommand)
@suite_option
@click.option("--models", default=",".join(MODELS), callback=names, show_default=True, help="Comma-separated.")
@data_option(*BenchSettings.data)
@click.option("--mode", default=",".join(MODES), callback=names, show_default=True, help="infer, train.")
@click.option(
    "--against",
    default=",".join(AGAINST),
    callback=names,
    show_default=True,
    help="Peers: the libraries' layers and careful plain PyTorch.",
)
@click.option(
    "--layers",
    default="",
    callback=names,
    help="Parts of names: only these of the libraries' layers run (some take minutes).",
)
@click.option("--level", default="O2", callback=names, show_default=True, help="Levels of ours: O0, hector, O2.")
@click.option("--plan", metavar="FILE", help="Plan to compile ours by, as `dacergnn tune run --out` writes it.")
@click.option("--hidden", default="64", callback=widths, show_default=True, help="Features in and out, such as 32,64.")
@click.option("--repeat", default=30, show_default=True, type=click.IntRange(1), help="Most rounds of a case.")
@click.option("--budget", default=20.0, show_default=True, help="Seconds for the timing of one case.")
@click.option("--threads", default=2, show_default=True, type=click.IntRange(1))
@device_option
@click.option("--seed", default=0, show_default=True, help="Of features, labels, parameters, synthetic graphs.")
@click.option("--memory/--no-memory", default=True, help="Measure peak memory, each in a process of its own.")
@click.option("--compiled/--no-compiled", default=True, help="Try the libraries' layers with torch.compile.")
@click.option("--ours/--no-ours", default=True, help="Leave our own layers out to see the peers alone.")
@click.option("--all", "everything", is_flag=True, help="Print a table of all candidates of every case.")
@click.option("--overhead", is_flag=True, help="Only print what a call costs besides its kernels.")
@click.option("--json", "path", type=click.Path(dir_okay=False, writable=True, path_type=Path),
              help="Write all results to this file.")  # fmt: skip
def bench(
    models: tuple[str, ...], data: tuple[str, ...], mode: tuple[str, ...], against: tuple[str, ...],
    layers: tuple[str, ...], level: tuple[str, ...], plan: str | None, hidden: tuple[int, ...], repeat: int,
    budget: float, threads: int, device: str, seed: int, memory: bool, compiled: bool, ours: bool, everything: bool,
    overhead: bool, path: Path | None,
) -> None:  # fmt: skip
    """Measure compiled layers against those of PyG, DGL and plain PyTorch.

    One layer, one head, float32; training is forward, negative log-likelihood on fixed random labels and
    backward. Results are validated first; times are medians of interleaved runs in one process.
    """
    settings = BenchSettings(
        models, data, mode, against, level, hidden[0], repeat, memory, layers, compiled, ours, threads, seed, budget,
        device=device, plan="" if plan is None else Plan.load(plan).to_json(),
    )  # fmt: skip
    console = Console(width=None if sys.stdout.isatty() else 200)
    if overhead and device != "cpu":
        raise click.UsageError("--overhead measures calls on the processor; leave --device out.")
    if overhead:
        console.print(_overhead_table(settings))
        return
    report = _run(settings, console, everything)
    for width in hidden[1:]:
        report.add(_run(replace(settings, hidden=width), console, everything))
        report.settings["hidden"] = list(hidden)
    report.command = shlex.join(["dacergnn", *sys.argv[1:]])
    console.print(row_table(report.rows))
    console.print(geomean_table(report.as_json()["geomean"]))
    if path is not None:
        report.write(path)
        console.print(f"Results written to {path}")
    wrong = [row for row in report.rows if row["ours_status"].startswith(("wrong", "failed"))]
    for row in wrong:
        console.print(f"[red]{row['model']} on {row['data']}, {row['mode']}: {row['ours_status']}")
    if wrong:
        sys.exit(1)


def _run(settings: BenchSettings, console: Console, everything: bool) -> Report:
    from dacergnn.bench.runner import run

    cases = len(settings.models) * len(settings.data) * len(settings.modes)
    with progress_bar(console) as bar:
        task = bar.add_task("starting", total=cases)

        def on_case(rows: list[Row]) -> None:
            bar.advance(task)
            if everything:
                console.print(candidate_table(rows[0]))

        return run(settings, progress=lambda line: bar.update(task, description=line), on_case=on_case)


def progress_bar(console: Console, *more: ProgressColumn) -> Progress:
    """Returns a progress bar, with further columns behind the time, that is shown on terminals alone."""
    columns = (SpinnerColumn(), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), *more)
    return Progress(
        *columns, TextColumn("{task.description}"), console=console, transient=True, disable=not console.is_terminal,
        refresh_per_second=2, speed_estimate_period=1e9,
    )  # fmt: skip


def _overhead_table(settings: BenchSettings) -> Table:
    from dacergnn.bench.overhead import measure_overhead

    table = Table(title="One forward call on ten edges (microseconds)")
    for name in ("model", "call", "kernels", "overhead"):
        table.add_column(name, justify="left" if name == "model" else "right")
    for model in settings.models:
        cost = measure_overhead(model, settings.hidden)
        times = (cost.call_us, cost.kernels_us, cost.overhead_us)
        table.add_row(model, *(marked(f"{us:.1f}", cost.scatters) for us in times))
        table.caption = NOTE if cost.scatters else table.caption
    return table

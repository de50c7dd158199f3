"""Defines the command `python -m benchmarks relational`."""

from __future__ import annotations

import sys
import textwrap
import time
from dataclasses import asdict, replace
from pathlib import Path

import click
from rich.console import Console

from benchmarks.relational.record import Line
from benchmarks.relational.report import candidate_table, geomean_table, geometric_means, row_table
from benchmarks.relational.settings import AGAINST, MODELS, BenchSettings
from dacergnn.bench.environment import write_run
from dacergnn.bench.measure import MODES
from dacergnn.bench.scatter import NOTE, marked
from dacergnn.cli.bars import progress_bar, teller
from dacergnn.cli.options import data_option, device_option, names, numbers
from dacergnn.plan import Plan
from dacergnn.tables import Table, terminal_width


@click.command()
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
@click.option("--hidden", default="64", callback=numbers, show_default=True, help="Features in and out, such as 32,64.")
@click.option("--repeat", default=30, show_default=True, type=click.IntRange(1), help="Most rounds of a case.")
@click.option("--budget", default=20.0, show_default=True, help="Seconds for the timing of one case; "
              "builds, validation, --compiled and --memory come on top.")  # fmt: skip
@click.option("--threads", default=2, show_default=True, type=click.IntRange(1))
@device_option
@click.option("--seed", default=0, show_default=True, help="Of features, labels, parameters, synthetic graphs.")
@click.option("--memory/--no-memory", default=True, help="Measure peak memory, each in a process of its own.")
@click.option("--compiled/--no-compiled", default=True, help="Try the libraries' layers with torch.compile.")
@click.option("--ours/--no-ours", default=True, help="Leave our own layers out to see the peers alone.")
@click.option("--all", "everything", is_flag=True, help="Print a table of all candidates of every case.")
@click.option("--wide", is_flag=True, help="Print all columns, in parts if the terminal is too narrow.")
@click.option("--overhead", is_flag=True, help="Only print what a call costs besides its kernels.")
@click.option("--json", "path", type=click.Path(dir_okay=False, writable=True, path_type=Path),
              help="Append the results to this file, as JSON lines.")  # fmt: skip
def relational(
    models: tuple[str, ...], data: tuple[str, ...], mode: tuple[str, ...], against: tuple[str, ...],
    layers: tuple[str, ...], level: tuple[str, ...], plan: str | None, hidden: tuple[int, ...], repeat: int,
    budget: float, threads: int, device: str, seed: int, memory: bool, compiled: bool, ours: bool, everything: bool,
    wide: bool, overhead: bool, path: Path | None,
) -> None:  # fmt: skip
    """Measure compiled layers against those of PyG, DGL and plain PyTorch.

    One layer, one head, float32; training is forward, negative log-likelihood on fixed random labels and
    backward. Results are validated first; times are medians of interleaved runs in one process.
    """
    widths = hidden or (0,)
    settings = BenchSettings(
        models, data, mode, against, level, widths[0], repeat, memory, layers, compiled, ours, threads, seed, budget,
        device=device, plan="" if plan is None else Plan.load(plan).to_json(),
    )  # fmt: skip
    console = Console(width=None if sys.stdout.isatty() else 200)
    if overhead and device != "cpu":
        raise click.UsageError("--overhead measures calls on the processor; leave --device out.")
    if overhead:
        click.echo(_overhead_table(settings))
        return
    click.echo(textwrap.fill(_announced(settings, widths), terminal_width()), err=True)
    all_settings = [replace(settings, hidden=width) for width in widths]
    lines = _run(all_settings, console, everything)
    click.echo(row_table(lines).text(wide=wide))
    click.echo(f"\n{geomean_table(geometric_means(lines))}")
    if path is not None:
        write_run(path, lines, settings=asdict(settings) | {"hidden": hidden})
        console.print(f"Results written to {path}")
    own = [(line, c) for line in lines for c in line["candidates"] if c["library"] == "ours"]
    wrong = [(line, c) for line, c in own if c["status"] in ("wrong", "failed")]
    for line, c in wrong:
        console.print(f"[red]{line['model']} on {line['data']}, {line['mode']}: {c['status']} {c['note']}")
    if wrong:
        sys.exit(1)


def _announced(settings: BenchSettings, widths: tuple[int, ...]) -> str:
    """Says what will be measured, and how long its timing takes at the most."""
    cases = _cases(settings) * len(widths)
    parts = ["builds", "validation"]
    parts += ["tries of torch.compile (--no-compiled leaves them out)"] if settings.compiled else []
    parts += ["measurements of memory (--no-memory)"] if settings.memory else []
    return (
        f"{cases} {'case' if cases == 1 else 'cases'}: {', '.join(settings.models)} on {', '.join(settings.data)}; "
        f"{', '.join(settings.modes)}. Timing takes at most {settings.budget_s:g} s each (--budget), "
        f"{_duration(cases * settings.budget_s)} in all. On top come {', '.join(parts[:-1])} and {parts[-1]}."
    )


def _cases(settings: BenchSettings) -> int:
    return len(settings.models) * len(settings.data) * len(settings.modes)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _run(all_settings: list[BenchSettings], console: Console, everything: bool) -> list[Line]:
    from benchmarks.relational.runner import run

    total, start = sum(map(_cases, all_settings)), time.monotonic()
    with progress_bar(console) as bar:
        task = bar.add_task("starting", total=total)

        def on_case(line: Line) -> None:
            bar.advance(task)
            done, seconds = round(bar.tasks[0].completed), time.monotonic() - start
            if not console.is_terminal:
                left = f"; about {_duration(seconds / done * (total - done))} left" if done < total else ""
                click.echo(f"{done} of {total} cases done after {_duration(seconds)}{left}", err=True)
            if everything:
                console.print(f"{candidate_table(line)}\n", markup=False, highlight=False, soft_wrap=True)

        runs = (run(settings, progress=teller(bar, console), on_case=on_case) for settings in all_settings)
        return [line for lines in runs for line in lines]


def _overhead_table(settings: BenchSettings) -> Table:
    from benchmarks.relational.overhead import measure_overhead

    table = Table("One forward call on ten edges (microseconds)", ("model", "call", "kernels", "overhead"))
    for model in settings.models:
        cost = measure_overhead(model, settings.hidden)
        times = (cost.call_us, cost.kernels_us, cost.overhead_us)
        table.add_row(model, *(marked(f"{us:.1f}", cost.scatters) for us in times))
        if cost.scatters:
            table.add_note(NOTE)
    return table

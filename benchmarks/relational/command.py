"""Defines the command `python -m benchmarks relational`."""

from __future__ import annotations

import math
import sys
import textwrap
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import click

from benchmarks.options import settings
from benchmarks.relational.record import is_complete
from benchmarks.relational.report import candidate_table, geomean_table, geometric_means, row_table
from benchmarks.relational.settings import BenchSettings
from benchmarks.rows import OURS, Group, grouped
from benchmarks.suite import duration, end, json_option, quickly, terminal
from dacergnn.bench.scatter import marked, noted
from dacergnn.cli.options import numbers
from dacergnn.json_lines import Row
from dacergnn.plan import Plan
from dacergnn.tables import Table, terminal_width


@click.command()
@quickly(models=(), data=(), modes=(), against=(), levels=(), repeat=3, budget_s=0.3, memory=False, compiled=False)
@settings(BenchSettings, modes="mode", levels="level", precision="dtype")
@click.option("--plan", metavar="FILE", help="Plan to compile ours by, as `dacergnn tune run --out` writes it.")
@click.option("--hidden", default="64", callback=numbers, show_default=True, help="Features in and out, such as 32,64.")
@click.option("--compiled/--no-compiled", default=None, help="Try the libraries' layers with torch.compile; by "
              "default not on a device.")  # fmt: skip
@click.option("--all", "everything", is_flag=True, help="Print a table of all candidates of every case.")
@click.option("--wide", is_flag=True, help="Print all columns, in parts if the terminal is too narrow.")
@click.option("--overhead", is_flag=True, help="Only print what a call costs besides its kernels.")
@json_option
@click.option("--arch", type=int, help="Compute capability to build for, such as 90; that of the device by default.")
@click.option("--time-limit", default=math.inf, help="Seconds for all; what is not begun is left out.")
@click.option("--build-ahead", is_flag=True, help="Build kernels for a device while earlier cases are measured.")
@click.option("--build", is_flag=True, help="Build the kernels of all cases for a device and measure nothing.")
@click.option("--markdown", "table", type=click.Path(dir_okay=False, path_type=Path), help="Write the tables here.")
def relational(
    settings: BenchSettings, plan: str | None, hidden: tuple[int, ...], compiled: bool | None, everything: bool,
    wide: bool, overhead: bool, path: Path | None, arch: int | None, time_limit: float, build_ahead: bool, build: bool,
    table: Path | None,
) -> None:  # fmt: skip
    """Measure compiled layers against those of PyG, DGL and plain PyTorch.

    One layer, one head, float32; training is forward, negative log-likelihood on fixed random labels and
    backward. Results are validated first; times are medians of interleaved runs in one process.

    The exit status is 75 if time was too short.
    """
    deadline, device = time.monotonic() + time_limit, settings.device
    chosen = replace(
        settings, compiled=device == "cpu" if compiled is None else compiled, device="cuda" if build else device,
        plan="" if plan is None else Plan.load(plan).to_json(), architectures=None if arch is None else (arch,),
    )  # fmt: skip
    all_settings = [replace(chosen, hidden=width) for width in hidden or (0,)]
    settings = all_settings[0]
    console = terminal()
    if overhead and device != "cpu":
        raise click.UsageError("--overhead measures calls on the processor; leave --device out.")
    if overhead:
        click.echo(_overhead_table(settings))
        return
    from benchmarks.relational.builds import build_all
    from benchmarks.relational.runner import cases_of, run

    cases = cases_of(*all_settings)
    if build:
        sys.exit(not build_all(cases))
    click.echo(textwrap.fill(_announced(settings, len(cases)), terminal_width()), err=True)

    def on_case(rows: Sequence[Row]) -> None:
        if everything:
            console.print(f"{candidate_table(Group(tuple(rows)))}\n", markup=False, highlight=False, soft_wrap=True)

    about = asdict(settings) | {"hidden": hidden}
    rows = run(
        *all_settings, path=path, console=console, on_case=on_case, deadline=deadline, ahead=build_ahead, settings=about
    )
    tables = [row_table(rows), geomean_table(geometric_means(rows))]
    click.echo("\n\n".join([tables[0].text(wide=wide), tables[1].text()]))
    if table is not None:
        table.write_text("\n\n".join(one.markdown() for one in tables) + "\n")
    left = len(cases) - sum(all(is_complete(settings, row) for row in case.rows) for case in grouped(rows))
    if left and time.monotonic() > deadline:
        click.echo(f"{left} cases are left; call again with the same --json.")
        sys.exit(75)
    wrong = [row for row in rows if row["library"] == OURS and row["status"] in ("wrong", "failed")]
    end(console, [f"{row['model']} on {row['data']}, {row['mode']}: {row['status']} {row['note']}" for row in wrong])


def _announced(settings: BenchSettings, cases: int) -> str:
    """Says what will be measured, and how long its timing takes at the most."""
    parts = ["builds", "validation"]
    parts += ["tries of torch.compile (--no-compiled leaves them out)"] if settings.compiled else []
    parts += ["measurements of memory (--no-memory)"] if settings.memory else []
    return (
        f"{cases} {'case' if cases == 1 else 'cases'}: {', '.join(settings.models)} on {', '.join(settings.data)}; "
        f"{', '.join(settings.modes)}. Timing takes at most {settings.budget_s:g} s each (--budget), "
        f"{duration(cases * settings.budget_s)} in all. On top come {', '.join(parts[:-1])} and {parts[-1]}."
    )


def _overhead_table(settings: BenchSettings) -> Table:
    from benchmarks.relational.overhead import measure_overhead

    table = Table("One forward call on ten edges (microseconds)", ("model", "call", "kernels", "overhead"))
    for model in settings.models:
        cost = measure_overhead(model, settings.hidden)
        times = (cost.call_us, cost.kernels_us, cost.overhead_us)
        table.add_row(model, *(marked(f"{us:.1f}", cost.scatters) for us in times))
    return noted(table)

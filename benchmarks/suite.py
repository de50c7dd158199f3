"""Runs the cases of a suite one after the other: a bar, rows in a file as cases end, the load of the machine."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console

from dacergnn.bench.environment import about as about_run
from dacergnn.bench.environment import environment, load
from dacergnn.cli.bars import progress_bar, teller
from dacergnn.errors import DacergnnError
from dacergnn.json_lines import Row, Writer
from dacergnn.json_lines import load as load_rows

C = TypeVar("C")
Tell = Callable[[str], None]
"""Shows a line that says what is being done."""
threads_option = click.option("--threads", default=2, show_default=True, type=click.IntRange(1))
json_option = click.option(
    "--json", "path", type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Append the results to this file, as JSON lines.",
)  # fmt: skip
resumed_json_option = click.option(
    "--json", "path", type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Append results to this file, line by line; what is in it is not measured again.",
)  # fmt: skip


def quickly(**least: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command --quick, which measures little.

    Args:
        least: Values of parameters then. Of a list, the first entry counts; the value here is that of an empty one.
    """

    def decorated(function: Callable[..., None]) -> Callable[..., None]:
        @click.option("--quick", is_flag=True, help="Measure little: the first of each list, and few runs.")
        @wraps(function)
        def run(*, quick: bool, **given: Any) -> None:
            for name, value in least.items() if quick else ():
                given[name] = given[name][:1] or value if isinstance(given[name], tuple) else value
            function(**given)

        return run

    return decorated


def silent(_: object) -> None:
    """Takes what nobody asks for."""


def unknown(_: object) -> None:
    """Tells that nothing is known of a case."""


def terminal() -> Console:
    """Returns where commands print."""
    return Console(width=None if sys.stdout.isatty() else 200)


def results(path: Path | None) -> list[Row]:
    """Returns the rows of a file that are of this machine and its versions; none where there is no file yet."""
    rows: list[Row] = []
    here, own = _plain(environment()), False
    for row in load_rows(path) if path is not None and path.exists() else []:
        if "environment" in row:
            own = row["environment"] == here
        elif own:
            rows.append(row)
    return rows


def _plain(row: Row) -> Row:
    """Returns a row as it is read from a file."""
    return json.loads(json.dumps(row))


def continued(path: Path, **about: Any) -> list[Row]:
    """Returns the results of a file that more will be appended to.

    Raises:
        DacergnnError: It holds something else, or results of another machine, or what ``about`` says was another way.
    """
    rows = load_rows(path) if path.exists() else []
    here = _plain({"environment": environment(), **about})
    for row in rows[:1] + [row for row in rows[1:] if "environment" in row]:
        if {name: row.get(name) for name in here} != here:
            raise DacergnnError(
                f"{path}: its results are of another machine, or were made in another way; start another file."
            )
    return results(path)


def run_cases(
    cases: Sequence[C],
    measured: Callable[[C, Tell], Sequence[Row]],
    *,
    path: Path | None = None,
    earlier: Callable[[C], Sequence[Row] | None] = unknown,
    deadline: float = math.inf,
    console: Console | None = None,
    tell: Tell = silent,
    on_case: Callable[[Sequence[Row]], None] = silent,
    **about: Any,
) -> list[Row]:
    """Measures case after case, and returns the rows of all, each with the load of the system before and after.

    Args:
        path: Rows are appended to this file as soon as a case is done, after a record of what they depend on.
        earlier: Returns the rows of a case that was measured before; None for one that is still to be measured.
        deadline: A value of time.monotonic(); cases that are not begun by then have no rows.
        console: Shows a bar, or lines where it is no terminal.
        tell: Takes the lines where there is no console.
        on_case: Called with the rows of every case that is measured as soon as they are there.
        about: Further fields of the first record.
    """
    known = [earlier(case) for case in cases]
    total, number = known.count(None), 0
    rows: list[Row] = []
    writer = Writer(path) if path is not None and total and time.monotonic() <= deadline else None
    if writer is not None:
        writer.write([about_run(**about)])
    start, done = time.monotonic(), silent
    with ExitStack() as stack:
        if console is not None and total:
            bar = stack.enter_context(progress_bar(console))
            done = partial(bar.advance, bar.add_task("starting", total=total))
            tell = teller(bar, console)
        for case, own in zip(cases, known, strict=True):
            if own is not None:
                rows += own
                continue
            if time.monotonic() > deadline:
                continue
            before, number = load(), number + 1
            found = measured(case, tell)
            own = [{**row, "load_before": before, "load_after": load()} for row in found]
            rows += own
            if writer is not None:
                writer.write(own)
            done(1)
            if console is not None and not console.is_terminal:
                seconds, left = time.monotonic() - start, total - number
                more = f"; about {duration(seconds / number * left)} left" if left else ""
                click.echo(f"{number} of {total} cases done after {duration(seconds)}{more}", err=True)
            on_case(own)
    if writer is not None and console is not None:
        click.echo(f"Results written to {path}", err=True)
    if console is not None and total < len(cases):
        click.echo(f"{len(cases) - total} of {len(cases)} cases were in {path} already.", err=True)
    return rows


def end(console: Console, failures: Sequence[str]) -> None:
    """Prints why results are missing or wrong, and ends the command with an error if some are."""
    for failure in failures:
        console.print(f"[red]{failure}")
    if failures:
        sys.exit(1)


def duration(seconds: float) -> str:
    """Returns seconds as text, in minutes where they are many."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"

"""Runs the cases of a suite one after the other: a bar, rows in a file as cases end, the load of the machine."""

from __future__ import annotations

import json
import math
import sys
import time
import uuid
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import ExitStack
from functools import cache, partial, wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console

from benchmarks.rows import flat
from dacergnn.bench.environment import about as about_run
from dacergnn.bench.environment import environment, load
from dacergnn.bench.runner import Experiment, Limits, measure
from dacergnn.cli.bars import progress_bar, teller
from dacergnn.errors import DacergnnError
from dacergnn.json_lines import Row, Writer
from dacergnn.json_lines import load as load_rows

C = TypeVar("C")
K = TypeVar("K", bound=Hashable)
Tell = Callable[[str], None]
"""Shows a line that says what is being done."""
threads_option = click.option("--threads", default=2, show_default=True, type=click.IntRange(1))
json_option = click.option(
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
            rows += flat(row)
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


def found_by(rows: Sequence[Row]) -> Callable[[Row], list[Row]]:
    """Returns what finds the rows that have some fields; of rows that were measured again, the last ones count."""

    @cache
    def index(names: tuple[str, ...]) -> dict[str, list[Row]]:
        by_key: dict[str, list[Row]] = {}
        for row in rows:
            own = by_key.setdefault(key(row, names), [])
            if own and own[0].get("group") != row.get("group"):
                own.clear()
            own.append(row)
        return by_key

    def key(row: Row, names: Iterable[str]) -> str:
        return json.dumps([row.get(name) for name in names])

    return lambda fields: index(tuple(fields)).get(key(fields, fields), [])


def known(
    cases: Sequence[C], fields: Callable[[C], Sequence[Row]], path: Path | None, complete: Callable[[Row], bool]
) -> list[list[Row] | None]:
    """Returns the rows of each case in a file; None for cases that `run_cases` would measure."""
    find = found_by(results(path))

    def earlier(case: C) -> list[Row] | None:
        found = [find(wanted) for wanted in fields(case)]
        every = [row for rows in found for row in rows]
        together = len({row.get("group") for row in every}) == 1  # only such rows compare
        return every if together and all(found) and all(map(complete, every)) else None

    return [earlier(case) for case in cases]


def run_cases(
    cases: Sequence[C],
    measured: Callable[[C, Tell], Sequence[Row]],
    *,
    path: Path | None = None,
    fields: Callable[[C], Sequence[Row]] = lambda _: (),
    complete: Callable[[Row], bool] = lambda _: True,
    deadline: float = math.inf,
    console: Console | None = None,
    tell: Tell = silent,
    on_case: Callable[[Sequence[Row]], None] = silent,
    **about: Any,
) -> list[Row]:
    """Measures case after case, and returns the rows of all.

    Rows that were measured together have the same "group", and the load of the system before and after.

    Args:
        path: Rows are appended to this file as soon as a case is done, after a record of what they depend on.
        fields: Returns, for each candidate of a case, the fields by which its rows are known; a case is not measured
            again if the file has rows of all its candidates. Without fields, every case is measured.
        complete: Tells whether a row in the file has all that is wanted.
        deadline: A value of time.monotonic(); cases that are not begun by then have no rows.
        console: Shows a bar, or lines where it is no terminal.
        tell: Takes the lines where there is no console.
        on_case: Called with the rows of every case that is measured as soon as they are there.
        about: Further fields of the first record.
    """
    earlier = known(cases, fields, path, complete)
    total, number = earlier.count(None), 0
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
        for case, own in zip(cases, earlier, strict=True):
            if own is not None:
                rows += own
                continue
            if time.monotonic() > deadline:
                continue
            before, number = load(), number + 1
            found = measured(case, tell)
            shared = {"group": uuid.uuid4().hex[:12], "load_before": before, "load_after": load()}
            own = [row | shared for row in found]
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


def run_experiments(
    cases: Sequence[tuple[Experiment[K], Sequence[K]]],
    limits: Limits,
    fields: Callable[[Any, K], Row],
    weighed: Callable[[Row], bool] = lambda _: False,
    **options: Any,
) -> list[Row]:
    """Measures the candidates of experiments, each experiment whole, and returns a row for each candidate.

    Args:
        cases: Experiments, each with its candidates.
        fields: Returns the fields by which the row of a candidate is known.
        weighed: Tells by these fields whether the peak of a candidate's memory is measured, too.
        options: Those of `run_cases`.
    """

    def wanted(case: tuple[Experiment[K], Sequence[K]]) -> list[Row]:
        experiment, candidates = case
        return [fields(experiment, candidate) for candidate in candidates]

    def measured(case: tuple[Experiment[K], Sequence[K]], tell: Tell) -> list[Row]:
        known = dict(zip(case[1], wanted(case), strict=True))
        heavy = [candidate for candidate, row in known.items() if weighed(row)]
        found = measure(*case, limits, weighed=heavy, progress=tell)
        same = {c: {"same_as": known[row["same_as"]]["name"]} for c, row in found.items() if "same_as" in row}
        return [known[candidate] | row | same.get(candidate, {}) for candidate, row in found.items()]

    def complete(row: Row) -> bool:
        """Tells whether a row has all that is asked for; what has failed would fail again."""
        timed = all(f"{mode}_ms" in row for mode in limits.modes)
        return row["status"] != "ok" or (timed and ("peak_mb" in row or not weighed(row)))

    return run_cases(cases, measured, fields=wanted, complete=complete, **options)


def end(console: Console, failures: Sequence[str]) -> None:
    """Prints why results are missing or wrong, and ends the command with an error if some are."""
    for failure in failures:
        console.print(f"[red]{failure}")
    if failures:
        sys.exit(1)


def duration(seconds: float) -> str:
    """Returns seconds as text, in minutes where they are many."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"

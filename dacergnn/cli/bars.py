"""Shows on terminals how far a long command is."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from dacergnn.progress import untold


@contextmanager
def progress_bar(console: Console) -> Generator[Progress]:
    """Shows a progress bar with the time that is left, on terminals alone, in place of what builds tell."""
    whole = Column(no_wrap=True)  # where the terminal is narrow, words are folded
    columns = (SpinnerColumn(table_column=whole), BarColumn(10), MofNCompleteColumn(table_column=whole))
    times = (TimeElapsedColumn(table_column=whole), TimeRemainingColumn(table_column=whole))
    words = TextColumn("{task.description}", table_column=Column())
    bar = Progress(
        *columns, *times, words, console=console, transient=True, disable=not console.is_terminal, refresh_per_second=2,
        speed_estimate_period=1e9,
    )  # fmt: skip
    with ExitStack() as stack:
        if console.is_terminal:
            stack.enter_context(untold())
        yield stack.enter_context(bar)


def teller(bar: Progress, console: Console) -> Callable[[str], None]:
    """Returns a function that shows a line beside a bar of one task, or writes it to standard error where no bar is."""

    def tell(line: str) -> None:
        (task,) = bar.tasks
        bar.update(task.id, description=line)
        if not console.is_terminal:
            click.echo(f"{task.completed:.0f} of {task.total:.0f} done; {line}", err=True)

    return tell

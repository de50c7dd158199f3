"""Defines `dacergnn cache`, which shows the folder of builds and plans, and lists or deletes them."""

from __future__ import annotations

import time

import click
from rich.console import Console
from rich.table import Table

from dacergnn.errors import CacheError
from dacergnn.native.cache import Entry, cache_folder, entries, plans, unfinished
from dacergnn.native.cache import clear as clear_cache


@click.group()
def cache() -> None:
    """Show or empty the cache of builds."""


@cache.command("path")
def show_path() -> None:
    """Print the folder of the cache (DACERGNN_CACHE_DIR, else the user's cache folder)."""
    click.echo(cache_folder())


@cache.command("list")
def show_list() -> None:
    """List the builds and plans, the latest first."""
    table = Table("program", "size", "built", "entry", box=None, header_style="bold")
    for entry in sorted(_everything(), key=lambda e: e.path.stat().st_mtime, reverse=True):
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.path.stat().st_mtime))
        table.add_row(entry.name, megabytes(entry.size), when, entry.path.name)
    Console().print(table if table.row_count else f"No builds in {cache_folder()}.")


@cache.command("size")
def show_size() -> None:
    """Print the number of builds and their size."""
    builds = _everything()
    click.echo(f"{len(builds)} builds, {megabytes(sum(entry.size for entry in builds))} in {cache_folder()}")


@cache.command("clear")
@click.option("--yes", is_flag=True, help="Do not ask.")
def clear(yes: bool) -> None:
    """Delete every build; they are compiled again when next needed."""
    count = len(_everything())
    if count and not yes:
        click.confirm(f"Delete {count} builds in {cache_folder()}?", abort=True)
    gone = clear_cache()
    click.echo(f"Deleted {gone} builds.")
    if gone < count:
        raise CacheError(f"{count - gone} builds in {cache_folder()} cannot be deleted; have their owner do so.")


def _everything() -> list[Entry]:
    """Returns libraries, the plans that they were built by, and the remains of unfinished builds."""
    return [*entries(), *plans(), *unfinished()]


def megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"

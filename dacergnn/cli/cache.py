"""Defines `dacergnn cache`, which shows the folder of builds and plans, and lists or deletes them."""

from __future__ import annotations

import os
import time

import click

from dacergnn.errors import CacheError
from dacergnn.native.cache import cache_folder, everything
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
    entries = sorted(everything(), key=lambda e: e.made, reverse=True)
    if not entries:
        click.echo(f"No builds in {cache_folder()}.")
    for entry in entries:  # a line each, whole, for what reads them from a pipe
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.made))
        click.echo(f"{when}  {megabytes(entry.size):>9}  {entry.path.name}")


@cache.command("size")
def show_size() -> None:
    """Print the number of builds and their size."""
    builds = everything()
    click.echo(f"{len(builds)} builds, {megabytes(sum(entry.size for entry in builds))} in {cache_folder()}")


@cache.command("clear")
@click.option("--yes", is_flag=True, help="Do not ask.")
def clear(yes: bool) -> None:
    """Delete every build, but for those under way; they are compiled again when next needed."""
    found = everything()
    if found and not yes:
        click.confirm(f"Delete {len(found)} builds in {cache_folder()}?", abort=True)
    click.echo(f"Deleted {clear_cache()} builds.")
    left = sum(os.path.lexists(entry.path) for entry in found)
    if left:
        raise CacheError(f"{left} builds in {cache_folder()} cannot be deleted; have their owner do so.")


def megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"

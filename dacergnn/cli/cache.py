"""`dacergnn cache`: where builds are kept, which there are, how much room they take, and away with them."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from dacergnn.errors import CacheError


@click.group()
def cache() -> None:
    """Show or empty the cache of builds."""


@cache.command("path")
def show_path() -> None:
    """Print the folder of the cache (DACERGNN_CACHE_DIR, else the user's cache folder)."""
    click.echo(cache_folder())


@cache.command("list")
def show_list() -> None:
    """List the builds, the latest first."""
    table = Table("build", "size", "built", box=None, header_style="bold")
    for entry in sorted(entries(), key=lambda e: e.stat().st_mtime, reverse=True):
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.stat().st_mtime))
        table.add_row(entry.name, megabytes(folder_bytes(entry)), when)
    Console().print(table if table.row_count else f"No builds in {cache_folder()}.")


@cache.command("size")
def show_size() -> None:
    """Print the number of builds and their size."""
    found = list(entries())
    click.echo(f"{len(found)} builds, {megabytes(sum(map(folder_bytes, found)))} in {cache_folder()}")


@cache.command("clear")
@click.option("--yes", is_flag=True, help="Do not ask.")
def clear(yes: bool) -> None:
    """Delete every build; they are compiled again when next needed."""
    found = list(entries())
    if found and not yes:
        click.confirm(f"Delete {len(found)} builds in {cache_folder()}?", abort=True)
    for entry in found:
        try:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        except OSError as error:
            raise CacheError(f"{entry} cannot be deleted ({error.strerror}); check who owns it.") from error
    click.echo(f"Deleted {len(found)} builds.")


def cache_folder() -> Path:
    """Folder of the builds; it need not exist."""
    from platformdirs import user_cache_path

    given = os.environ.get("DACERGNN_CACHE_DIR")
    return Path(given).expanduser() if given else user_cache_path("dacergnn")


def entries() -> Iterator[Path]:
    """Everything in the cache folder."""
    folder = cache_folder()
    return folder.iterdir() if folder.is_dir() else iter(())


def folder_bytes(entry: Path) -> int:
    """Bytes of a file, or of all files below a folder."""
    files = entry.rglob("*") if entry.is_dir() else (entry,)
    return sum(f.stat().st_size for f in files if f.is_file())


def megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"

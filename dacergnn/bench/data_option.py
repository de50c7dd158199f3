"""Defines ``--data``, whose default graphs are synthetic where the real ones are not on the machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from dacergnn import datasets
from dacergnn.errors import DatasetError

Decorated = Callable[..., Any]


def present(name: str) -> str:
    """Returns the name of a graph that is on this machine: ``name``, or the synthetic graph with its counts.

    Which one it is, and how to have the other, is written to standard error.
    """
    if "~" in name:
        return name
    if datasets.on_this_machine(name):
        try:
            datasets.load(name)
        except DatasetError as error:  # a damaged file, or the rest of a download that failed
            click.echo(str(error), err=True)
        else:
            return name
    twin = datasets.twin(name)
    download = f", or name --data {name} to download it" if name in datasets.DOWNLOADED else ""
    click.echo(
        f"{name} cannot be loaded on this machine: taking {twin}, a synthetic graph with its counts. "
        f"Set DACERGNN_DATA to a folder with {name}.npz{download}.",
        err=True,
    )
    return twin


def data_option(*defaults: str, aliases: tuple[str, ...] = ()) -> Decorated:
    """Returns ``--data`` for one graph, which is a string, or for a list of them, which is a tuple."""
    several = len(defaults) > 1

    def chosen(context: click.Context, _: click.Parameter, value: str | None) -> str | tuple[str, ...] | None:
        if context.resilient_parsing:  # a shell completes the command
            return None
        if value is None:
            names = tuple(present(name) for name in defaults)
        else:
            names = tuple(part.strip() for part in value.split(",") if part.strip()) if several else (value,)
        return names if several else names[0]

    what = "Graphs between commas" if several else "A graph"
    return click.option(
        "--data", *aliases, "data", callback=chosen, metavar="NAMES" if several else "NAME",
        help=f"{what}: a name, a name and a scale for a synthetic one (am~0.1), or a file (.npz, or PyG's .pt). By "
        f"default {','.join(defaults)}; for a real graph that is not on this machine, a synthetic one with its counts.",
    )  # fmt: skip

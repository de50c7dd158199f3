"""Defines options that several commands have: lists, graphs, and devices with their rates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import torch

from dacergnn import datasets
from dacergnn.config import Rates
from dacergnn.errors import DacergnnError, DatasetError

Decorated = Callable[..., Any]


def names(_: click.Context, __: click.Parameter, value: str) -> tuple[str, ...]:
    """Returns the names between the commas of an option's value."""
    return tuple(name.strip() for name in value.split(",") if name.strip())


def numbers(_: click.Context, __: click.Parameter, value: str) -> tuple[int, ...]:
    """Returns the whole numbers between the commas of an option's value.

    Raises:
        click.BadParameter: One is no number.
    """
    try:
        return tuple(int(part) for part in value.split(",") if part.strip())
    except ValueError:
        raise click.BadParameter(f"'{value}' is no list of numbers between commas, such as 32,64,128.") from None


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


def available(_: click.Context | None, __: click.Parameter | None, device: str) -> str:
    """Returns the name of a device; raises click.UsageError where torch has no such device."""
    if device == "cuda" and not torch.cuda.is_available():
        raise click.UsageError("--device cuda: torch finds no CUDA device here; name cpu to run on the processor.")
    return device


def _rates(_: click.Context, __: click.Parameter, path: str | None) -> Rates | None:
    try:
        return None if path is None else Rates.load(path)
    except DacergnnError as error:
        raise click.UsageError(f"--rates: {error}") from None


device_option = click.option(
    "--device", type=click.Choice(("cpu", "cuda")), default="cpu", show_default=True, callback=available,
    help="Where everything runs.",
)  # fmt: skip
rates_option = click.option(
    "--rates", metavar="FILE", callback=_rates,
    help="Rates to compile ours by, as `dacergnn env --save` writes them; typical ones without it.",
)  # fmt: skip

"""Defines the options of commands that also measure on a CUDA device."""

from __future__ import annotations

import click
import torch

from dacergnn.config import Rates
from dacergnn.errors import DacergnnError


def present(_: click.Context | None, __: click.Parameter | None, device: str) -> str:
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
    "--device", type=click.Choice(("cpu", "cuda")), default="cpu", show_default=True, callback=present,
    help="Where everything runs.",
)  # fmt: skip
rates_option = click.option(
    "--rates", metavar="FILE", callback=_rates,
    help="Rates to compile ours by, as `dacergnn env --save` writes them; typical ones without it.",
)  # fmt: skip

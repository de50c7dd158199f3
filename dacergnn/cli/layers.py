"""Defines what chooses a model, or a layer and a graph, for the commands that show what the compiler makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from dacergnn.cli.options import data_option
from dacergnn.plan import Plan

MODELS = ("rgcn", "rgat", "hgt")
Decorated = Callable[..., Any]


def layer_options(command: Decorated) -> Decorated:
    """Adds the options that choose a layer and a graph to a command."""
    options = (
        click.option("--model", "--layer", "model", type=click.Choice(MODELS), default="rgat", show_default=True),
        data_option("aifb", aliases=("--graph",)),
        click.option("--features", type=click.IntRange(min=1), default=64, show_default=True, help="In and out."),
        click.option("--heads", type=click.IntRange(min=1), default=1, show_default=True),
    )
    for option in reversed(options):
        command = option(command)
    return command


source_argument = click.argument("source", default="")
"""MODULE:FUNCTION, which takes the place of the layer and the graph."""


def read_plan(_: click.Context, __: click.Parameter, value: str | None) -> Plan | None:
    """Returns the plan in a file that an option names."""
    return None if value is None else Plan.load(value)


plan_option = click.option(
    "--plan", callback=read_plan, metavar="FILE", help="Plan to compile by, as `dacergnn tune run --out` writes it."
)

"""Defines `dacergnn explain`, which tells in words what the compiler makes of a layer on a graph."""

from __future__ import annotations

import click

from dacergnn.cli.layers import compiled_layer, layer_options, plan_option
from dacergnn.plan import Plan


@click.command()
@layer_options
@plan_option
@click.option("--verbose", is_flag=True, help="List the questions that a plan may answer, with answers and options.")
def explain(model: str, data: str, features: int, heads: int, plan: Plan | None, verbose: bool) -> None:
    """Show what becomes of a layer on a graph: passes, saved arrays, bytes and FLOPs."""
    import dacergnn

    click.echo(str(dacergnn.explain(compiled_layer(model, data, features, heads, plan), verbose=verbose)))

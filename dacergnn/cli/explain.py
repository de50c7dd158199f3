"""Defines `dacergnn explain`, which tells in words what the compiler makes of a layer on a graph."""

from __future__ import annotations

import click

from dacergnn.cli.layers import layer_options, plan_option
from dacergnn.plan import Plan


@click.command()
@layer_options
@plan_option
@click.option("--verbose", is_flag=True, help="Show all builds, passes, arrays, and the questions of plans.")
@click.option("--json", "as_json", is_flag=True, help="Write everything as JSON.")
def explain(
    model: str, data: str, features: int, heads: int, plan: Plan | None, verbose: bool, as_json: bool
) -> None:  # fmt: skip
    """Show what becomes of a layer on a graph, with estimates of its time and memory."""
    import dacergnn
    from dacergnn.cli.named_layers import compiled_layer

    report = dacergnn.explain(compiled_layer(model, data, features, heads, plan), verbose=verbose)
    click.echo(report.to_json() if as_json else str(report))

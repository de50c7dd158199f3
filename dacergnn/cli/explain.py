"""Defines `dacergnn explain`, which tells in words what the compiler makes of a model."""

from __future__ import annotations

import click

from dacergnn.cli.layers import layer_options, plan_option, source_argument
from dacergnn.plan import Plan


@click.command()
@source_argument
@layer_options
@plan_option
@click.option("--verbose", is_flag=True, help="Show all builds, passes, arrays, and the questions of plans.")
@click.option("--json", "as_json", is_flag=True, help="Write everything as JSON.")
def explain(
    source: str, model: str, data: str, features: int, heads: int, plan: Plan | None, verbose: bool, as_json: bool
) -> None:  # fmt: skip
    """Show what becomes of a model, with estimates of its time and memory.

    SOURCE is MODULE:FUNCTION, a function without arguments that returns a model and the arguments of a call, as a
    tuple. Without it, the model is a layer (--layer) on a graph (--data).
    """
    import dacergnn
    from dacergnn.cli.named_layers import compiled_model

    report = dacergnn.explain(compiled_model(source, model, data, features, heads, plan), verbose=verbose)
    click.echo(report.to_json() if as_json else str(report))

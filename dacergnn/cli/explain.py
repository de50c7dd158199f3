"""`dacergnn explain`: what the compiler makes of a layer on a graph, in words."""

from __future__ import annotations

import click

from dacergnn.cli.layers import compiled_layer, layer_options


@click.command()
@layer_options
def explain(model: str, data: str, features: int, heads: int) -> None:
    """Show what becomes of a layer on a graph: passes, saved arrays, bytes and FLOPs."""
    import dacergnn

    click.echo(str(dacergnn.explain(compiled_layer(model, data, features, heads))))

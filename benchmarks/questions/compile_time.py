"""Measures the seconds from a layer to its loaded library, with an empty cache and with a plan and build in the cache.

Each figure is the first forward and backward call of a layer in its own process, less the second call. With an empty
cache, it includes passes, code generator and compiler. It always includes the encodings of the graph.

Run: python -m benchmarks compile_time [--data aifb]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

import click

from dacergnn.tables import Table

LAYERS = ("RGCN", "RGAT", "HGT")


def first_call(layer: str, data: str) -> float:
    """Returns the seconds that the first call takes more than the second."""
    import torch

    from dacergnn import datasets
    from dacergnn.cli.named_layers import native_layer

    graph = datasets.load(data).graph
    module = native_layer(layer.lower(), graph, 64, 1)
    x = torch.randn(graph.size("NS"), 64, requires_grad=True)
    seconds: list[float] = []
    for _ in range(2):
        started = time.perf_counter()
        module(x, graph).sum().backward()
        seconds.append(time.perf_counter() - started)
    return seconds[0] - seconds[1]


@click.command()
@click.option("--data", default="aifb", show_default=True)
@click.option("--layer", type=click.Choice(LAYERS), hidden=True, help="Measure this one, in this process.")
def main(data: str, layer: str | None) -> None:
    """Measure every layer with an empty cache, then with what that left."""
    if layer is not None:
        click.echo(first_call(layer, data))
        return
    table = Table(f"First call on {data}", ("layer", "empty cache (s)", "from the cache (s)"))
    for name in LAYERS:
        with tempfile.TemporaryDirectory() as cache:
            command = [sys.executable, "-m", "benchmarks", "compile_time", "--data", data, "--layer", name]
            environment = {**os.environ, "DACERGNN_CACHE_DIR": cache}
            runs = [
                subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
                for _ in range(2)
            ]
        table.add_row(name, *(f"{float(run.splitlines()[-1]):.3f}" for run in runs))
    click.echo(table)

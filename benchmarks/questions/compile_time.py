"""Measures the seconds from a layer to its loaded library, with an empty cache and with a plan and build in the cache.

Each figure is the first forward and backward call of a layer in its own process, less the second call. With an empty
cache, it includes passes, code generator and compiler. It always includes the encodings of the graph.

Run: python -m benchmarks compile_time [--data aifb]
"""

from __future__ import annotations

import os
import tempfile
import time
from unittest.mock import patch

import click

from benchmarks.options import question
from dacergnn.bench.process import ask
from dacergnn.json_lines import Row
from dacergnn.tables import Table

LAYERS = ("rgcn", "rgat", "hgt")


def first_call(layer: str, data: str) -> Row:
    """Returns the seconds that the first call takes more than the second."""
    import torch

    from dacergnn import datasets
    from dacergnn.cli.named_layers import native_layer

    graph = datasets.load(data).graph
    module = native_layer(layer, graph, 64, 1)
    x = torch.randn(graph.size("NS"), 64, requires_grad=True)
    seconds: list[float] = []
    for _ in range(2):
        started = time.perf_counter()
        module(x, graph).sum().backward()
        seconds.append(time.perf_counter() - started)
    return {"seconds": seconds[0] - seconds[1]}


@question(layers=())
def main(data: str = "aifb", layers: tuple[str, ...] = LAYERS, threads: int = 2) -> None:
    """Measure every layer with an empty cache, then with what that left."""
    table = Table(f"First call on {data}", ("layer", "empty cache (s)", "from the cache (s)"))
    function = f"{__name__}.{first_call.__name__}"
    for name in layers:
        with tempfile.TemporaryDirectory() as cache, patch.dict(os.environ, {"DACERGNN_CACHE_DIR": cache}):
            runs = [ask(function, name, data, limit_s=600, threads=threads, limit_bytes=64 << 30) for _ in range(2)]
        table.add_row(name.upper(), *(f"{run['seconds']:.3f}" if "seconds" in run else run["error"] for run in runs))
    click.echo(table)

"""Runs the suite, each layer in its own process, and collects the results of all."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from statistics import geometric_mean
from typing import Any

from dacergnn.bench.batches.settings import BLOCKS, BatchSettings
from dacergnn.bench.environment import environment
from dacergnn.bench.peers import library_module
from dacergnn.bench.process import ask

WORKER = "dacergnn.bench.batches.worker"
LIMIT_S = 600.0
"""Seconds for one number of seeds of a layer, including the builds of programs."""

Row = dict[str, Any]


def run(
    settings: BatchSettings,
    *,
    progress: Callable[[str], None] | None = None,
    on_layer: Callable[[list[Row]], None] | None = None,
) -> dict[str, Any]:
    """Measures every layer and returns a document of rows, geometric means, settings and environment.

    Args:
        progress: Called with a line that says what is being done.
        on_layer: Called with the rows of every layer as soon as they are there. A layer that failed has one row, with
            the reason as "error".

    Raises:
        BenchmarkError: A library that is needed is not installed.
    """
    for library in {"dgl" if layer in BLOCKS else "pyg" for layer in settings.layers}:
        library_module(library)
    rows: list[Row] = []
    for layer in settings.layers:
        if progress is not None:
            progress(f"{layer} on {settings.data}")
        answer = ask(WORKER, settings.request(layer), LIMIT_S * len(settings.seeds))
        own: list[Row] = [_row(layer, settings, row) for row in answer.get("rows", [answer])]
        rows += own
        if on_layer is not None:
            on_layer(own)
    return {
        "rows": rows,
        "geomean": geometric_means(rows),
        "settings": asdict(settings),
        "environment": dict(environment()),
    }


def _row(layer: str, settings: BatchSettings, measured: Row) -> Row:
    row: Row = {"layer": layer, "data": settings.data, "fanouts": list(settings.fanouts), **measured}
    if "error" in row:
        return row
    ours = row["ours"]
    for kind in ("wall", "processor"):
        row[f"ratio_{kind}"] = row["eager"][f"step_{kind}_ms"] / ours[f"step_{kind}_ms"]
        row[f"encode_share_{kind}"] = ours[f"encode_{kind}_ms"] / ours[f"step_{kind}_ms"]
    if "compiled" in row:
        row["ratio_compiled"] = row["compiled"]["step_wall_ms"] / ours["step_wall_ms"]
    return row


def geometric_means(rows: list[Row]) -> dict[str, float]:
    """Returns the geometric mean of each ratio over the rows that have it."""
    means: dict[str, float] = {}
    for name in ("ratio_wall", "ratio_processor", "ratio_compiled"):
        values = [row[name] for row in rows if name in row and math.isfinite(row[name])]
        if values:
            means[name] = geometric_mean(values)
    return means

"""Runs the suite, each layer in its own process, and collects the results of all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from benchmarks.batches.settings import BLOCKS, BatchSettings
from benchmarks.relational.peers import library_module
from dacergnn.bench.environment import load
from dacergnn.bench.process import ask
from dacergnn.bench.scatter import Ratio, Steady

WORKER = "benchmarks.batches.worker.measured"
LIMIT_BYTES = 16 << 30
LIMIT_S = 600.0
"""Seconds for one number of seeds of a layer, including the builds of programs."""

RATIOS = {
    "ratio_wall": ("eager", "step_wall_ms"),
    "ratio_processor": ("eager", "step_processor_ms"),
    "ratio_compiled": ("compiled", "step_wall_ms"),
}
"""Ratio -> the candidate whose time is divided by ours, and the field that holds the time."""
Row = dict[str, Any]


def run(
    settings: BatchSettings,
    *,
    progress: Callable[[str], None] | None = None,
    on_layer: Callable[[list[Row]], None] | None = None,
) -> dict[str, Any]:
    """Measures every layer and returns a document of rows, geometric means and settings.

    Args:
        progress: Called with a line that says what is being done.
        on_layer: Called with the rows of every layer as soon as they are there. A layer that failed has one row, with
            the reason as "error".

    Raises:
        DacergnnError: A library that is needed is not installed.
    """
    for library in {"dgl" if layer in BLOCKS else "pyg" for layer in settings.layers}:
        library_module(library)
    rows: list[Row] = []
    for layer in settings.layers:
        if progress is not None:
            progress(f"{layer} on {settings.data}")
        before = load()
        limit_s = LIMIT_S * len(settings.seeds)
        answer = ask(WORKER, layer, settings, limit_s=limit_s, threads=settings.threads, limit_bytes=LIMIT_BYTES)
        loads = {"load_before": before, "load_after": load()}
        own: list[Row] = [{**_row(layer, settings, row), **loads} for row in answer.get("rows", [answer])]
        rows += own
        if on_layer is not None:
            on_layer(own)
    return {
        "rows": rows,
        "geomean": geometric_means(rows),
        "left_out": left_out(rows),
        "settings": asdict(settings),
    }


def _row(layer: str, settings: BatchSettings, measured: Row) -> Row:
    row: Row = {"layer": layer, "data": settings.data, "fanouts": list(settings.fanouts), **measured}
    if "error" in row:
        return row
    ours = row["ours"]
    for kind in ("wall", "processor"):
        row[f"encode_share_{kind}"] = ours[f"encode_{kind}_ms"] / ours[f"step_{kind}_ms"]
    found = {name: ratio_of(row, name) for name in RATIOS}
    return row | {name: ratio.value for name, ratio in found.items() if ratio is not None}


def ratio_of(row: Row, name: str) -> Ratio | None:
    """Returns a ratio of `RATIOS`; None if a row lacks it."""
    candidate, field = RATIOS[name]
    return Ratio.of(row.get(candidate, {}), row.get("ours", {}), field)


def geometric_means(rows: list[Row]) -> dict[str, float]:
    """Returns the geometric mean of each ratio over the rows that have it, but for those that scatter."""
    return {name: steady.mean for name, steady in _steady(rows).items() if steady.mean is not None}


def left_out(rows: list[Row]) -> dict[str, int]:
    """Returns how many rows the mean of each ratio leaves out, where it leaves out some."""
    return {name: steady.left_out for name, steady in _steady(rows).items() if steady.left_out}


def _steady(rows: list[Row]) -> dict[str, Steady]:
    return {name: Steady.of(ratio_of(row, name) for row in rows) for name in RATIOS}

"""Runs the suite, and collects the results of all layers."""

from __future__ import annotations

from dataclasses import asdict
from itertools import product
from typing import Any

from benchmarks.batches.settings import BatchSettings
from benchmarks.networks.loading import BLOCKS
from benchmarks.relational.peers import library_module
from benchmarks.suite import Tell, run_cases
from dacergnn.bench.runner import Limits, measure
from dacergnn.bench.scatter import Ratio, Steady
from dacergnn.json_lines import Row

RATIOS = {
    "ratio_wall": ("eager", "step_wall_ms"),
    "ratio_processor": ("eager", "step_processor_ms"),
    "ratio_compiled": ("compiled", "step_wall_ms"),
}
"""Ratio -> the candidate whose time is divided by ours, and the field that holds the time."""


def run(settings: BatchSettings, **options: Any) -> list[Row]:
    """Measures every layer with every number of seeds, and returns a row for each, with the reason if it failed.

    Args:
        options: Those of `run_cases`.

    Raises:
        DacergnnError: A library that is needed is not installed.
    """
    for library in {"dgl" if layer in BLOCKS else "pyg" for layer in settings.layers}:
        library_module(library)
    from benchmarks.batches.experiment import OnBatches
    from benchmarks.networks.network import COMPILED, ORIGINAL, OURS

    names = {"eager": ORIGINAL, "ours": OURS} | ({"compiled": COMPILED} if settings.compiled else {})
    limits = Limits(("train",), settings.threads, settings.steps, limit_bytes=16 << 30)

    def measured(case: OnBatches, tell: Tell) -> list[Row]:
        about = {"layer": case.network, "data": case.data, "fanouts": list(case.fanouts), "seeds": case.seeds}
        found = measure(case, [*names.values()], limits, progress=tell)
        return [about | _row({key: found[name] for key, name in names.items()})]

    pairs = product(settings.layers, settings.seeds)
    cases = [
        OnBatches(layer, data=settings.data, seeds=seeds, fanouts=settings.fanouts) for layer, seeds in pairs
    ]  # fmt: skip
    return run_cases(cases, measured, settings=asdict(settings), **options)


def _row(found: dict[str, Row]) -> Row:
    failed = [f"{name}: {row['status']} {row['note']}" for name, row in found.items() if row["status"] != "ok"]
    if failed:
        return {"error": "; ".join(failed)}
    ours = found["ours"]
    row: Row = {name: ours[name] for name in ("edges", "sample_wall_ms", "sample_processor_ms")} | found
    for kind in ("wall", "processor"):
        row[f"encode_share_{kind}"] = ours[f"encode_{kind}_ms"] / ours[f"step_{kind}_ms"]
    ratios = {name: ratio_of(row, name) for name in RATIOS}
    return row | {name: ratio.value for name, ratio in ratios.items() if ratio is not None}


def ratio_of(row: Row, name: str) -> Ratio | None:
    """Returns a ratio of `RATIOS`; None if a row lacks it."""
    candidate, field = RATIOS[name]
    return Ratio.of(row.get(candidate, {}), row.get("ours", {}), field)


def steady_ratios(rows: list[Row]) -> dict[str, Steady]:
    """Returns each ratio of the rows that have it, sorted by whether it scatters."""
    found = {name: [ratio_of(row, name) for row in rows] for name in RATIOS}
    return {name: Steady.of(ratios) for name, ratios in found.items() if any(ratios)}

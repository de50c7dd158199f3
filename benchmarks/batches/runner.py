"""Runs the suite, and compares the candidates of each layer."""

from __future__ import annotations

from dataclasses import asdict
from itertools import product
from typing import Any

from benchmarks.batches.settings import BatchSettings
from benchmarks.networks.loading import BLOCKS
from benchmarks.relational.peers import library_module
from benchmarks.rows import OURS, Group, grouped
from dacergnn.bench.runner import Limits
from dacergnn.bench.scatter import Ratio, Steady
from dacergnn.json_lines import Row

RATIOS = {
    "ratio wall": ("PyG", "step_wall_ms"),
    "ratio processor": ("PyG", "step_processor_ms"),
    "ratio compiled": ("compiled", "step_wall_ms"),
}
"""Ratio -> the candidate whose time is divided by ours, and the field that holds the time."""


def run(settings: BatchSettings, **options: Any) -> list[Row]:
    """Measures every layer with every number of seeds, and returns a row for each candidate.

    Args:
        options: Those of `run_cases`.

    Raises:
        DacergnnError: A library that is needed is not installed.
    """
    for library in {"dgl" if layer in BLOCKS else "pyg" for layer in settings.layers}:
        library_module(library)
    from benchmarks.batches.experiment import OnBatches
    from benchmarks.networks.network import COMPILED, ORIGINAL
    from benchmarks.networks.training import run_trainings

    names = [ORIGINAL, OURS, *([COMPILED] if settings.compiled else [])]
    limits = Limits(("train",), settings.threads, settings.steps, limit_bytes=16 << 30)
    cases = [
        OnBatches(layer, data=settings.data, seeds=seeds, fanouts=settings.fanouts)
        for layer, seeds in product(settings.layers, settings.seeds)
    ]
    return run_trainings(cases, lambda _: names, limits, settings=asdict(settings), **options)


def ratio_of(case: Group, name: str) -> Ratio | None:
    """Returns a ratio of `RATIOS`; None if a case lacks it."""
    peer, field = RATIOS[name]
    return case.speedup(case.named(OURS), field, peer)


def steady_ratios(rows: list[Row]) -> dict[str, Steady]:
    """Returns each ratio of the cases that have it, sorted by whether it scatters."""
    found = {name: [ratio_of(case, name) for case in grouped(rows)] for name in RATIOS}
    return {name: Steady.of(ratios) for name, ratios in found.items() if any(ratios)}

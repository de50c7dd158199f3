"""Runs all cases of the suite."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import wait
from dataclasses import asdict, replace
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import click
import torch

from benchmarks.named import COMPILED, REPLAYED, Named
from benchmarks.relational import peers
from benchmarks.relational.bound import bound
from benchmarks.relational.builds import Case, built_ahead
from benchmarks.relational.candidate import Candidate
from benchmarks.relational.experiment import LAYER, Layers, loaded, wanted
from benchmarks.relational.record import fields_of, is_complete, row_of
from benchmarks.relational.settings import BenchSettings
from benchmarks.suite import Tell, known, run_cases
from dacergnn.bench.measure import HOPELESS
from dacergnn.bench.rates import measure_rates, precision
from dacergnn.bench.runner import Limits, measure
from dacergnn.json_lines import Row


def cases_of(*all_settings: BenchSettings) -> list[Case]:
    """Returns the cases of settings: each model on each graph in each mode."""
    return [
        (settings, Layers(model, data, mode, settings.hidden, settings.seed, settings.device, settings.rates,
                          settings.memory_limit, settings.precision))
        for settings in all_settings
        for data, model, mode in product(settings.data, settings.models, settings.modes)
    ]  # fmt: skip


def run(
    *all_settings: BenchSettings, path: Path | None = None, deadline: float = math.inf, ahead: bool = False,
    **options: Any,
) -> list[Row]:  # fmt: skip
    """Measures every case of settings that differ in the number of features, and returns their rows.

    Args:
        path: Rows are appended to this file; complete ones in it are not measured again.
        deadline: A value of time.monotonic() after which nothing is measured.
        ahead: Whether kernels of later cases are built meanwhile.
        options: Those of `run_cases`.

    Raises:
        DacergnnError: Settings cannot be met, or a data set cannot be loaded.
    """
    first = all_settings[0]
    os.environ.setdefault("OMP_NUM_THREADS", str(first.threads))  # for thread pools not yet started
    absent = _absent(first)
    cases = [
        (replace(settings, against=tuple(name for name in settings.against if name not in absent)), case)
        for settings, case in cases_of(*all_settings)
    ]
    threads = torch.get_num_threads()
    torch.set_num_threads(first.threads)  # the machine is measured in this process
    complete = partial(is_complete, first)

    def fields(case: Case) -> list[Row]:
        return [fields_of(*case, candidate.named) for candidate in wanted(case[1].model, case[0])]

    done = known(cases, fields, path, complete) if ahead else ()
    left = [case for case, rows in zip(cases, done, strict=False) if rows is None]
    try:
        with built_ahead(left) as builds:

            def measured(case: Case, tell: Tell) -> list[Row]:
                if case[1] in builds:
                    wait([builds[case[1]]], None if math.isinf(deadline) else max(deadline - time.monotonic(), 0))
                return _rows(*case, deadline, tell)

            options |= {"absent": absent} if absent else {}
            return run_cases(
                cases, measured, path=path, fields=fields, complete=complete, deadline=deadline, **options
            )  # fmt: skip
    finally:
        torch.set_num_threads(threads)


def _absent(settings: BenchSettings) -> dict[str, str]:
    """Returns why peers cannot run on a device here; on the processor, where all of them can, it is an error."""
    if settings.device == "cpu":
        for name in {*settings.against} & peers.LIBRARIES.keys():
            peers.library_module(name)
        return {}
    reasons = {name: peers.absence(name, torch.device(settings.device)) for name in settings.against}
    absent = {name: reason for name, reason in reasons.items() if reason}
    for name, reason in absent.items():
        click.echo(f"{name} is left out: {reason}", err=True)
    return absent


def _rows(settings: BenchSettings, case: Layers, deadline: float, tell: Tell) -> list[Row]:
    tell(f"{case}: measuring the machine")
    sizes = _sizes(case.data, case.hidden, case.seed, case.device)
    with precision(case.precision):
        rates = measure_rates(sizes["N"], case.hidden, case.device, case.dtype)
    if case.device == "cuda":
        torch.cuda.empty_cache()  # leaves the memory to the processes that measure
    rows = measured(case, wanted(case.model, settings), settings, deadline, tell)
    least = bound(case.model, case.mode, sizes, case.hidden, rates, case.dtype.itemsize)
    facts = {f"bound_{name}": value for name, value in asdict(least).items()}
    facts |= {f"machine_{name}": value for name, value in asdict(rates).items()} | {"edges": sizes["E"]}
    facts |= {"tried_compiled": settings.compiled, "tried_memory": settings.memory}
    return [fields_of(settings, case, name) | facts | row for name, row in rows.items()]


@lru_cache(maxsize=1)
def _sizes(data: str, hidden: int, seed: int, device: str) -> dict[str, int]:
    """Returns the sizes of a graph, whose memory is left to the processes that measure."""
    return loaded(data, hidden, seed, device).sizes()


def measured(
    case: Layers, candidates: list[Candidate], settings: BenchSettings, deadline: float, tell: Tell
) -> dict[Named, Row]:
    """Returns the rows of candidates, and of the variants of those that are promising."""
    names = {candidate.named: candidate for candidate in candidates}
    limits = Limits(
        (case.mode, LAYER), settings.threads, settings.repeat, settings.budget_s / max(len(names), 1),
        settings.trial_limit_s, device=case.device, deadline=deadline,
    )  # fmt: skip
    # On a device, the peaks of its allocator are known of each candidate, whatever else holds memory.
    weighed = [name for name in names if name.library not in peers.PLAIN and settings.memory and case.device == "cpu"]
    together = partial(measure, case, limits=limits, progress=tell)
    found = together([*names], weighed=weighed)
    for variants in _variants(case, found, settings):
        found |= _beside(variants, found, f"{case.mode}_", together)
    return {name: row_of(name, names[name.base].function, row, case.mode) for name, row in found.items()}


def _variants(case: Layers, found: Mapping[Named, Row], settings: BenchSettings) -> Iterator[dict[Named, Named]]:
    """Yields variants that are measured in one process, each by what it is a variant of.

    Those of library layers through torch.compile have a process each, since some take minutes to fail. Only layers
    that are not far slower than the fastest are tried. Quick steps on a device are replayed, but not those of
    libraries, which wait for the device.
    """
    timed = {name: row[f"{case.mode}_ms"] for name, row in found.items() if f"{case.mode}_ms" in row}
    eager = {name: ms for name, ms in timed.items() if name.library in peers.LIBRARIES}
    best = min(eager.values(), default=0.0)
    if settings.compiled:
        yield from ({name: name.variant(COMPILED)} for name, ms in eager.items() if ms <= HOPELESS * best)
    quick = [name for name, ms in timed.items() if ms < settings.replay_below_ms and name not in eager]
    if case.device == "cuda" and quick:
        yield {name: name.variant(REPLAYED) for name in quick}


def _beside(
    variants: Mapping[Named, Named], found: Mapping[Named, Row], prefix: str,
    together: Callable[[list[Named]], dict[Named, Row]],
) -> dict[Named, Row]:  # fmt: skip
    """Returns the rows of variants, which take turns with their originals in a process of their own.

    Their times are scaled to those that their originals had beside all others.
    """
    apart, time = together([*variants, *variants.values()]), f"{prefix}ms"
    rows: dict[Named, Row] = {}
    for original, variant in variants.items():
        row = rows[variant] = apart[variant]
        if time in row and time in apart[original]:
            scale = found[original][time] / apart[original][time]
            scaled = {key: scale * value for key, value in row.items() if key.endswith("_ms")}
            rows[variant] = row | scaled | {"note": "measured apart"}
    return rows

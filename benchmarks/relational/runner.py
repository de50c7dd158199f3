"""Runs all cases of a benchmark on the processor."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from itertools import product
from typing import Any

import torch

from benchmarks.named import Named
from benchmarks.relational import peers
from benchmarks.relational.bound import bound
from benchmarks.relational.candidate import Candidate
from benchmarks.relational.experiment import LAYER, Layers, wanted
from benchmarks.relational.problem import load_problem
from benchmarks.relational.record import Line, about, case_line
from benchmarks.relational.settings import BenchSettings
from benchmarks.suite import Tell, run_cases
from dacergnn.bench.measure import HOPELESS
from dacergnn.bench.rates import measure_rates
from dacergnn.bench.runner import Limits, measure
from dacergnn.json_lines import Row


def run(*all_settings: BenchSettings, **options: Any) -> list[Line]:
    """Measures every case of settings that differ in the number of features, and returns their lines.

    Args:
        options: Those of `run_cases`.

    Raises:
        DacergnnError: Settings cannot be met, or a data set cannot be loaded.
    """
    first = all_settings[0]
    os.environ.setdefault("OMP_NUM_THREADS", str(first.threads))  # for thread pools not yet started
    for name in first.against:
        if name in peers.LIBRARIES:
            peers.library_module(name)
    cases = [
        (settings, Layers(model, data, mode, settings.hidden, settings.seed, rates=settings.rates,
                          memory_limit=settings.memory_limit))
        for settings in all_settings
        for data, model, mode in product(settings.data, settings.models, settings.modes)
    ]  # fmt: skip
    threads = torch.get_num_threads()
    torch.set_num_threads(first.threads)  # the machine is measured in this process
    try:
        return run_cases(cases, lambda case, tell: [_line(*case, tell)], **options)
    finally:
        torch.set_num_threads(threads)


def _line(settings: BenchSettings, case: Layers, tell: Tell) -> Line:
    tell(f"{case}: measuring the machine")
    sizes = _sizes(case.data, case.hidden, case.seed)
    rates = measure_rates(sizes["N"], case.hidden)
    rows = measured(case, wanted(case.model, settings), settings, tell)
    return case_line(
        case.model, case.data, case.mode, rows, bound(case.model, case.mode, sizes, case.hidden, rates),
        precision="float32", hidden=case.hidden, against=settings.against, edges=sizes["E"], sizes=sizes,
        rates=asdict(rates),
    )  # fmt: skip


@lru_cache(maxsize=1)
def _sizes(data: str, hidden: int, seed: int) -> dict[str, int]:
    """Returns the sizes of a graph, whose memory is left to the processes that measure."""
    return load_problem(data, hidden, seed).sizes()


def measured(case: Layers, candidates: list[Candidate], settings: BenchSettings, tell: Tell) -> list[Row]:
    """Returns the rows of candidates, and of those through torch.compile of library layers that are promising."""
    names = {candidate.named: candidate for candidate in candidates}
    limits = Limits(
        (case.mode, LAYER), settings.threads, settings.repeat, settings.budget_s / max(len(names), 1),
        settings.trial_limit_s,
    )  # fmt: skip
    weighed = [name for name in names if name.library != "torch"] if settings.memory else []
    found = measure(case, [*names], limits, weighed=weighed, progress=tell)
    rows = [_row(candidate, found[name], case.mode) for name, candidate in names.items()]
    if settings.compiled:
        rows += [
            _row(peers.through_compiler(names[name]), row, case.mode)
            for name, row in _compiled(case, found, limits, tell).items()
        ]
    return rows


def _compiled(case: Layers, found: Mapping[Named, Row], limits: Limits, tell: Tell) -> dict[Named, Row]:
    """Returns the rows of library layers through torch.compile, by the layers that are not compiled.

    Each takes turns with its layer in a process of both, since some take minutes to fail; its times are scaled to
    those that the layer had beside all others. Only layers that are not far slower than the fastest are tried.
    """
    time = f"{case.mode}_ms"
    timed = {name: row for name, row in found.items() if name.library in peers.LIBRARIES and time in row}
    best = min((row[time] for row in timed.values()), default=0.0)
    rows: dict[Named, Row] = {}
    for name, row in timed.items():
        if row[time] <= HOPELESS * best:
            compiled = Named(name.library, name.name + peers.COMPILED)
            apart = measure(case, [name, compiled], limits, progress=tell)
            rows[name] = apart[compiled]
            if time in apart[compiled] and time in apart[name]:
                scale = row[time] / apart[name][time]
                times = {key: scale * value for key, value in apart[compiled].items() if key.endswith("_ms")}
                rows[name] = apart[compiled] | times | {"note": "measured apart"}
    return rows


def _row(candidate: Candidate, found: Row, mode: str) -> Row:
    """Returns what was found of a candidate, with times under the names that all modes have."""
    same = {"same_as": found["same_as"].name} if "same_as" in found else {}
    return about(candidate) | {key.removeprefix(f"{mode}_"): value for key, value in found.items()} | same

"""Runs all cases of a benchmark on the processor."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
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
from dacergnn.bench.environment import load
from dacergnn.bench.measure import HOPELESS
from dacergnn.bench.rates import measure_rates
from dacergnn.bench.runner import Limits, measure
from dacergnn.json_lines import Row

Progress = Callable[[str], None]


def run(
    settings: BenchSettings | None = None,
    *,
    progress: Progress = lambda line: None,
    on_case: Callable[[Line], None] = lambda line: None,
    **options: Any,
) -> list[Line]:
    """Measures every case and returns their lines.

    Args:
        settings: What to measure; or give the fields of BenchSettings as keyword arguments.
        progress: Called with a line that says what is being done.
        on_case: Called with the line of every case as soon as it is done.

    Raises DacergnnError for settings that cannot be met, DacergnnError where a data set cannot be loaded.
    """
    settings = settings or BenchSettings(**options)
    os.environ.setdefault("OMP_NUM_THREADS", str(settings.threads))  # for thread pools not yet started
    for name in settings.against:
        if name in peers.LIBRARIES:
            peers.library_module(name)
    threads = torch.get_num_threads()
    torch.set_num_threads(settings.threads)  # the machine is measured in this process
    try:
        return _run(settings, progress, on_case)
    finally:
        torch.set_num_threads(threads)


def _run(settings: BenchSettings, tell: Progress, on_case: Callable[[Line], None]) -> list[Line]:
    lines: list[Line] = []
    for data in settings.data:
        tell(f"{data}: loading")
        problem = load_problem(data, settings.hidden, settings.seed)
        sizes, edges, nodes = problem.sizes(), problem.num_edges, problem.num_nodes
        del problem  # its memory is for the processes that measure
        for model in settings.models:
            for mode in settings.modes:
                case = Layers(
                    model, data, mode, settings.hidden, settings.seed, rates=settings.rates,
                    memory_limit=settings.memory_limit,
                )  # fmt: skip
                tell(f"{case}: measuring the machine")
                rates, before = measure_rates(nodes, settings.hidden), load()
                rows = measured(case, wanted(model, settings), settings, tell)
                line = case_line(
                    model, data, mode, rows, bound(model, mode, sizes, settings.hidden, rates),
                    precision="float32", hidden=settings.hidden, against=settings.against, edges=edges,
                    sizes=sizes, rates=asdict(rates), load_before=before, load_after=load(),
                )  # fmt: skip
                lines.append(line)
                on_case(line)
    return lines


def measured(case: Layers, candidates: list[Candidate], settings: BenchSettings, tell: Progress) -> list[Row]:
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


def _compiled(case: Layers, found: Mapping[Named, Row], limits: Limits, tell: Progress) -> dict[Named, Row]:
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

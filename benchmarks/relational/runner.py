"""Runs all cases of a benchmark."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch

from benchmarks.relational.bound import bound
from benchmarks.relational.case import Case
from benchmarks.relational.peers import LIBRARIES, library_module
from benchmarks.relational.problem import load_problem
from benchmarks.relational.report import Report, Row, make_rows
from benchmarks.relational.settings import BenchSettings
from dacergnn.bench.environment import load
from dacergnn.bench.rates import measure_rates


def run(
    settings: BenchSettings | None = None,
    *,
    progress: Callable[[str], None] | None = None,
    on_case: Callable[[list[Row]], None] | None = None,
    **options: Any,
) -> Report:
    """Measures every case and returns the report.

    Args:
        settings: What to measure; or give the fields of BenchSettings as keyword arguments.
        progress: Called with a line that says what is being done.
        on_case: Called with the rows of every case as soon as it is done.

    Raises DacergnnError for settings that cannot be met, DacergnnError where a data set cannot be loaded.
    """
    settings = settings or BenchSettings(**options)
    os.environ.setdefault("OMP_NUM_THREADS", str(settings.threads))  # for thread pools not yet started
    for name in settings.against:
        if name in LIBRARIES:
            library_module(name)
    tell = progress or (lambda line: None)
    threads = torch.get_num_threads()
    torch.set_num_threads(settings.threads)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the libraries warn about their own internals
            return _run(settings, tell, on_case or (lambda rows: None))
    finally:
        torch.set_num_threads(threads)


def _run(settings: BenchSettings, tell: Callable[[str], None], on_case: Callable[[list[Row]], None]) -> Report:
    report = Report(settings=asdict(settings))
    for data in settings.data:
        tell(f"{data}: loading")
        problem = load_problem(data, settings.hidden, settings.seed).to(settings.device)
        sizes = problem.sizes()
        for model in settings.models:
            for mode in settings.modes:
                head = f"{model} on {data}, {mode}"
                tell(f"{head}: measuring the machine")
                rates = measure_rates(problem.num_nodes, settings.hidden, settings.device)
                report.rates[data] = asdict(rates)
                case = Case(model, mode, problem, settings, lambda line, head=head: tell(f"{head}: {line}"))
                before = load()
                entries = case.measure()
                rows = make_rows(model, data, mode, entries, bound(model, mode, sizes, settings.hidden, rates))
                more = {"hidden": settings.hidden, "load_before": before, "load_after": load()}
                rows = [{**row, **more} for row in rows]
                report.rows += rows
                on_case(rows)
    return report

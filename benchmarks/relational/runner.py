"""Runs all cases of a benchmark on the processor."""

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
from benchmarks.relational.record import Line, case_line
from benchmarks.relational.settings import BenchSettings
from dacergnn.bench.environment import load
from dacergnn.bench.rates import measure_rates


def run(
    settings: BenchSettings | None = None,
    *,
    progress: Callable[[str], None] | None = None,
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
        if name in LIBRARIES:
            library_module(name)
    tell = progress or (lambda line: None)
    threads = torch.get_num_threads()
    torch.set_num_threads(settings.threads)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the libraries warn about their own internals
            return _run(settings, tell, on_case)
    finally:
        torch.set_num_threads(threads)


def _run(settings: BenchSettings, tell: Callable[[str], None], on_case: Callable[[Line], None]) -> list[Line]:
    lines: list[Line] = []
    for data in settings.data:
        tell(f"{data}: loading")
        problem = load_problem(data, settings.hidden, settings.seed)
        sizes = problem.sizes()
        for model in settings.models:
            for mode in settings.modes:
                head = f"{model} on {data}, {mode}"
                tell(f"{head}: measuring the machine")
                rates = measure_rates(problem.num_nodes, settings.hidden)
                case = Case(model, mode, problem, settings, lambda line, head=head: tell(f"{head}: {line}"))
                before = load()
                candidates = case.measure()
                line = case_line(
                    model, data, mode, candidates, bound(model, mode, sizes, settings.hidden, rates),
                    precision="float32", hidden=settings.hidden, against=settings.against, edges=problem.num_edges,
                    sizes=sizes, rates=asdict(rates), load_before=before, load_after=load(),
                )  # fmt: skip
                lines.append(line)
                on_case(line)
    return lines

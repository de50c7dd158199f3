"""Builds the kernels of cases for a device, each in a process of its own; none of these needs the device."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress

import click

from benchmarks.relational.candidate import make_step, unwrapped
from benchmarks.relational.experiment import Layers, loaded
from benchmarks.relational.ours import candidate
from benchmarks.relational.parameters import make_parameters
from benchmarks.relational.settings import BenchSettings
from dacergnn.bench.process import ask, end_running
from dacergnn.errors import ArrayError
from dacergnn.json_lines import Row

Case = tuple[BenchSettings, Layers]


@contextmanager
def built_ahead(cases: Sequence[Case]) -> Generator[dict[Layers, Future[Row]]]:
    """Builds the kernels of cases in their order, several at a time; leaving the context ends those that still run."""
    pool = ThreadPoolExecutor(max((os.cpu_count() or 2) // 2, 1))
    function = f"{__name__}.{build.__name__}"
    try:
        yield {case: pool.submit(ask, function, settings, case, limit_s=math.inf, threads=1, device=case.device,
                                 limit_bytes=settings.memory_limit) for settings, case in cases}  # fmt: skip
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        end_running()


def build_all(cases: Sequence[Case]) -> bool:
    """Builds the kernels of cases, and tells whether all are built."""
    built = True
    with built_ahead(cases) as jobs:
        for case, job in jobs.items():
            answer = job.result()
            built &= "error" not in answer
            click.echo(f"{case}: {answer.get('error') or 'built in {:.0f} s'.format(answer['seconds'])}")
    return built


def build(settings: BenchSettings, case: Layers) -> Row:
    """Compiles our layers for a graph that stays on the processor, where their kernels refuse to run."""
    os.nice(5)  # others are measured meanwhile
    started = time.monotonic()
    problem = loaded(case.data, case.hidden, case.seed, case.device).to("cpu", case.dtype)
    shared = make_parameters(case.model, problem, case.seed)
    for level in settings.levels:
        with case.during(), suppress(ArrayError):
            made = candidate(case.model, level, settings.config(level)).build(problem, shared, unwrapped)
            make_step(made, problem, case.mode == "train")()
    return {"seconds": time.monotonic() - started}

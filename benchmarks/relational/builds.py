"""Builds the kernels of cases for a device, each in a process of its own; none of these needs the device."""

from __future__ import annotations

import sys
import time
from contextlib import suppress

import click

from benchmarks.relational.ahead import Background
from benchmarks.relational.candidate import make_step, unwrapped
from benchmarks.relational.experiment import Layers, loaded
from benchmarks.relational.ours import candidate
from benchmarks.relational.parameters import make_parameters
from benchmarks.relational.settings import BenchSettings
from dacergnn.errors import ArrayError


def command_of(settings: BenchSettings, case: Layers) -> list[str]:
    """Returns the command that builds the kernels of a case: this call with other options."""
    options = {"--hidden": settings.hidden, "--data": case.data, "--models": case.model, "--mode": case.mode}
    chosen = [text for pair in options.items() for text in map(str, pair)]
    return [sys.executable, "-m", "benchmarks", *sys.argv[1:], "--build", *chosen]


def build_all(cases: list[tuple[BenchSettings, Layers]]) -> bool:
    """Builds the kernels of cases, several at a time; a single one in this process. Tells whether all are built."""
    if len(cases) == 1:
        build(*cases[0])
        return True
    with Background({case: command_of(settings, case) for settings, case in cases}) as builds:
        failed = [case for _, case in cases if not builds.wait(case)]
    return not failed


def build(settings: BenchSettings, case: Layers) -> None:
    """Compiles our layers for a graph that stays on the processor, where their kernels refuse to run."""
    problem = loaded(case.data, case.hidden, case.seed, case.device).to("cpu", case.dtype)
    shared = make_parameters(case.model, problem, case.seed)
    for level in settings.levels:
        started = time.monotonic()
        with case.during(), suppress(ArrayError):
            made = candidate(case.model, level, settings.config(level)).build(problem, shared, unwrapped)
            make_step(made, problem, case.mode == "train")()
        click.echo(f"{case}, {level}: built in {time.monotonic() - started:.0f} s")

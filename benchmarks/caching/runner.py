"""Runs the suite: measures what the file lacks, task by task, each in its own processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.caching.experiment import TaskExperiment
from benchmarks.caching.records import settings_of
from benchmarks.caching.settings import CachingSettings
from benchmarks.caching.task import Task
from benchmarks.named import Named
from benchmarks.relational.peers import library_module
from benchmarks.suite import found_by, run_experiments
from dacergnn.json_lines import Row

Case = tuple[Task, tuple[Named, ...]]
"""A task, and the ways to compute it."""


def run(settings: CachingSettings, path: Path | None = None, **options: Any) -> list[Row]:
    """Measures what is left and returns the rows of all cases.

    Args:
        path: Results are appended to this file, and what is in it is not measured again.
        options: Those of `run_cases`.

    Raises DacergnnError where a library that is needed is not installed.
    """
    for library in {"pyg", *(name.partition("-")[0] for name in settings.against)}:
        library_module(library)
    limits = settings.limits
    cases = [(TaskExperiment(task, limits), settings.candidates(task)) for task in settings.tasks()]

    def weighed(row: Row) -> bool:
        return settings.memory and not row["name"].endswith("compiled")

    return run_experiments(
        cases, limits, lambda case, candidate: settings_of(case.task, candidate, limits), weighed, path=path,
        rates=None if limits.rates is None else asdict(limits.rates), **options,
    )  # fmt: skip


def divided(settings: CachingSettings, rows: list[Row]) -> tuple[list[Case], list[Case]]:
    """Returns the cases that have rows, and those that are left."""
    find: Callable[[Row], list[Row]] = found_by(rows)
    cases = [(task, settings.candidates(task)) for task in settings.tasks()]
    left = [
        (task, candidates) for task, candidates in cases
        if not all(find(settings_of(task, candidate, settings.limits)) for candidate in candidates)
    ]  # fmt: skip
    return [case for case in cases if case not in left], left

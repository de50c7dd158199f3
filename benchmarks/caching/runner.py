"""Runs the suite: measures what the file lacks, task by task, each in its own processes."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.caching.experiment import TaskExperiment
from benchmarks.caching.records import key_of, settings_of
from benchmarks.caching.settings import CachingSettings
from benchmarks.caching.task import Task
from benchmarks.named import Named
from benchmarks.relational.peers import library_module
from benchmarks.suite import Tell, results, run_cases
from dacergnn.bench import runner
from dacergnn.json_lines import Row

Case = tuple[Task, tuple[Named, ...]]
"""A task, and the ways to compute it."""


def cases_of(settings: CachingSettings) -> list[Case]:
    """Returns the cases; each is measured whole, as times compare within a process."""
    return [(task, settings.candidates(task)) for task in settings.tasks()]


def known(settings: CachingSettings, path: Path | None) -> Callable[[Case], list[Row] | None]:
    """Returns what finds the rows of a case in a file; it returns None where one of them is missing."""
    rows = {key_of(row): row for row in results(path)}

    def earlier(case: Case) -> list[Row] | None:
        task, candidates = case
        found = [rows.get(key_of(settings_of(task, candidate, settings.limits)), {}) for candidate in candidates]
        return found if all(row and _is_complete(row, settings) for row in found) else None

    return earlier


def _is_complete(row: Row, settings: CachingSettings) -> bool:
    """Tells whether a case has all results that are asked for; a failed case is complete, as it would fail again."""
    if row["status"] != "ok":
        return True
    weighed = not settings.memory or row["name"].endswith("compiled") or "peak_mb" in row
    return weighed and all(f"{mode}_ms" in row for mode in settings.limits.modes)


def run(settings: CachingSettings, path: Path | None = None, **options: Any) -> list[Row]:
    """Measures what is left and returns the rows of all cases.

    Args:
        path: Results are appended to this file, and what is in it is not measured again.
        options: Those of `run_cases`.

    Raises DacergnnError where a library that is needed is not installed.
    """
    for library in {"pyg", *(name.partition("-")[0] for name in settings.against)}:
        library_module(library)
    rates = settings.limits.rates
    return run_cases(
        cases_of(settings), lambda case, tell: measure(*case, settings, tell), path=path,
        earlier=known(settings, path), rates=None if rates is None else asdict(rates), **options,
    )  # fmt: skip


def measure(task: Task, wanted: Sequence[Named], settings: CachingSettings, progress: Tell) -> list[Row]:
    """Measures one task and returns its rows."""
    weighed = [candidate for candidate in wanted if settings.memory and not candidate.compiled]
    experiment = TaskExperiment(task, settings.limits)
    found = runner.measure(experiment, wanted, settings.limits, weighed=weighed, progress=progress)
    # The group marks rows whose times were taken in turns.
    shared = {"group": uuid.uuid4().hex[:12]}
    rows: list[Row] = []
    for candidate, row in found.items():
        same = {"same_as": row["same_as"].name} if "same_as" in row else {}
        rows.append({**settings_of(task, candidate, settings.limits), **shared, **row, **same})
    return rows

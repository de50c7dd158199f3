"""Runs the suite: measures what the file lacks, task by task, each in its own processes."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.caching.experiment import TaskExperiment
from benchmarks.caching.records import key_of, load, settings_of
from benchmarks.caching.settings import CachingSettings
from benchmarks.caching.task import Task
from benchmarks.named import Named
from benchmarks.relational.peers import library_module
from dacergnn.bench import runner
from dacergnn.bench.environment import about
from dacergnn.bench.environment import load as system_load
from dacergnn.json_lines import Row, Writer


@dataclass(frozen=True)
class Work:
    """Holds the tasks that are left to measure, and the rows of those that were measured before."""

    tasks: list[tuple[Task, tuple[Named, ...]]]
    done: list[Row]


def plan(settings: CachingSettings, path: Path | None = None) -> Work:
    """Returns the tasks that a file lacks results of; each is measured whole, as times compare within a process."""
    rows = {key_of(row): row for row in (load(path) if path is not None and path.exists() else [])}
    tasks: list[tuple[Task, tuple[Named, ...]]] = []
    done: list[Row] = []
    for task in settings.tasks():
        wanted = settings.candidates(task)
        keys = [key_of(settings_of(task, c, settings.limits)) for c in wanted]
        if all(key in rows and _is_complete(rows[key], settings) for key in keys):
            done += [rows[key] for key in keys]
        else:
            tasks.append((task, wanted))
    return Work(tasks, done)


def _is_complete(row: Row, settings: CachingSettings) -> bool:
    """Tells whether a case has all results that are asked for; a failed case is complete, as it would fail again."""
    if row["status"] != "ok":
        return True
    weighed = not settings.memory or row["name"].endswith("compiled") or "peak_mb" in row
    return weighed and all(f"{mode}_ms" in row for mode in settings.limits.modes)


def run(
    settings: CachingSettings,
    path: Path | None = None,
    *,
    progress: Callable[[str], None] | None = None,
    on_task: Callable[[list[Row]], None] | None = None,
) -> list[Row]:
    """Measures what is left and returns the rows of all cases.

    Args:
        path: Results are appended to this file, and what is in it is not measured again.
        progress: Called with a line that says what is being done.
        on_task: Called with the rows of every task as soon as they are there.

    Raises DacergnnError where a library that is needed is not installed.
    """
    for library in {"pyg", *(name.partition("-")[0] for name in settings.against)}:
        library_module(library)
    work = plan(settings, path)
    rows = list(work.done)
    writer = None if path is None else Writer(path)
    if writer is not None and work.tasks:
        rates = settings.limits.rates
        writer.write([about(rates=None if rates is None else asdict(rates))])
    for task, wanted in work.tasks:
        measured = measure(task, wanted, settings, progress or (lambda line: None))
        if writer is not None:
            writer.write(measured)
        rows += measured
        if on_task is not None:
            on_task(measured)
    return rows


def measure(
    task: Task, wanted: Sequence[Named], settings: CachingSettings, progress: Callable[[str], None]
) -> list[Row]:
    """Measures one task and returns its rows."""
    before = system_load()
    weighed = [candidate for candidate in wanted if settings.memory and not candidate.compiled]
    experiment = TaskExperiment(task, settings.limits)
    found = runner.measure(experiment, wanted, settings.limits, weighed=weighed, progress=progress)
    # The group marks rows whose times were taken in turns.
    shared = {"group": uuid.uuid4().hex[:12], "load_before": before, "load_after": system_load()}
    rows: list[Row] = []
    for candidate, row in found.items():
        same = {"same_as": row["same_as"].name} if "same_as" in row else {}
        rows.append({**settings_of(task, candidate, settings.limits), **shared, **row, **same})
    return rows

"""Runs commands in the background, in order and several at a time: kernels are built while others are measured."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress


class Background:
    """Runs named groups of commands; leaving the context ends those that still run.

    Args:
        groups: By name, the commands of each group; earlier groups start first.
        workers: Number of commands that run at a time; half of the processors by default.
    """

    def __init__(self, groups: Mapping[str, Iterable[list[str]]], workers: int | None = None) -> None:
        self._pool = ThreadPoolExecutor(workers or max(1, (os.cpu_count() or 2) // 2))
        self._lock, self._running, self._closed = threading.Lock(), set[subprocess.Popen[bytes]](), False
        self._groups = {name: [self._pool.submit(self._run, c) for c in group] for name, group in groups.items()}

    def __enter__(self) -> Background:
        return self

    def wait(self, name: str, seconds: float = math.inf) -> bool:
        """Waits for a group, so many seconds at most, and tells whether all its commands have succeeded."""
        jobs: list[Future[int]] = self._groups.get(name, [])
        _, late = wait(jobs, None if math.isinf(seconds) else seconds)
        return not late and all(job.result() == 0 for job in jobs)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closed = True
            for process in self._running:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # with the compilers that it has started
        self._pool.shutdown(cancel_futures=True)

    def _run(self, command: list[str]) -> int:
        with self._lock:
            if self._closed:
                return 1
            process = subprocess.Popen(["nice", "-n", "5", *command], start_new_session=True)
            self._running.add(process)
        code = process.wait()
        with self._lock:
            self._running.discard(process)
        return code

"""Runs commands in the background, several at a time: kernels are built while others are measured."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any


class Background:
    """Runs commands by a key each; leaving the context ends those that still run.

    Args:
        commands: The commands by key; earlier ones start first.
        workers: Number of commands that run at a time; half of the processors by default.
    """

    def __init__(self, commands: Mapping[Any, list[str]], workers: int | None = None) -> None:
        self._pool = ThreadPoolExecutor(workers or max(1, (os.cpu_count() or 2) // 2))
        self._lock, self._running, self._closed = threading.Lock(), set[subprocess.Popen[bytes]](), False
        self._jobs = {key: self._pool.submit(self._run, command) for key, command in commands.items()}

    def __enter__(self) -> Background:
        return self

    def wait(self, key: object, seconds: float = math.inf) -> bool:
        """Waits for a command, so many seconds at most, and tells whether it has succeeded; so does what is none."""
        if key not in self._jobs:
            return True
        job = self._jobs[key]
        _, late = wait([job], None if math.isinf(seconds) else max(seconds, 0))
        return not late and job.result() == 0

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

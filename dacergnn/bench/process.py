"""Calls a function in a process of its own, limited in time and memory, so that a failure ends nothing else."""

from __future__ import annotations

import math
import os
import pickle
import resource
import signal
import subprocess
import sys
from contextlib import suppress
from pkgutil import resolve_name
from typing import Any

import torch

OUT_OF_MEMORY = "out of memory"
"""Reason of a failure for want of memory."""
_START = f"from {__name__} import serve; serve()"
_RUNNING = set[subprocess.Popen[bytes]]()
"""Holds the processes that are asked something now."""


def ask(
    function: str,
    *arguments: Any,
    limit_s: float,
    threads: int,
    limit_bytes: int,
    device: str = "cpu",
) -> dict[str, Any]:
    """Returns what a function answers in a process of its own, or {"error": ...} with the reason why there is none.

    Args:
        function: Its name after that of its module, as in "package.module.function".
        arguments: What it is called with; pickled, as its answer is.
        limit_s: Seconds until it is ended; infinite for no limit.
        threads: Threads of torch and of OpenMP.
        limit_bytes: Bytes that the process may take. Where the device is not "cpu", there is no such limit, since a
            device's memory is no memory of the process.
    """
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "DGLBACKEND": "pytorch",
        "PYTHONWARNINGS": "ignore",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    process = subprocess.Popen(
        [sys.executable, "-c", _START],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )
    _RUNNING.add(process)
    limits = threads, limit_bytes if device == "cpu" else None
    request = pickle.dumps(limits) + pickle.dumps((function, arguments))
    try:
        out, _ = process.communicate(request, timeout=None if math.isinf(limit_s) else limit_s)
    except subprocess.TimeoutExpired:
        _end_group(process)
        return {"error": f"not done after {limit_s:.0f} s"}
    except BaseException:
        _end_group(process)
        raise
    finally:
        _RUNNING.discard(process)
    return pickle.loads(out) if out else {"error": f"the process ended with code {process.returncode}"}


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Ends a worker and the compilers that it started: it leads its own process group."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def end_running() -> None:
    """Ends all processes that are asked something, by other threads; these get an error."""
    for process in tuple(_RUNNING):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def serve() -> None:
    """Answers what is asked on standard input, within its limits, and ends the process."""
    reply = os.dup(1)
    os.dup2(2, 1)  # what libraries print must not mix with the reply
    threads, limit_bytes = pickle.load(sys.stdin.buffer)
    if limit_bytes is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))
    torch.set_num_threads(threads)
    os.write(reply, pickle.dumps(_answer()))
    os._exit(0)  # saves the time of an orderly exit


def _answer() -> dict[str, Any]:
    try:
        function, arguments = pickle.load(sys.stdin.buffer)
        return resolve_name(function)(*arguments)
    except Exception as error:  # the library's failure is a result
        return {"error": reason(error)}


def failure(error: Exception) -> dict[str, Any]:
    """Returns the status and the note of what an exception has ended."""
    why = reason(error)
    lacks_memory = isinstance(error, MemoryError) or why == OUT_OF_MEMORY
    return {"status": OUT_OF_MEMORY if lacks_memory else "failed", "note": why}


def reason(error: Exception) -> str:
    """Returns an exception in one line, or `OUT_OF_MEMORY` where the exception says so."""
    short = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    if isinstance(error, MemoryError) and str(error):
        return short  # it says what would be needed
    lacks_memory = isinstance(error, (MemoryError, torch.OutOfMemoryError)) or ("alloc" in short and "memory" in short)
    return OUT_OF_MEMORY if lacks_memory else short

"""Runs one measurement in its own process, limited in time and memory, so that a failure ends nothing else."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

from dacergnn.errors import MemoryLimitError

OUT_OF_MEMORY = "out of memory"
"""Reason of a failure for want of memory."""


def ask(module: str, request: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
    """Returns the answer of ``python -m module``, or {"error": ...} with the reason why there is none.

    Args:
        module: The name of a module that calls `serve`.
        request: Values that JSON can hold; "threads" and "limit_bytes" are for the process itself. Where "device" is
            not "cpu", there is no limit of bytes, since a device's memory is no memory of the process.
    """
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(request["threads"]),
        "DGLBACKEND": "pytorch",
        "PYTHONWARNINGS": "ignore",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )
    try:
        out, _ = process.communicate(json.dumps(request).encode(), timeout=limit_s)
    except subprocess.TimeoutExpired:
        _end_group(process)
        return {"error": f"not done after {limit_s:.0f} s"}
    except BaseException:
        _end_group(process)
        raise
    if not out:
        return {"error": f"the process ended with code {process.returncode}"}
    return json.loads(out)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Ends a worker and the compilers that it started: it leads its own process group."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def serve(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answers the request on standard input by one line of JSON, within its memory limit, and ends the process."""
    reply = os.dup(1)
    os.dup2(2, 1)  # what libraries print must not mix with the reply
    request = json.load(sys.stdin)
    if request.get("device", "cpu") == "cpu":
        resource.setrlimit(resource.RLIMIT_DATA, (request["limit_bytes"], request["limit_bytes"]))
    try:
        response = answer(request)
    except Exception as error:  # the library's failure is a result
        response = {"error": reason(error)}
    os.write(reply, json.dumps(response).encode())
    os._exit(0)  # saves the time of an orderly exit


def reason(error: Exception) -> str:
    """Returns an exception in one line, or `OUT_OF_MEMORY` where the exception says so."""
    short = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    if isinstance(error, MemoryLimitError):
        return short  # it says what would be needed
    return OUT_OF_MEMORY if isinstance(error, MemoryError) or ("alloc" in short and "memory" in short) else short

"""Runs one candidate in a process of its own, limited in time and memory: its peak, or whether it compiles.

Verdicts on compiled layers are kept in the cache folder, since some take minutes to fail.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import platformdirs


@dataclass(frozen=True)
class Request:
    """What a worker process is to measure."""

    model: str
    library: str
    candidate: str
    data: str
    mode: str
    what: str
    """'memory' or 'time'."""
    hidden: int = 64
    seed: int = 0
    threads: int = 2
    level: str = "O2"
    limit_bytes: int = 12 << 30


def run_trial(request: Request, limit_s: float) -> dict[str, Any]:
    """The worker's answer, or {"error": ...} with the reason why there is none."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(request.threads),
        "DGLBACKEND": "pytorch",
        "PYTHONWARNINGS": "ignore",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "dacergnn.bench.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )
    try:
        out, _ = process.communicate(json.dumps(asdict(request)).encode(), timeout=limit_s)
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
    """End a worker with the compilers that it started: it leads a process group of its own."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def cached_trial(request: Request, limit_s: float) -> dict[str, Any]:
    """run_trial, remembered across runs for the same request, limit and package versions."""
    key = json.dumps([asdict(request), limit_s, _versions()], sort_keys=True)
    path = _folder() / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.json"
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):  # absent or damaged: measure again
        pass
    answer = run_trial(request, limit_s)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(answer))
        part.replace(path)
    except OSError:  # a cache that cannot be written only costs time
        pass
    return answer


def _folder() -> Path:
    root = os.environ.get("DACERGNN_CACHE_DIR") or platformdirs.user_cache_dir("dacergnn")
    return Path(root) / "bench"


def _versions() -> list[str]:
    found: list[str] = []
    for name in ("torch", "torch_geometric", "dgl"):
        try:
            found.append(version(name))
        except PackageNotFoundError:
            found.append("")
    return found

"""Measures one candidate in its own process, limited in time and memory: its peak memory, or its times if compiled.

Answers about compiled layers are kept in the cache folder, since some take minutes to fail.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import platformdirs

from dacergnn.bench.process import ask


@dataclass(frozen=True)
class Request:
    """Describes what a worker process is to measure."""

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
    plan: str = ""
    device: str = "cpu"
    limit_bytes: int = 12 << 30


def run_trial(request: Request, limit_s: float) -> dict[str, Any]:
    """Returns the worker's answer, or {"error": ...} with the reason why there is none."""
    return ask("dacergnn.bench.worker", asdict(request), limit_s)


def cached_trial(request: Request, limit_s: float) -> dict[str, Any]:
    """Returns what run_trial does, and remembers it across runs for the same request, limit and package versions."""
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
    versions: list[str] = []
    for name in ("torch", "torch_geometric", "dgl"):
        try:
            versions.append(version(name))
        except PackageNotFoundError:
            versions.append("")
    return versions

"""Measures one candidate in its own process, limited in time and memory: its peak memory, or its times if compiled.

Answers about compiled layers are kept in the build cache, since some take minutes to fail.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from dacergnn.bench.process import ask
from dacergnn.native.cache import lookup_plan, store_plan

_NAME = "benchmark_trial"


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
    return ask("benchmarks.relational.worker", asdict(request), limit_s)


def cached_trial(request: Request, limit_s: float) -> dict[str, Any]:
    """Returns what run_trial does, and remembers it across runs for the same request, limit and package versions."""
    facts = json.dumps([asdict(request), limit_s, _versions()], sort_keys=True)
    key = hashlib.sha256(facts.encode()).hexdigest()[:24]
    known = lookup_plan(key, _NAME, dict)
    if known is not None:
        return known
    answer = run_trial(request, limit_s)
    store_plan(key, _NAME, answer)
    return answer


def _versions() -> list[str]:
    versions: list[str] = []
    for name in ("torch", "torch_geometric", "dgl"):
        try:
            versions.append(version(name))
        except PackageNotFoundError:
            versions.append("")
    return versions

"""Benchmarks training on sampled batches, each of which is new: `python -m benchmarks batches`."""

from __future__ import annotations

from benchmarks.batches.runner import run
from benchmarks.batches.settings import BatchSettings

__all__ = ["BatchSettings", "run"]

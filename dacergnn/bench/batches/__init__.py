"""Benchmarks training on sampled batches, each of which is new: `dacergnn bench --suite batches`."""

from __future__ import annotations

from dacergnn.bench.batches.runner import run
from dacergnn.bench.batches.settings import BatchSettings

__all__ = ["BatchSettings", "run"]

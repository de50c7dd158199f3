"""Benchmarks caching strategies, orders and sparse formats on homogeneous graphs: `dacergnn bench --suite caching`."""

from __future__ import annotations

from dacergnn.bench.caching.records import load
from dacergnn.bench.caching.runner import run
from dacergnn.bench.caching.settings import CachingSettings

__all__ = ["CachingSettings", "load", "run"]

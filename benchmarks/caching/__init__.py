"""Benchmarks caching strategies, orders and sparse formats on homogeneous graphs: `python -m benchmarks caching`."""

from __future__ import annotations

from benchmarks.caching.records import load
from benchmarks.caching.runner import run
from benchmarks.caching.settings import CachingSettings

__all__ = ["CachingSettings", "load", "run"]

"""Compares models with compiled ones: `compare(Subject(layer="gat", data="cora"), ("cache_all", "auto"))`."""

from __future__ import annotations

from dacergnn.bench.comparison import Comparison, compare
from dacergnn.bench.rates import measure_rates
from dacergnn.bench.subject import Subject

__all__ = ["Comparison", "Subject", "compare", "measure_rates"]

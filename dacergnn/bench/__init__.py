"""Compares our layers with PyG, DGL and plain PyTorch: `run(models=("rgcn",), data=("aifb",))`."""

from __future__ import annotations

from dacergnn.bench.errors import BenchmarkError
from dacergnn.bench.rates import measure_rates
from dacergnn.bench.report import Report
from dacergnn.bench.runner import run
from dacergnn.bench.settings import BenchSettings

__all__ = ["BenchSettings", "BenchmarkError", "Report", "measure_rates", "run"]

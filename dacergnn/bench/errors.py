"""Defines the benchmark's own exception."""

from __future__ import annotations

from dacergnn.errors import DacergnnError


class BenchmarkError(DacergnnError, ValueError):
    """Signals that a benchmark cannot be made: an unknown name, a missing library, an unsuitable graph."""

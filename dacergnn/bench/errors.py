"""The benchmark's own exception."""

from __future__ import annotations

from dacergnn.errors import DacergnnError


class BenchmarkError(DacergnnError, ValueError):
    """A benchmark that cannot be made: an unknown name, a missing library, an unsuitable graph."""

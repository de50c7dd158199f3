"""Draws the figures of the suite of caching strategies: `dacergnn plot FILE`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from dacergnn.bench.errors import BenchmarkError


@contextmanager
def needing_matplotlib(what: str) -> Generator[None]:
    """Raises BenchmarkError where matplotlib cannot be imported."""
    try:
        yield
    except ImportError as error:
        raise BenchmarkError(
            f"{what} needs matplotlib, which cannot be imported here ({error}); pip install 'dacergnn[plot]'."
        ) from error

"""Measurements while a machine does nothing else.

Other work on a machine, or on the one that it is a part of, makes programs take several times as long for seconds on
end. It slows all runs of a sample alike, so that their deviation does not tell. A reference does: a few parallel loops
over data in the cache and one over data in memory, timed before and after.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import TypeVar

import torch

TOLERATED = 1.7
"""Tells how much longer than at its fastest the reference may take."""
ATTEMPTS = 4
ROUNDS = 9
"""Times that the reference runs, for its median."""
T = TypeVar("T")


class Reference:
    """A computation of about a millisecond on all threads; calls give its seconds."""

    def __init__(self) -> None:
        self._near, self._far = torch.ones(1 << 16), torch.ones(1 << 23)

    def __call__(self) -> float:
        start = time.perf_counter()
        for _ in range(200):
            self._near.neg_()
        self._far.neg_()
        return time.perf_counter() - start


class Undisturbed:
    """Measures again what other work has disturbed.

    Args:
        reference: Seconds that the same computation takes now.
    """

    def __init__(self, reference: Callable[[], float]) -> None:
        self._reference = reference
        self._fastest = min(self._seconds() for _ in range(ROUNDS))

    def _seconds(self) -> float:
        return median(self._reference() for _ in range(ROUNDS))

    def slowdown(self) -> float:
        """Returns how many times as long as at its fastest the reference takes now."""
        seconds = self._seconds()
        self._fastest = min(self._fastest, seconds)
        return seconds / self._fastest

    def measure(self, run: Callable[[], T]) -> tuple[T, float]:
        """Returns what ``run`` returns, and the larger slowdown before and after: of the first run with no more than
        `TOLERATED`, or of the least disturbed of `ATTEMPTS`."""
        attempts: list[tuple[float, T]] = []
        before = self.slowdown()
        for _ in range(ATTEMPTS):
            result = run()
            after = self.slowdown()
            attempts.append((max(before, after), result))
            if attempts[-1][0] <= TOLERATED:
                break
            before = after
        slowdown, result = min(attempts, key=lambda attempt: attempt[0])
        return result, slowdown

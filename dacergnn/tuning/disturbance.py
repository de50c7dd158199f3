"""Detects other work on the machine during a measurement, and repeats the measurement.

Other work on this machine, or on the host of a virtual machine, can slow programs down several times, for seconds. It
slows all runs of a sample alike, so their deviation does not show it. So a reference is timed before and after the
measurement: many parallel loops over data in the cache, and one over data in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import TypeVar

import torch

from dacergnn.tuning.measure import now

TOLERATED = 1.7
"""The largest slowdown of the reference, over its fastest time, at which a measurement counts."""
ATTEMPTS = 4
ROUNDS = 9
"""Number of runs of the reference, whose median is taken."""
T = TypeVar("T")


class Reference:
    """Computes for about a millisecond on all threads, or on a device; a call returns the seconds that this took."""

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self._near, self._far = torch.ones(1 << 16, device=device), torch.ones(1 << 23, device=device)

    def __call__(self) -> float:
        device = self._near.device
        start = now(device)
        for _ in range(200):
            self._near.neg_()
        self._far.neg_()
        return now(device) - start


class Undisturbed:
    """Repeats measurements that other work has disturbed.

    Args:
        reference: Runs a fixed computation and returns the seconds that it took.
    """

    def __init__(self, reference: Callable[[], float]) -> None:
        self._reference = reference
        self._fastest = min(self._seconds() for _ in range(ROUNDS))

    def _seconds(self) -> float:
        return median(self._reference() for _ in range(ROUNDS))

    def slowdown(self) -> float:
        """Returns the time that the reference takes now, divided by its fastest time."""
        seconds = self._seconds()
        self._fastest = min(self._fastest, seconds)
        return seconds / self._fastest

    def measure(self, run: Callable[[], T]) -> tuple[T, float]:
        """Returns the result of ``run`` and its slowdown, the larger one of before and after.

        It takes the first run with at most `TOLERATED`, or the least disturbed of `ATTEMPTS` runs."""
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

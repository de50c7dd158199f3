"""Scores predicted times by their agreement with measured ones, and by their ranking of plans (Singh et al., IV)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from dacergnn.tuning.samples import Measured

CERTAIN = 2.0
"""Two plans differ if their mean times differ by more than so many standard errors of the difference."""


@dataclass(frozen=True)
class Scores:
    """Describes how well predictions agree with measurements.

    Attributes:
        samples: How many samples have been predicted.
        mean_error, largest_error: Mean and largest |predicted / measured - 1|.
        r2: Coefficient of determination of the logarithm of seconds.
        r2_seconds: That of seconds, as in the paper; the longest programs decide it.
        ranked: Share of the pairs of plans of one layer on one graph that are predicted in the right order.
        pairs: How many pairs these are; only pairs whose times differ for certain count.
    """

    samples: int
    mean_error: float
    largest_error: float
    r2: float
    r2_seconds: float
    ranked: float
    pairs: int


def scores(samples: Sequence[Measured], predicted: np.ndarray) -> Scores:
    """Scores predicted seconds."""
    seconds = np.array([s.seconds for s in samples])
    error = np.abs(predicted / seconds - 1)
    pairs = [*certain_pairs(samples)]
    right = sum((predicted[a] < predicted[b]) == (seconds[a] < seconds[b]) for a, b in pairs)
    ranked = right / max(len(pairs), 1)
    return Scores(
        len(samples), float(error.mean()), float(error.max()), _determination(np.log(seconds), np.log(predicted)),
        _determination(seconds, predicted), ranked, len(pairs),
    )  # fmt: skip


def _determination(measured: np.ndarray, predicted: np.ndarray) -> float:
    """Returns the coefficient of determination."""
    return float(1 - np.square(measured - predicted).sum() / np.square(measured - measured.mean()).sum())


def certain_pairs(samples: Sequence[Measured]) -> Iterator[tuple[int, int]]:
    """Yields pairs of samples of one group whose times differ for certain, as positions."""
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for number, sample in enumerate(samples):
        groups[sample.group].append(number)
    for members in groups.values():
        for a, b in combinations(members, 2):
            one, other = samples[a], samples[b]
            doubt = np.hypot(one.deviation / one.runs**0.5, other.deviation / other.runs**0.5)
            if abs(one.seconds - other.seconds) > CERTAIN * doubt:
                yield a, b

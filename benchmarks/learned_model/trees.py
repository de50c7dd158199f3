"""Gradient-boosted trees over pooled features of loops, in the manner of TVM's first model."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.learned_model.training import weights
from dacergnn.errors import DacergnnError
from dacergnn.tuning.features import THREADS, ProgramFeatures
from dacergnn.tuning.samples import Sample


class Trees:
    """Predicts the logarithm of seconds from the sums and maxima of features over the operators of a program."""

    threads = THREADS

    def __init__(self, samples: Sequence[Sample], *, seed: int = 0, rounds: int = 300, bagged: bool = False) -> None:
        """Learns from measured programs.

        Args:
            bagged: Whether samples count with random weights, so that the members of an ensemble differ.

        Raises:
            DacergnnError: scikit-learn is not installed.
        """
        try:
            ensemble = import_module("sklearn.ensemble")
        except ImportError:
            raise DacergnnError("Trees need scikit-learn; install it with pip install scikit-learn.") from None
        self._model: Any = ensemble.HistGradientBoostingRegressor(
            max_iter=rounds, random_state=seed, early_stopping=False
        )
        seconds = np.array([s.seconds for s in samples])
        weight = weights(samples)
        if bagged:
            weight = weight * np.random.default_rng(seed).exponential(size=len(weight))
        self._model.fit(_pooled([s.program for s in samples]), np.log(seconds), sample_weight=weight)

    def predict(self, programs: Sequence[ProgramFeatures]) -> np.ndarray:
        """Returns the predicted seconds of each program, float64."""
        return np.exp(self.logarithms(programs)[0]) if programs else np.zeros(0)

    def logarithms(self, programs: Sequence[ProgramFeatures]) -> np.ndarray:
        """Returns the logarithms of the seconds of each program: [1, programs]."""
        return self._model.predict(_pooled(programs))[None]


def _pooled(programs: Sequence[ProgramFeatures]) -> np.ndarray:
    """Returns [programs, features]: sums and maxima over operators, their number, the logarithm of analytic seconds."""
    rows: list[np.ndarray] = []
    for program in programs:
        features = np.concatenate((program.invariant, program.dependent), axis=1)
        summary = [len(features), np.log(program.seconds.sum(dtype=np.float64))]
        rows.append(np.concatenate((features.sum(axis=0), features.max(axis=0), summary)))
    return np.stack(rows)

"""Fits a performance model to a machine by programs that are measured there.

Networks predict the time of a program as a sum of terms: operations, bytes, rows, starts. Each term of each network
gets a factor for the machine; everything else stays as it is. Factors are drawn towards a common one (ridge
regression), since a few minutes give few samples.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from dacergnn.errors import DacergnnError
from dacergnn.tuning.collect import Collector, CollectSettings, Sampled
from dacergnn.tuning.features import describe
from dacergnn.tuning.measure import Times
from dacergnn.tuning.predictor import Array, Predictor
from dacergnn.tuning.samples import Measured
from dacergnn.tuning.scores import Scores, scores

FIRST = 1_000_000
"""Seed of the first layer to draw from: data sets have none of them."""
DRAWN = 60
"""Layers of which those are measured on whose programs the networks disagree most."""
RIDGES = (0.003, 0.03, 0.3, 3.0)
FOLDS = 4
"""Parts of the layers, each of which is left out once to choose among the ridges."""
RANKING = 2.0
"""Weight of errors within a group, which rank plans, beside that of all errors."""
REPEAT = 10


@dataclass(frozen=True)
class Calibration:
    """Holds a fitted model, the number of samples, and the scores of the layers that were left out in turns.

    Attributes:
        before: Scores of the model as it was.
        after: Scores of the fitted model.
    """

    model: Predictor
    samples: int
    before: Scores
    after: Scores


def fitted(model: Predictor, samples: Sequence[Measured], ridge: float) -> Predictor:
    """Returns the model with the rates of a machine: a factor for each term of each network.

    Args:
        ridge: Weight of the squares by which the logarithms of the factors differ from their common value.
    """
    seconds = np.log([sample.seconds for sample in samples])
    names = {group: n for n, group in enumerate(dict.fromkeys(sample.group for sample in samples))}
    group = np.array([names[sample.group] for sample in samples])
    parts = model.parts([sample.program for sample in samples])
    return model.scaled(np.stack([_factors(part, seconds, group, ridge) for part in parts]))


def _factors(parts: Array, seconds: Array, group: Array, ridge: float) -> Array:
    """Returns a factor for each term.

    Args:
        parts: [programs, terms] seconds.
        seconds: [programs] logarithms of measured seconds.
        group: [programs] numbers of groups, in which programs are ranked.
    """
    counts = np.bincount(group)

    def within(values: Array) -> Array:
        return values - (np.bincount(group, values) / counts)[group]

    def loss(flat: Array) -> tuple[float, Array]:
        common, own = flat[0], flat[1:]
        scaled = parts * np.exp(common + own)
        total = scaled.sum(axis=1)
        error = np.log(total) - seconds
        apart = within(error)
        value = np.square(error).mean() + RANKING * np.square(apart).mean() + ridge * np.square(own).mean()
        slope = 2 * (error + RANKING * within(apart)) / len(error)
        of_terms = (slope / total) @ scaled
        return float(value), np.concatenate([[of_terms.sum()], of_terms + 2 * ridge * own / len(own)])

    found = minimize(loss, np.zeros(parts.shape[1] + 1), jac=True, method="L-BFGS-B")
    return np.exp(found.x[0] + found.x[1:])


def calibrated(model: Predictor, samples: Sequence[Measured]) -> Calibration:
    """Fits a model to samples; layers that are left out in turns choose the ridge.

    Raises:
        DacergnnError: There are samples of too few layers.
    """
    layers = sorted({sample.layer for sample in samples})
    if len(layers) < FOLDS:
        raise DacergnnError(f"samples: {len(layers)} layers are too few to calibrate by; give {FOLDS} at least.")
    random.Random(0).shuffle(layers)
    folds = [{*layers[fold::FOLDS]} for fold in range(FOLDS)]
    unseen = [[s for s in samples if s.layer in fold] for fold in folds]
    order = [sample for part in unseen for sample in part]

    def left_out(ridge: float) -> Array:
        parts: list[Array] = []
        for fold, part in zip(folds, unseen, strict=True):
            own = fitted(model, [s for s in samples if s.layer not in fold], ridge)
            parts.append(own.predict([s.program for s in part]))
        return np.concatenate(parts)

    measured = np.log([sample.seconds for sample in order])
    predicted = {ridge: left_out(ridge) for ridge in RIDGES}
    best = min(predicted, key=lambda ridge: float(np.square(np.log(predicted[ridge]) - measured).mean()))
    before = scores(order, model.predict([s.program for s in order]))
    return Calibration(fitted(model, samples, best), len(samples), before, scores(order, predicted[best]))


def samples_of(found: Sampled, threads: int) -> list[Measured]:
    """Returns the samples of a layer on a graph; a forward and its backward are one program."""
    described = {plan: describe(*found.plans[plan].parts).on(found.facts, threads=threads) for plan in found.times}
    both = {plan: Times.together(parts) for plan, parts in found.times.items()}
    return [
        Measured(program, both[n].mean, both[n].deviation, str(found.seed), found.graph, found.layer.family,
                 both[n].runs, "")
        for n, program in described.items()
    ]  # fmt: skip


def probe(model: Predictor, threads: int, deadline: float) -> Iterator[list[Measured]]:
    """Yields samples of layer after layer on whose programs the networks of a model disagree.

    Args:
        deadline: Time of `time.monotonic` at which it stops, once a layer is done.
    """
    collector = Collector(CollectSettings(graphs=3, builds=2, threads=threads, repeat=REPEAT))
    # A third of the time may go into looking for programs.
    looking = time.monotonic() + (deadline - time.monotonic()) / 3
    doubts: dict[int, float] = {}
    for seed in range(FIRST, FIRST + DRAWN):
        if time.monotonic() <= looking:
            doubts[seed] = collector.disagreement(seed, model)
    for seed in sorted(doubts, key=lambda seed: -doubts[seed]):
        if time.monotonic() <= deadline:
            yield [sample for found in collector.sampled(seed) for sample in samples_of(found, threads)]


def calibrate(model: Predictor, threads: int, minutes: float, on_layer: Callable[[int, int], None]) -> Calibration:
    """Measures programs for some minutes, and fits a model to them.

    Raises:
        DacergnnError: The minutes are too few to measure enough layers.
    """
    start, samples = time.monotonic(), list[Measured]()
    for number, found in enumerate(probe(model, threads, start + 60 * minutes), start=1):
        samples += found
        on_layer(number, len(samples))
    measured = len({sample.layer for sample in samples})
    if measured < FOLDS:
        needed = math.ceil(FOLDS / max(measured, 1) * max((time.monotonic() - start) / 60, minutes))
        raise DacergnnError(
            f"minutes={minutes:g} are too few: {measured} of the {FOLDS} layers that are needed could be measured; "
            f"give {needed} at least on this machine (--minutes {needed})."
        )
    return calibrated(model, samples)

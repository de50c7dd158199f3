"""Judges performance models on layers, graphs and machines that they have not learned from."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.learned_model.contenders import CALIBRATED, OURS, Ensemble, calibrated, contenders, graph_networks
from benchmarks.learned_model.division import divide, machine_factors, on_one_scale
from benchmarks.learned_model.network import DEPTH
from benchmarks.learned_model.training import Trained
from dacergnn.errors import DacergnnError
from dacergnn.tuning.calibration import RIDGES, fitted
from dacergnn.tuning.predictor import Model, Predictor
from dacergnn.tuning.samples import Measured, Sample
from dacergnn.tuning.scores import Scores, scores

PROBE = 150
"""Samples by which a model is fitted to a machine that it has not learned from."""


@dataclass(frozen=True)
class Budget:
    """Sets how models are trained: alike, so that they can be compared.

    Args:
        epochs: Passes over the samples.
        members: Members of each ensemble.
        seed: Of the division of the samples, and of the training.
        pooled: Also train networks that read sums over operators.
    """

    epochs: int = 20
    members: int = 4
    seed: int = 0
    pooled: bool = False

    def __post_init__(self) -> None:
        if min(self.epochs, self.members) < 1:
            raise DacergnnError(f"epochs={self.epochs}, members={self.members}: both must be at least 1.")

    def models(self, samples: Sequence[Sample]) -> dict[str, Model]:
        """Returns all models after they have learned from samples."""
        return contenders(samples, seed=self.seed, epochs=self.epochs, members=self.members, pooled=self.pooled)

    def networks(self, samples: Sequence[Sample], depth: int = DEPTH) -> tuple[Trained, ...]:
        """Returns networks with so many convolutions that have learned from samples."""
        return graph_networks(samples, seed=self.seed, epochs=self.epochs, members=self.members, depth=depth)


@dataclass
class Judged:
    """Collects samples that models have not seen, with their predictions by the name of the model."""

    samples: list[Measured] = field(default_factory=list[Measured])
    predicted: dict[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])

    def add(self, samples: Sequence[Measured], predicted: Mapping[str, Sequence[float]]) -> Judged:
        """Adds samples, and what each model predicts for them."""
        self.samples += samples
        for name, seconds in predicted.items():
            self.predicted[name] = np.concatenate([self.predicted.get(name, np.zeros(0)), seconds])
        return self

    @property
    def scores(self) -> dict[str, Scores]:
        return {name: scores(self.samples, times) for name, times in self.predicted.items()}

    def by_family(self, model: str) -> dict[str, Scores]:
        """Returns the scores of a model for the samples of each family of layers."""
        by_family: dict[str, Scores] = {}
        for family in sorted({s.family for s in self.samples}):
            chosen = [n for n, s in enumerate(self.samples) if s.family == family]
            by_family[family] = scores([self.samples[n] for n in chosen], self.predicted[model][chosen])
        return by_family


@dataclass(frozen=True)
class Trial:
    """Holds samples that models are judged by, and what returns these models once they have learned from others."""

    unseen: Sequence[Measured]
    learn: Callable[[], Mapping[str, Model]]

    def predicted(self) -> dict[str, list[float]]:
        """Returns the seconds that each model predicts."""
        programs = [sample.program for sample in self.unseen]
        return {name: model.predict(programs).tolist() for name, model in self.learn().items()}

    def judged(self) -> Judged:
        """Returns the samples with their predictions."""
        return Judged().add(self.unseen, self.predicted())


def of_fold(samples: Sequence[Measured], budget: Budget, fold: int) -> Trial:
    """Returns the trial of all models on the unseen layers on unseen graphs of a fold."""
    learned, unseen = _scaled(samples, budget, fold)
    return Trial(unseen, lambda: budget.models(learned))


def on_another_machine(samples: Sequence[Measured], machine: str, budget: Budget, fold: int = 0) -> Trial:
    """Returns the trial of the models on unseen layers and graphs on a machine that they have not learned from.

    The networks are judged as they are, and fitted to `PROBE` samples of the machine, whose layers and graphs are not
    those of the judgement; so is the analytic cost.
    """
    division = divide(samples, budget.seed, fold)

    def learn() -> Mapping[str, Model]:
        others = [sample for sample in division.learned if sample.machine != machine]
        models = budget.models(on_one_scale(others, machine_factors(others)))
        probe = _probe([sample for sample in division.learned if sample.machine == machine], budget.seed)
        network = models[OURS]
        assert isinstance(network, Predictor)
        return models | {f"{OURS}, fitted": fitted(network, probe, RIDGES[1]), CALIBRATED: calibrated(probe)}

    return Trial([sample for sample in division.unseen if sample.machine == machine], learn)


def by_depth(samples: Sequence[Measured], depths: Sequence[int], budget: Budget, fold: int = 0) -> Trial:
    """Returns the trial of graph networks by their number of convolutions."""
    learned, unseen = _scaled(samples, budget, fold)
    return Trial(unseen, lambda: {str(n): Ensemble(budget.networks(learned, n)) for n in depths})


def _scaled(samples: Sequence[Measured], budget: Budget, fold: int) -> tuple[list[Measured], list[Measured]]:
    """Returns samples to learn from and unseen ones, as if all machines were equally fast."""
    division = divide(samples, budget.seed, fold)
    factors = machine_factors(division.learned)
    return on_one_scale(division.learned, factors), on_one_scale(division.unseen, factors)


def _probe(samples: Sequence[Measured], seed: int) -> list[Measured]:
    """Returns up to `PROBE` samples, all plans of some layers on some graphs."""
    groups: dict[tuple[str, ...], list[Measured]] = {}
    for sample in samples:
        groups.setdefault(sample.group, []).append(sample)
    order = [*groups.values()]
    random.Random(seed).shuffle(order)
    chosen: list[Measured] = []
    for group in order:
        if len(chosen) + len(group) <= PROBE:
            chosen += group
    return chosen

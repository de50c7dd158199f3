"""Judges performance models on layers, graphs and machines that they have not learned from."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.learned_model.contenders import CALIBRATED, OURS, Ensemble, calibrated, contenders, graph_networks
from benchmarks.learned_model.division import divide, machine_factors, on_one_scale
from benchmarks.learned_model.network import DEPTH
from benchmarks.learned_model.training import Trained
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
        pooled: Whether networks that read sums over operators are among the models.
    """

    epochs: int = 20
    members: int = 4
    seed: int = 0
    pooled: bool = False

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
    parts: dict[str, list[np.ndarray]] = field(default_factory=dict[str, list[np.ndarray]])

    def add(self, samples: Sequence[Measured], models: Mapping[str, Model]) -> None:
        """Adds samples, and what the models predict for them."""
        programs = [sample.program for sample in samples]
        self.samples += samples
        for name, model in models.items():
            self.parts.setdefault(name, []).append(model.predict(programs))

    @property
    def predicted(self) -> dict[str, np.ndarray]:
        return {name: np.concatenate(part) for name, part in self.parts.items()}

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


def judge(judged: Judged, samples: Sequence[Measured], budget: Budget, fold: int) -> None:
    """Adds what all models predict for the unseen layers on unseen graphs of a fold."""
    division = divide(samples, budget.seed, fold)
    factors = machine_factors(division.learned)
    judged.add(on_one_scale(division.unseen, factors), budget.models(on_one_scale(division.learned, factors)))


def on_another_machine(samples: Sequence[Measured], machine: str, budget: Budget, fold: int = 0) -> Judged:
    """Judges the models on unseen layers and graphs on a machine that they have not learned from.

    The networks are judged as they are, and fitted to `PROBE` samples of the machine, whose layers and graphs are not
    those of the judgement; so is the analytic cost.
    """
    division = divide(samples, budget.seed, fold)
    others = [sample for sample in division.learned if sample.machine != machine]
    models = budget.models(on_one_scale(others, machine_factors(others)))
    probe = _probe([sample for sample in division.learned if sample.machine == machine], budget.seed)
    network = models[OURS]
    assert isinstance(network, Predictor)
    models[f"{OURS}, fitted"] = fitted(network, probe, RIDGES[1])
    models[CALIBRATED] = calibrated(probe)
    judged = Judged()
    judged.add([sample for sample in division.unseen if sample.machine == machine], models)
    return judged


def by_depth(samples: Sequence[Measured], depths: Sequence[int], budget: Budget, fold: int = 0) -> Judged:
    """Judges graph networks by their number of convolutions."""
    division = divide(samples, budget.seed, fold)
    factors = machine_factors(division.learned)
    learned = on_one_scale(division.learned, factors)
    judged = Judged()
    judged.add(on_one_scale(division.unseen, factors), {str(n): Ensemble(budget.networks(learned, n)) for n in depths})
    return judged


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

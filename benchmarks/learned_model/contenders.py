"""Trains all performance models on the same samples, each as an ensemble of as many members."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.learned_model.network import DEPTH, GraphNetwork
from benchmarks.learned_model.terms import TermNetwork
from benchmarks.learned_model.training import Network, Trained, train
from benchmarks.learned_model.trees import Trees
from dacergnn.tuning.features import THREADS, ProgramFeatures
from dacergnn.tuning.predictor import Analytic, Array, Model, Predictor
from dacergnn.tuning.samples import Sample

OURS = "graph network"
CALIBRATED = "analytic, calibrated"


@dataclass(frozen=True)
class Ensemble:
    """Predicts the geometric mean of the predictions of several models."""

    members: tuple[Model, ...]
    threads: int = THREADS

    def logarithms(self, programs: Sequence[ProgramFeatures]) -> Array:
        """Returns the logarithms of the seconds of each program by each member: [members, programs]."""
        return np.concatenate([member.logarithms(programs) for member in self.members])

    def predict(self, programs: Sequence[ProgramFeatures]) -> Array:
        """Returns the predicted seconds of each program."""
        return np.exp(self.logarithms(programs).mean(axis=0)) if programs else np.zeros(0)


def graph_networks(
    samples: Sequence[Sample], *, seed: int, epochs: int, members: int, pooled: bool = False, depth: int = DEPTH
) -> tuple[Trained, ...]:
    """Returns ``members`` networks that have been trained from different seeds."""
    make: Network = partial(GraphNetwork, pooled=pooled, depth=depth)
    return tuple(train(make, samples, seed=seed + n, epochs=epochs) for n in range(members))


def predictor(networks: Sequence[Trained]) -> Predictor:
    """Returns networks without convolutions as the package uses them."""
    trained = [one.network for one in networks]
    return Predictor(tuple(network.weights() for network in trained if isinstance(network, GraphNetwork)))


def contenders(
    samples: Sequence[Sample], *, seed: int, epochs: int, members: int, pooled: bool = False
) -> dict[str, Model]:
    """Returns, by name, the models that are compared; ensembles have ``members`` members, from different seeds.

    Args:
        pooled: Whether networks that read sums over operators are among them.
    """
    seeds = range(seed, seed + members)
    networks = partial(graph_networks, samples, seed=seed, epochs=epochs, members=members)
    return {
        OURS: predictor(networks()),
        **({"pooled": Ensemble(networks(pooled=True))} if pooled else {}),
        "trees": Ensemble(tuple(Trees(samples, seed=own, bagged=True) for own in seeds)),
        "terms": Ensemble(tuple(train(TermNetwork, samples, seed=own, epochs=epochs) for own in seeds)),
        "analytic": Analytic(),
        CALIBRATED: calibrated(samples),
    }


def calibrated(samples: Sequence[Sample]) -> Analytic:
    """Returns the analytic cost times the median over the samples of measured / analytic seconds."""
    times = Analytic().predict([s.program for s in samples])
    return Analytic(float(np.median([s.seconds for s in samples] / times)))

"""Trains all performance models on the same samples."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from dacergnn.performance.dataset import Division
from dacergnn.performance.network import GraphNetwork
from dacergnn.performance.terms import TermNetwork
from dacergnn.performance.training import train
from dacergnn.performance.trees import Trees
from dacergnn.tuning.predictor import Analytic, Model, Predictor
from dacergnn.tuning.samples import Sample

OURS = "graph network"


def graph_networks(
    samples: Sequence[Sample], *, seed: int, epochs: int, members: int, pooled: bool = False
) -> Predictor:
    """Trains ``members`` networks from different seeds and returns them as one model."""
    make = partial(GraphNetwork, pooled=pooled)
    networks = [train(make, samples, seed=seed + n, epochs=epochs).network for n in range(members)]
    return Predictor(tuple(n.weights() for n in networks if isinstance(n, GraphNetwork)), pooled)


def baselines(samples: Sequence[Sample], *, seed: int, epochs: int) -> dict[str, Model]:
    """Returns, by name, the models that graph networks are compared with."""
    return {
        "trees": Trees(samples, seed=seed),
        "terms": train(TermNetwork, samples, seed=seed, epochs=epochs),
        "analytic": Analytic(),
        "analytic, calibrated": calibrated(samples),
    }


def calibrated(samples: Sequence[Sample]) -> Analytic:
    """Returns the analytic cost times the median over the samples of measured / analytic seconds."""
    times = Analytic().predict([s.program for s in samples])
    return Analytic(float(np.median([s.seconds for s in samples] / times)))


def predictions(
    division: Division, *, seed: int, epochs: int, members: int, pooled: bool = False
) -> dict[str, np.ndarray]:
    """Returns the predicted seconds of the unseen samples by model; the models learn from the other samples.

    Args:
        pooled: Whether to train also networks that read sums over operators.
    """
    networks = partial(graph_networks, division.learned, seed=seed, epochs=epochs, members=members)
    models: dict[str, Model] = {OURS: networks()}
    if pooled:
        models["pooled"] = networks(pooled=True)
    models |= baselines(division.learned, seed=seed, epochs=epochs)
    programs = [s.program for s in division.unseen]
    return {name: model.predict(programs) for name, model in models.items()}

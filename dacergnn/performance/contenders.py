"""All performance models, trained on the same samples."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from dacergnn.performance.network import GraphNetwork
from dacergnn.performance.terms import TermNetwork
from dacergnn.performance.training import train
from dacergnn.performance.trees import Trees
from dacergnn.tuning.predictor import Analytic, Model, Predictor
from dacergnn.tuning.samples import Sample


def graph_networks(
    samples: Sequence[Sample], *, seed: int, epochs: int, members: int, pooled: bool = False
) -> Predictor:
    """So many networks, from different seeds, as one model."""
    make = partial(GraphNetwork, pooled=pooled)
    found = [train(make, samples, seed=seed + n, epochs=epochs).network for n in range(members)]
    return Predictor(tuple(n.weights() for n in found if isinstance(n, GraphNetwork)), pooled)


def baselines(samples: Sequence[Sample], *, seed: int, epochs: int) -> dict[str, Model]:
    """Those that graph networks are compared with, by name."""
    return {
        "trees": Trees(samples, seed=seed),
        "terms": train(TermNetwork, samples, seed=seed, epochs=epochs),
        "analytic": Analytic(),
    }

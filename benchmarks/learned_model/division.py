"""Divides samples by layers and by graphs, and brings those of several machines to one scale."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean, median

from dacergnn.errors import DacergnnError
from dacergnn.tuning.samples import Measured

FOLDS = 5
"""Number of parts of the layers, and of the graphs; one part is kept from training."""


@dataclass(frozen=True)
class Division:
    """Holds samples to learn from, and unseen samples, whose layers and graphs are in none of the former."""

    learned: Sequence[Measured]
    unseen: Sequence[Measured]


def machine_factors(samples: Sequence[Measured]) -> dict[str, float]:
    """Returns the median of measured over analytic seconds of each machine."""
    ratios: dict[str, list[float]] = {}
    for sample in samples:
        ratios.setdefault(sample.machine, []).append(sample.seconds / float(sample.program.seconds.sum()))
    return {machine: median(own) for machine, own in ratios.items()}


def on_one_scale(samples: Sequence[Measured], factors: Mapping[str, float]) -> list[Measured]:
    """Returns samples as if all machines were equally fast.

    Args:
        factors: The time of each machine (`machine_factors`); all become as fast as their geometric mean.
    """
    mean = geometric_mean(factors.values())
    scales = {machine: mean / factor for machine, factor in factors.items()}
    return [
        replace(s, seconds=s.seconds * scales[s.machine], deviation=s.deviation * scales[s.machine]) for s in samples
    ]


def divide(samples: Sequence[Measured], seed: int = 0, fold: int = 0) -> Division:
    """Divides samples: one of `FOLDS` parts of the layers and one of the graphs are kept from training.

    A sample is unseen if both its layer and its graph are kept; if only one of them is, it is left out. Each layer,
    and each graph, is kept in one ``fold`` of 0 to ``FOLDS`` - 1, on all machines.

    Raises:
        DacergnnError: The samples to learn from or the unseen samples would be empty.
    """
    rng = random.Random(seed)

    def kept(names: Iterable[str]) -> set[str]:
        ordered = sorted({*names})
        rng.shuffle(ordered)
        return {*ordered[fold::FOLDS]}

    layers, graphs = kept(s.layer for s in samples), kept(s.graph for s in samples)
    division = Division(
        [s for s in samples if s.layer not in layers and s.graph not in graphs],
        [s for s in samples if s.layer in layers and s.graph in graphs],
    )
    if not division.learned or not division.unseen:
        raise DacergnnError(f"samples: {len(samples)} of them are too few to keep layers and graphs apart; give more.")
    return division

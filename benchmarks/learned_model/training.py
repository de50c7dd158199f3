"""Trains performance models on measured programs by the loss of Singh et al. and Adagrad.

A search compares programs that compute the same on one graph. So the loss has a second term, which the paper has not:
how far the errors of such programs are from their mean. Each batch has some of such programs together.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.learned_model.batch import Batch
from dacergnn.errors import DacergnnError
from dacergnn.tuning.features import THREADS, Floats, ProgramFeatures
from dacergnn.tuning.samples import Sample

LEARNING_RATE, WEIGHT_DECAY = 0.0075, 1e-4
PREDICTED_AT_ONCE = 256
RANKING = 2.0
"""Weight of the second term of the loss."""
TOGETHER = 4
"""The most samples of a group that stay together."""
DEVIATIONS = (0.02, 0.5)
"""The least and the largest relative deviation that a sample counts with."""
T = TypeVar("T")
Network = Callable[[Batch], nn.Module]
"""Makes a network from the operators of a training set."""


@dataclass(frozen=True)
class Trained:
    """Holds a trained network, and its losses by epoch on the training samples and on the validation samples."""

    network: nn.Module
    losses: tuple[float, ...]
    validation: tuple[float, ...]
    threads: int = THREADS

    def predict(self, programs: Sequence[ProgramFeatures]) -> np.ndarray:
        """Returns the predicted seconds of each program, float64."""
        self.network.eval()
        with torch.no_grad():
            seconds = [self.network(Batch.of(part)).double().numpy() for part in _parts(programs, PREDICTED_AT_ONCE)]
        return np.concatenate(seconds) if seconds else np.zeros(0)

    def logarithms(self, programs: Sequence[ProgramFeatures]) -> np.ndarray:
        """Returns the logarithms of the seconds of each program: [1, programs]."""
        return np.log(self.predict(programs))[None]


def relative_error(predicted: Tensor, measured: Tensor, weight: Tensor) -> Tensor:
    """Returns the mean of weight * |predicted / measured - 1| over programs; `weights` returns the weights."""
    return (weight * (predicted / measured - 1).abs()).mean()


def ranking_error(predicted: Tensor, measured: Tensor, group: Tensor) -> Tensor:
    """Returns the mean over programs of |e - mean of e in the program's group|, where e = log(predicted / measured).

    Args:
        group: [programs] int64, the number of each program's group, from 0 on.
    """
    error = torch.log(predicted / measured)
    zeros = torch.zeros(int(group.max()) + 1, dtype=error.dtype)
    mean = zeros.index_add(0, group, error) / torch.bincount(group)
    return (error - mean[group]).abs().mean()


def weights(samples: Sequence[Sample]) -> Floats:
    """Returns the weight of each sample, 1 on average: best time of its group / its time / its relative deviation.

    Both factors are those of Singh et al. Fast programs count more than slow ones, and exact measurements more than
    noisy ones.
    """
    best: dict[tuple[str, ...], float] = {}
    for sample in samples:
        best[sample.group] = min(sample.seconds, best.get(sample.group, sample.seconds))
    seconds = np.array([sample.seconds for sample in samples])
    deviation = np.clip(np.array([sample.deviation for sample in samples]) / seconds, *DEVIATIONS)
    importance = np.array([best[sample.group] for sample in samples]) / seconds / deviation
    return (importance / importance.mean()).astype(np.float32)


@contextmanager
def _one_thread() -> Generator[None]:
    """Lets torch use one thread: batches are so small that two take longer."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@_one_thread()
def train(
    make: Network,
    samples: Sequence[Sample],
    *,
    seed: int = 0,
    epochs: int = 20,
    batch: int = 32,
    validation: float = 0.1,
    ranking: float = RANKING,
    learning_rate: float = LEARNING_RATE,
    weight_decay: float = WEIGHT_DECAY,
) -> Trained:
    """Trains a network and keeps its weights at the least validation loss; equal arguments give equal weights.

    Args:
        make: Makes the network, such as `GraphNetwork`.
        samples: Measured programs; at least two.
        batch: Programs of a step.
        validation: Share of the layers to leave out for validation, at least one layer.
        ranking: Weight of `ranking_error` beside `relative_error`.

    Raises:
        DacergnnError: There are too few samples to leave some out, or one has no positive time.
    """
    bad = next((s for s in samples if not 0 < s.seconds < math.inf), None)
    if bad is not None:
        place = f"{bad.layer!r} on {bad.graph!r}"
        raise DacergnnError(f"samples: {place} took {bad.seconds!r} s; measured times are positive numbers.")
    learned, held = _split(samples, validation, random.Random(seed))
    if not learned or not held:
        raise DacergnnError(f"samples: {len(samples)} of them are too few; give some of two layers at least.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = make(Batch.of([s.program for s in learned]))
    optimizer = torch.optim.Adagrad(network.parameters(), lr=learning_rate, weight_decay=weight_decay)
    train_weights, order = weights(learned), random.Random(seed)
    checks = [*_steps(held, weights(held), [*range(len(held))], PREDICTED_AT_ONCE)]
    losses: list[float] = []
    checked: list[float] = []
    best, state = math.inf, copy.deepcopy(network.state_dict())
    for _ in range(epochs):
        network.train()
        total = 0.0
        for step in _steps(learned, train_weights, _shuffled(learned, order), batch):
            optimizer.zero_grad()
            loss = step.loss(network, ranking)
            loss.backward()
            optimizer.step()
            total += float(loss.detach()) * len(step.weight)
        losses.append(total / len(learned))
        network.eval()
        with torch.no_grad():
            checked.append(sum(float(step.loss(network, ranking)) * len(step.weight) for step in checks) / len(held))
        if checked[-1] < best:
            best, state = checked[-1], copy.deepcopy(network.state_dict())
    network.load_state_dict(state)
    return Trained(network.eval(), tuple(losses), tuple(checked))


def _split(samples: Sequence[Sample], share: float, rng: random.Random) -> tuple[list[Sample], list[Sample]]:
    """Returns samples to learn from and samples to validate with; no layer is in both."""
    layers = [*dict.fromkeys(s.layer for s in samples)]
    rng.shuffle(layers)
    held = {*layers[: max(round(share * len(layers)), 1)]}
    return [s for s in samples if s.layer not in held], [s for s in samples if s.layer in held]


def _shuffled(samples: Sequence[Sample], rng: random.Random) -> list[int]:
    """Returns positions of samples in random order, in which some samples of a group stay together."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for position, sample in enumerate(samples):
        groups.setdefault(sample.group, []).append(position)
    bunches: list[Sequence[int]] = []
    for members in groups.values():
        rng.shuffle(members)
        bunches += _parts(members, TOGETHER)
    rng.shuffle(bunches)
    return [position for bunch in bunches for position in bunch]


@dataclass(frozen=True)
class _Step:
    """Holds programs side by side, with their measured seconds, weights and groups."""

    programs: Batch
    measured: Tensor
    weight: Tensor
    group: Tensor

    def loss(self, network: nn.Module, ranking: float) -> Tensor:
        predicted = network(self.programs)
        ranked = ranking_error(predicted, self.measured, self.group)
        return relative_error(predicted, self.measured, self.weight) + ranking * ranked


def _steps(samples: Sequence[Sample], weight: np.ndarray, order: Sequence[int], size: int) -> Iterator[_Step]:
    """Yields the samples in the order of ``order``, ``size`` at a time."""
    for part in _parts(order, size):
        chosen = [samples[n] for n in part]
        numbers = {group: n for n, group in enumerate(dict.fromkeys(s.group for s in chosen))}
        yield _Step(
            Batch.of([s.program for s in chosen]),
            torch.tensor([s.seconds for s in chosen]),
            torch.from_numpy(weight[list(part)]),
            torch.tensor([numbers[s.group] for s in chosen]),
        )


def _parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))

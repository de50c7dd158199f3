"""Training of performance models on measured programs, as Singh et al. have it: their loss, Adagrad."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from dacergnn.errors import DacergnnError
from dacergnn.performance.batch import Batch
from dacergnn.tuning.features import ProgramFeatures
from dacergnn.tuning.samples import Sample, weights

LEARNING_RATE, WEIGHT_DECAY = 0.0075, 1e-4
PREDICTED_AT_ONCE = 256
T = TypeVar("T")
Network = Callable[[Batch], nn.Module]
"""Makes a network, given the operators of a training set."""


@dataclass(frozen=True)
class Trained:
    """A trained network, and the losses after each epoch on what it learned from and on what it did not see."""

    network: nn.Module
    losses: tuple[float, ...]
    validation: tuple[float, ...]

    def predict(self, programs: Sequence[ProgramFeatures]) -> np.ndarray:
        """Seconds of each program, float64."""
        self.network.eval()
        with torch.no_grad():
            found = [self.network(Batch.of(part)).double().numpy() for part in _parts(programs, PREDICTED_AT_ONCE)]
        return np.concatenate(found) if found else np.zeros(0)


def relative_error(predicted: Tensor, measured: Tensor, weight: Tensor) -> Tensor:
    """The mean of weight * |predicted / measured - 1| over programs; `weights` has the weights."""
    return (weight * (predicted / measured - 1).abs()).mean()


def train(
    make: Network,
    samples: Sequence[Sample],
    *,
    seed: int = 0,
    epochs: int = 100,
    batch: int = 32,
    validation: float = 0.1,
    learning_rate: float = LEARNING_RATE,
    weight_decay: float = WEIGHT_DECAY,
) -> Trained:
    """Train a network; the same again for the same arguments. Kept are its weights at the least validation loss.

    Args:
        make: The kind of network, such as `GraphNetwork`.
        samples: Measured programs; at least two.
        batch: Programs of a step.
        validation: Share of the groups of samples to leave out for validation, at least one of them.

    Raises:
        DacergnnError: There are too few samples to leave some out, or one has no positive time.
    """
    bad = next((s for s in samples if not 0 < s.seconds < math.inf), None)
    if bad is not None:
        raise DacergnnError(f"samples: {bad.group!r} took {bad.seconds!r} s; measured times are positive numbers.")
    learned, held = _split(samples, validation, random.Random(seed))
    if not learned or not held:
        raise DacergnnError(f"samples: {len(samples)} of them are too few; give some of two groups at least.")
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
        positions = [*range(len(learned))]
        order.shuffle(positions)
        total = 0.0
        for programs, measured, weight in _steps(learned, train_weights, positions, batch):
            optimizer.zero_grad()
            loss = relative_error(network(programs), measured, weight)
            loss.backward()
            optimizer.step()
            total += float(loss.detach()) * len(measured)
        losses.append(total / len(learned))
        network.eval()
        with torch.no_grad():
            found = [float(relative_error(network(p), m, w)) * len(m) for p, m, w in checks]
        checked.append(sum(found) / len(held))
        if checked[-1] < best:
            best, state = checked[-1], copy.deepcopy(network.state_dict())
    network.load_state_dict(state)
    return Trained(network.eval(), tuple(losses), tuple(checked))


def _split(samples: Sequence[Sample], share: float, rng: random.Random) -> tuple[list[Sample], list[Sample]]:
    """Samples to learn from and to validate with: no group is in both."""
    groups = [*dict.fromkeys(s.group for s in samples)]
    rng.shuffle(groups)
    held = {*groups[: max(round(share * len(groups)), 1)]}
    return [s for s in samples if s.group not in held], [s for s in samples if s.group in held]


def _steps(
    samples: Sequence[Sample], weight: np.ndarray, order: Sequence[int], size: int
) -> Iterator[tuple[Batch, Tensor, Tensor]]:
    """Programs, their measured seconds and weights, so many at a time."""
    for part in _parts(order, size):
        chosen = [samples[n] for n in part]
        measured = torch.tensor([s.seconds for s in chosen])
        yield Batch.of([s.program for s in chosen]), measured, torch.from_numpy(weight[list(part)])


def _parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))

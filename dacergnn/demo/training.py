"""Trains a model step by step, and times each step."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn import functional

from dacergnn.demo.task import Task


@dataclass
class Run:
    """Holds a model in training, its losses and the seconds that each epoch took."""

    name: str
    model: nn.Module
    task: Task
    losses: list[float] = field(default_factory=list[float])
    seconds: list[float] = field(default_factory=list[float])

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01, weight_decay=5e-4)

    def epoch(self) -> None:
        """Runs one full-batch step, and records its loss and its time."""
        start = time.perf_counter()
        loss = self.loss_and_gradients()
        self.optimizer.step()
        self.seconds.append(time.perf_counter() - start)
        self.losses.append(loss)

    def loss_and_gradients(self) -> float:
        """Runs forward and backward, and returns the loss; the gradients stay on the parameters."""
        self.optimizer.zero_grad(set_to_none=True)
        scores = self.model(self.task.edge_index, self.task.edge_type)
        rows = self.task.train_idx
        loss = functional.cross_entropy(scores[rows], self.task.label[rows])
        loss.backward()  # pyright: ignore[reportUnknownMemberType]
        return loss.item()

    def accuracy(self) -> float:
        """Returns the share of the test nodes whose class is predicted correctly."""
        with torch.no_grad():
            scores = self.model(self.task.edge_index, self.task.edge_type)
        rows = self.task.test_idx
        return (scores[rows].argmax(1) == self.task.label[rows]).float().mean().item()

    @property
    def epoch_ms(self) -> float:
        """Returns the median time of an epoch in milliseconds, without the first one (compilation, first touch)."""
        return 1e3 * statistics.median(self.seconds[1:] or self.seconds)

"""A feed-forward model in the manner of Halide's (Adams et al.): it predicts coefficients of hand-made terms.

Each operator stands by itself: its time is the dot product of terms, read off its features, with coefficients that are
never negative; the time of a program is the sum over its operators.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from dacergnn.performance.batch import Batch, Embedding
from dacergnn.tuning.features import FEATURE_NAMES
from dacergnn.tuning.schedules import NANO

TERMS = {
    "flops_ns": 1.0, "streamed_ns": 1.0, "far_ns": 1.0, "gathered_ns": 1.0, "rows_ns": 1.0, "functions_ns": 1.0,
    "ns_waiting": 0.1, "vector_operations": 0.01, "scalar_operations": 0.1, "work": 0.01, "tasks": 100.0, "tiles": 10.0,
    "lines": 0.1, "gathered_lines": 1.0, "rows_outer": 0.1, "rows_inner": 0.1, "allocated_pages": 100.0,
}  # fmt: skip
"""Features that are terms, and about how many nanoseconds one of them may stand for."""
START_NS = 1000.0
"""The last term: an operator has to be started."""


class TermNetwork(nn.Module):
    """Predicts the seconds of programs.

    Args:
        sample: Operators to take the normalization of features from: those of the training set.
        width: Of each of the two embeddings of features.
    """

    def __init__(self, sample: Batch, width: int = 32) -> None:
        super().__init__()
        self.invariant = Embedding(sample.parts.invariant, width)
        self.dependent = Embedding(sample.parts.dependent, width)
        last = nn.Linear(2 * width, len(TERMS) + 1)
        nn.init.zeros_(last.weight)
        nn.init.constant_(last.bias, math.log(math.expm1(0.5)))  # all coefficients start at a half
        self.coefficients = nn.Sequential(nn.Linear(2 * width, 2 * width), nn.ReLU(), last)
        self._columns = [FEATURE_NAMES[1].index(name) for name in TERMS]
        self._scale = torch.tensor([*TERMS.values()])

    def forward(self, batch: Batch) -> Tensor:
        """[programs] seconds."""
        kinds = (self.invariant(batch.invariant), self.dependent(batch.dependent))
        coefficients = softplus(self.coefficients(torch.relu(torch.cat(kinds, dim=1))))
        terms = torch.expm1(batch.dependent[:, self._columns]) * self._scale
        terms = torch.cat((terms, terms.new_full((len(terms), 1), START_NS)), dim=1)
        return batch.sums((coefficients * terms).sum(dim=1)) / NANO

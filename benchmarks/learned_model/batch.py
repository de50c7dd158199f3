"""Programs side by side as input of networks, and layers that the networks have in common."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from dacergnn.graph import HeteroGraph
from dacergnn.tuning.features import ProgramFeatures
from dacergnn.tuning.samples import Joined, joined
from dacergnn.tuning.terms import COUNT, START, terms

LEAST_SPREAD = 1e-3
"""Features with a smaller standard deviation in the training set are not scaled; their mean is subtracted."""


@dataclass(frozen=True)
class Batch:
    """Holds the operators of several programs as a block-diagonal graph."""

    parts: Joined

    @classmethod
    def of(cls, programs: Sequence[ProgramFeatures]) -> Batch:
        """Joins programs, at least one."""
        return cls(joined(programs))

    @cached_property
    def invariant(self) -> Tensor:
        return torch.from_numpy(self.parts.invariant)

    @cached_property
    def dependent(self) -> Tensor:
        return torch.from_numpy(self.parts.dependent)

    @cached_property
    def terms(self) -> Tensor:
        """Returns the terms: [operators, COUNT] seconds."""
        return torch.from_numpy(terms(self.parts.dependent))

    @cached_property
    def graph(self) -> HeteroGraph:
        """Returns the graph of operators: edges to themselves, and both ways to operators that share data with them."""
        loops = np.arange(len(self.parts.owner))
        here, there = self.parts.edges.T
        both_ways = np.concatenate((here, there, loops)), np.concatenate((there, here, loops))
        return HeteroGraph.from_arrays(both_ways, None, num_nodes=len(loops))

    def sums(self, rows: Tensor) -> Tensor:
        """Returns [programs, ...]: the sums of rows over the operators of each program."""
        zeros = rows.new_zeros(self.parts.count, *rows.shape[1:])
        return zeros.index_add(0, torch.from_numpy(self.parts.owner), rows)


class Embedding(nn.Module):
    """Applies a linear layer to features of one kind, normalized over the training set.

    Args:
        features: [operators, features] of the training set.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, features: np.ndarray, width: int) -> None:
        super().__init__()
        values = torch.from_numpy(features).double()
        spread = values.std(dim=0, correction=0)
        self.register_buffer("mean", values.mean(dim=0).float())
        self.register_buffer("scale", torch.where(spread > LEAST_SPREAD, spread, 1.0).float())
        self.linear = nn.Linear(values.shape[1], width)

    def forward(self, features: Tensor) -> Tensor:
        return self.linear((features - self.mean) / self.scale)


class Coefficients(nn.Linear):
    """Computes coefficients of terms, which are never negative and equal `START` before training."""

    def __init__(self, features: int) -> None:
        super().__init__(features, COUNT)
        nn.init.zeros_(self.weight)
        nn.init.constant_(self.bias, math.log(math.expm1(START)))

    def forward(self, input: Tensor) -> Tensor:
        return softplus(super().forward(input))

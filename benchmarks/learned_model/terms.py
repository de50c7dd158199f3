"""A feed-forward model in the manner of Halide's (Adams et al.): it predicts coefficients of hand-made terms.

It predicts each operator without the others.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.learned_model.batch import Batch, Coefficients, Embedding


class TermNetwork(nn.Module):
    """Predicts the seconds of programs.

    Args:
        sample: Operators of the training set, by which features are normalized.
        width: Width of each of the two embeddings of features.
    """

    def __init__(self, sample: Batch, width: int = 32) -> None:
        super().__init__()
        self.invariant = Embedding(sample.parts.invariant, width)
        self.dependent = Embedding(sample.parts.dependent, width)
        self.hidden = nn.Linear(2 * width, 2 * width)
        self.coefficients = Coefficients(2 * width)

    def forward(self, batch: Batch) -> Tensor:
        """Returns [programs] predicted seconds."""
        kinds = (self.invariant(batch.invariant), self.dependent(batch.dependent))
        hidden = torch.relu(self.hidden(torch.relu(torch.cat(kinds, dim=1))))
        return batch.sums((self.coefficients(hidden) * batch.terms).sum(dim=1))

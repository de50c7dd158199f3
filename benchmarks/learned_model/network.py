"""The performance model of Singh et al.: graph convolutions over the operators of a program.

Features of each kind are normalized and embedded by a linear layer and ReLU; the two embeddings are concatenated. Two
convolutions follow: a linear layer, the average over an operator and its neighbours in the data flow, batch
normalization, ReLU. Embeddings before, between and after them are summed over the operators, and a linear layer reads
the sums.

The paper reads the run time from that layer. Here times span seven orders of magnitude and must be positive, so it
gives coefficients of hand-made terms of the time (`dacergnn.tuning.terms`), in two forms. A linear layer of sums is a
sum of linear layers, so the paper's prediction is a sum over operators: ``pooled=False`` reads coefficients for each
operator's terms. ``pooled=True`` reads coefficients for the terms of the whole program from the sums.

The convolutions are compiled layers themselves, whose program is a mean over neighbours.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.learned_model.batch import Batch, Coefficients, Embedding
from dacergnn.config import Config
from dacergnn.modules.functions import ProgramFunction

DEPTH = 0
"""Number of convolutions. The paper found two best; here none rank pairs best (docs/results/tuning.md)."""
AVERAGE = ProgramFunction(
    """
def average(g, h, W):
    for n in g.dst_nodes():
        n["y"] = mean(linear(e.src.h, W) for e in n.incoming_edges())
    return y
""",
    {},
    Config(tune="off"),  # uses no performance model, because this function serves to train one
)


class Convolution(nn.Module):
    """Computes relu(norm(A' h W)), where A' averages over neighbours."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(width, width)))
        self.norm = nn.BatchNorm1d(width)

    def forward(self, batch: Batch, hidden: Tensor) -> Tensor:
        return torch.relu(self.norm(AVERAGE(batch.graph, hidden, self.weight)))


class GraphNetwork(nn.Module):
    """Predicts the seconds of programs.

    Args:
        sample: Operators of the training set, by which features are normalized.
        width: Width of each of the two embeddings; an operator has both.
        pooled: Whether the readout reads sums over operators.
        depth: Number of convolutions.
    """

    def __init__(self, sample: Batch, width: int = 32, *, pooled: bool = False, depth: int = DEPTH) -> None:
        super().__init__()
        self.pooled = pooled
        self.invariant = Embedding(sample.parts.invariant, width)
        self.dependent = Embedding(sample.parts.dependent, width)
        self.convolutions = nn.ModuleList(Convolution(2 * width) for _ in range(depth))
        self.readout = Coefficients((depth + 1) * 2 * width)

    def forward(self, batch: Batch) -> Tensor:
        """Returns [programs] predicted seconds."""
        hidden = torch.relu(torch.cat((self.invariant(batch.invariant), self.dependent(batch.dependent)), dim=1))
        embeddings = [hidden]
        for convolution in self.convolutions:
            hidden = convolution(batch, hidden)
            embeddings.append(hidden)
        read = torch.cat(embeddings, dim=1)
        if self.pooled:
            return (self.readout(batch.sums(read)) * batch.sums(batch.terms)).sum(dim=1)
        return batch.sums((self.readout(read) * batch.terms).sum(dim=1))

    def weights(self) -> dict[str, np.ndarray]:
        """Returns the weights for a `Predictor`, which knows no convolutions and no pooling."""
        assert not self.pooled and not len(self.convolutions)
        arrays: dict[str, Tensor] = {}
        for kind, layer in (("invariant", self.invariant), ("dependent", self.dependent)):
            arrays |= {f"{kind}_mean": layer.mean, f"{kind}_scale": layer.scale}
            arrays |= {f"{kind}_weight": layer.linear.weight.T, f"{kind}_bias": layer.linear.bias}
        arrays |= {"readout_weight": self.readout.weight.T, "readout_bias": self.readout.bias}
        return {name: value.detach().clone().numpy() for name, value in arrays.items()}

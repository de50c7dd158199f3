"""RGCN, RGAT and HGT as users of PyG write them: layers derived from `MessagePassing`, with types as tensors."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.inits import glorot
from torch_geometric.utils import softmax

import dacergnn


def typed_linear(x: Tensor, weight: Tensor, types: Tensor) -> Tensor:
    """Multiplies each of the rows x [N, ..., K] by the matrix of its type, weight [types, ..., K, M]."""
    return (x.unsqueeze(-2) @ weight[types]).squeeze(-2)


def reset(*weights: Tensor) -> None:
    for weight in weights:
        glorot(weight)


class RGCN(MessagePassing):
    """Sums neighbours, transformed by relation and weighted by ``norm`` [E], and the transformed node itself."""

    def __init__(self, channels: int, out_channels: int, relations: int) -> None:
        super().__init__(aggr="sum")
        self.weight = nn.Parameter(torch.empty(relations, channels, out_channels))
        self.root = nn.Parameter(torch.empty(channels, out_channels))
        self.bias = nn.Parameter(torch.zeros(out_channels))
        reset(self.weight, self.root)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor, norm: Tensor) -> Tensor:
        out = self.propagate(edge_index, x=x, edge_type=edge_type, norm=norm)
        return out + x @ self.root + self.bias

    def message(self, x_j: Tensor, edge_type: Tensor, norm: Tensor) -> Tensor:
        return norm.view(-1, 1) * typed_linear(x_j, self.weight, edge_type)


class RGAT(MessagePassing):
    """Computes additive attention over all neighbours, which are transformed by relation."""

    def __init__(self, channels: int, out_channels: int, relations: int, heads: int = 1, slope: float = 0.2) -> None:
        super().__init__(aggr="sum", node_dim=0)
        self.weight = nn.Parameter(torch.empty(relations, channels, heads * out_channels))
        self.q, self.k = nn.Parameter(torch.empty(heads, out_channels)), nn.Parameter(torch.empty(heads, out_channels))
        self.bias = nn.Parameter(torch.zeros(heads, out_channels))
        self.slope = slope
        reset(self.weight, self.q, self.k)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        out = self.propagate(edge_index, x=x, edge_type=edge_type)
        return (out + self.bias).flatten(1)

    def message(
        self, x_i: Tensor, x_j: Tensor, edge_type: Tensor, index: Tensor, ptr: Tensor | None, size_i: int | None
    ) -> Tensor:
        hs = typed_linear(x_j, self.weight, edge_type).view(-1, *self.k.shape)
        ht = typed_linear(x_i, self.weight, edge_type).view(-1, *self.q.shape)
        score = F.leaky_relu((ht * self.q).sum(-1) + (hs * self.k).sum(-1), self.slope)
        return softmax(score, index, ptr, size_i).unsqueeze(-1) * hs


class HGT(MessagePassing):
    """Computes the heterogeneous graph transformer: attention and messages by relation, the rest by node type."""

    def __init__(self, channels: int, node_types: int, relations: int, heads: int = 1) -> None:
        super().__init__(aggr="sum", node_dim=0)
        dim = channels // heads
        for name in ("keys", "queries", "values", "out"):
            self.register_parameter(name, nn.Parameter(torch.empty(node_types, channels, channels)))
        self.attention = nn.Parameter(torch.empty(relations, heads, dim, dim))
        self.messages = nn.Parameter(torch.empty(relations, heads, dim, dim))
        self.prior = nn.Parameter(torch.ones(relations, heads))
        self.skip = nn.Parameter(torch.ones(node_types))
        self.shape = (-1, heads, dim)
        reset(self.keys, self.queries, self.values, self.out, self.attention, self.messages)

    def forward(self, x: Tensor, edge_index: Tensor, node_type: Tensor, edge_type: Tensor) -> Tensor:
        k, q, v = (typed_linear(x, w, node_type).view(self.shape) for w in (self.keys, self.queries, self.values))
        out = self.propagate(edge_index, k=k, q=q, v=v, edge_type=edge_type)
        gate = torch.sigmoid(self.skip[node_type]).unsqueeze(-1)
        return x + gate * (typed_linear(out.flatten(1), self.out, node_type) - x)

    def message(
        self, k_j: Tensor, q_i: Tensor, v_j: Tensor, edge_type: Tensor, index: Tensor, ptr: Tensor | None,
        size_i: int | None,
    ) -> Tensor:  # fmt: skip
        agreement = (typed_linear(k_j, self.attention, edge_type) * q_i).sum(-1)
        score = agreement * self.prior[edge_type] * k_j.shape[-1] ** -0.5
        return softmax(score, index, ptr, size_i).unsqueeze(-1) * typed_linear(v_j, self.messages, edge_type)


def main() -> None:
    """Runs each layer compiled and as it is, and prints the largest difference of the results."""
    edge_index, edge_type = torch.randint(500, (2, 4000)), torch.randint(8, (4000,))
    x, node_type = torch.randn(500, 32), torch.randint(3, (500,))
    for layer, args in (
        (RGCN(32, 16, 8), (edge_type, torch.rand(4000))),
        (RGAT(32, 16, 8, heads=2), (edge_type,)),
        (HGT(32, 3, 8, heads=4), (node_type, edge_type)),
    ):
        found, expected = dacergnn.optimize(layer)(x, edge_index, *args), layer(x, edge_index, *args)
        print(f"{type(layer).__name__}: largest difference {(found - expected).abs().max().item():.1e}")


if __name__ == "__main__":
    main()

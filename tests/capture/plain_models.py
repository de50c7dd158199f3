"""Models without a layer of PyG or DGL: indices, index_add_, scatter_reduce and PyG's scatter in plain modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.utils import scatter, softmax

N, E, R, WIDTH = 30, 90, 4, 6


class KGIN(nn.Module):
    """Aggregates neighbours in a knowledge graph, scaled by their relations."""

    def __init__(self) -> None:
        super().__init__()
        self.relations = nn.Parameter(torch.randn(R - 1, WIDTH))

    def forward(self, entities: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        head, tail = edge_index
        total = entities
        for _ in range(2):
            neighbours = entities[tail] * self.relations[edge_type - 1]
            entities = F.normalize(scatter(neighbours, head, dim=0, dim_size=entities.shape[0], reduce="mean"))
            total = total + entities
        return total


class CompGCN(nn.Module):
    """Composes neighbours with the embeddings of their relations, in both directions of each edge."""

    def __init__(self) -> None:
        super().__init__()
        self.inward, self.outward, self.own = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.relations = nn.Embedding(R, WIDTH)
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        src, dst = edge_index[0], edge_index[1]
        relation = self.relations(edge_type)
        ones = torch.ones(dst.numel(), dtype=x.dtype)
        degree = torch.zeros(x.size(0), dtype=x.dtype).index_add_(0, dst, ones).clamp(min=1)
        there = torch.zeros_like(x).index_add_(0, dst, self.inward(x[src] - relation))
        back = torch.zeros_like(x).index_add_(0, src, self.outward(x[dst] * relation))
        return torch.tanh(self.norm((there / degree.unsqueeze(-1) + back + self.own(x)) / 3))


class BellmanFord(nn.Module):
    """Generalizes the shortest path from a boundary: messages by relation, summed together with the boundary."""

    def __init__(self) -> None:
        super().__init__()
        self.relations = nn.Parameter(torch.randn(R, WIDTH))
        self.linear = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, boundary: Tensor, src: Tensor, dst: Tensor, edge_type: Tensor) -> Tensor:
        state = boundary
        for _ in range(3):
            messages = state.index_select(0, src) * self.relations.index_select(0, edge_type)
            found = torch.zeros_like(state).scatter_add(0, dst.unsqueeze(-1).expand_as(messages), messages) + boundary
            state = torch.relu(self.linear(torch.cat([state, found], dim=-1)))
        return state


class Equivariant(nn.Module):
    """Moves nodes along the differences of their positions, weighted by functions of distances (EGNN)."""

    def __init__(self) -> None:
        super().__init__()
        self.edge = nn.Sequential(nn.Linear(2 * WIDTH + 1, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH), nn.SiLU())
        self.coordinate = nn.Linear(WIDTH, 1, bias=False)
        self.node = nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))

    def forward(self, h: Tensor, position: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        row, col = edge_index
        difference = position[row] - position[col]
        distance = (difference * difference).sum(dim=-1, keepdim=True)
        message = self.edge(torch.cat([h[row], h[col], distance], dim=1))
        shift = torch.zeros_like(position).index_add_(0, row, difference * self.coordinate(message))
        received = torch.zeros(h.size(0), WIDTH, dtype=h.dtype).index_add(0, row, message)
        return h + self.node(torch.cat([h, received], dim=1)), position + shift


class MeshGraphNet(nn.Module):
    """Updates edges from their ends, and nodes from their edges, with residuals and norms."""

    def __init__(self) -> None:
        super().__init__()
        self.edges, self.nodes = nn.ModuleList(), nn.ModuleList()
        for _ in range(2):
            self.edges.append(nn.Sequential(nn.Linear(3 * WIDTH, WIDTH), nn.ReLU(), nn.LayerNorm(WIDTH)))
            self.nodes.append(nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.ReLU(), nn.LayerNorm(WIDTH)))

    def forward(self, x: Tensor, senders: Tensor, receivers: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
        for edges, nodes in zip(self.edges, self.nodes, strict=True):
            ends = torch.index_select(x, 0, senders), torch.index_select(x, 0, receivers)
            e = e + edges(torch.cat([*ends, e], dim=-1))
            total = torch.zeros_like(x).index_add_(0, receivers, e)
            x = x + nodes(torch.cat([x, total], dim=-1))
        return x, e


class Attention(nn.Module):
    """Weighs neighbours by PyG's softmax over their edges, of several heads, and takes the largest value, too."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.score = nn.Linear(WIDTH, 2 * WIDTH), nn.Parameter(torch.randn(2, 2 * WIDTH))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        src, dst = edge_index
        h = self.linear(x).view(-1, 2, WIDTH)
        score = (torch.cat([h[src], h[dst]], dim=-1) * self.score).sum(-1)
        weight = softmax(F.leaky_relu(score), dst, num_nodes=x.size(0))
        index = dst.view(-1, 1, 1).expand(-1, 2, WIDTH)
        largest = torch.zeros_like(h).scatter_reduce(0, index, h[src], "amax", include_self=False)
        return (torch.zeros_like(h).index_add_(0, dst, weight.unsqueeze(-1) * h[src]) + largest).flatten(1)


def arguments(nodes: int, edges: int, seed: int = 0) -> Mapping[str, Any]:
    """Returns tensors by the names that the models have for them."""
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(nodes, (2, edges), generator=generator)
    x = torch.randn(nodes, WIDTH, generator=generator, dtype=torch.float64)
    return {
        "x": x, "entities": x, "boundary": x, "h": x, "position": x[:, :3].clone(),
        "edge_index": edge_index, "src": edge_index[0].clone(), "dst": edge_index[1].clone(),
        "senders": edge_index[0].clone(), "receivers": edge_index[1].clone(),
        "e": torch.randn(edges, WIDTH, generator=generator, dtype=torch.float64),
        "edge_type": torch.randint(1, R, (edges,), generator=generator),
    }  # fmt: skip


MODELS: Mapping[str, Callable[[], nn.Module]] = {
    kind.__name__: kind for kind in (KGIN, CompGCN, BellmanFord, Equivariant, MeshGraphNet, Attention)
}

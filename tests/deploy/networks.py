"""Two-layer networks, trained a few steps, and batches of their graphs, for tests of exports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch.utils import _pytree as pytree

WIDTH, CLASSES, RELATIONS = 16, 4, 5
NODE_TYPES = ["author", "paper", "field"]
EDGE_TYPES = [
    ("author", "writes", "paper"), ("paper", "written_by", "author"), ("paper", "cites", "paper"),
    ("field", "has", "paper"), ("paper", "is_in", "field"), ("author", "knows", "author"),
]  # fmt: skip
Arguments = tuple[Any, ...]


class Hetero(nn.Module):
    """Runs two layers over dictionaries, with norms, activations, dropout and residuals between them."""

    def __init__(self, layer: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, WIDTH)
        self.first = pyg.HeteroDictLinear(dict.fromkeys(NODE_TYPES, WIDTH), WIDTH)
        self.layers = nn.ModuleList([layer(), layer()])
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.BatchNorm1d(WIDTH)])
        self.out = nn.Linear(2 * WIDTH, CLASSES)

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor], kind: Tensor) -> dict[str, Tensor]:
        x_dict = {name: x.relu() for name, x in self.first(x_dict).items()}
        x_dict["field"] = x_dict["field"] + self.embedding(kind)
        before = x_dict["paper"]
        for layer, norm in zip(self.layers, self.norms, strict=True):
            made = layer(x_dict, edge_index_dict)
            x_dict = {name: torch.nn.functional.elu(norm(x)) + x_dict[name] for name, x in made.items()}
            x_dict = {name: torch.nn.functional.dropout(x, 0.5, self.training) for name, x in x_dict.items()}
        paper = self.out(torch.cat([x_dict["paper"], before], dim=-1))
        return {"paper": paper.log_softmax(-1), "author": x_dict["author"]}


class Plain(nn.Module):
    """Runs layers over nodes and edges of one kind, and pools the nodes of each of three graphs."""

    def __init__(self, layers: Sequence[Callable[[int, int], nn.Module]], *, typed: bool) -> None:
        super().__init__()
        self.layers, self.typed = nn.ModuleList([layer(WIDTH, WIDTH) for layer in layers]), typed
        self.out = pyg.MLP([WIDTH, WIDTH, CLASSES])

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
        types = (edge_type,) if self.typed else ()
        for number, layer in enumerate(self.layers):
            x = layer(x.tanh() if number else x, edge_index, *types)
        return self.out(x), pyg.global_mean_pool(x, batch, 3)


class Between(nn.Module):
    """Uses what stands between layers: norms, activations, joins, gathers, pooling, reductions."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(16, 40), nn.BatchNorm1d(40)
        self.slopes, self.table = nn.PReLU(40), nn.Embedding(9, 40)
        self.jump = pyg.JumpingKnowledge("max")
        with torch.no_grad():
            self.norm.running_mean.normal_()  # type: ignore[union-attr]
            self.slopes.weight.uniform_()

    def forward(self, x: Tensor, index: Tensor, batch: Tensor) -> list[Tensor]:
        h = self.slopes(self.norm(self.linear(x)))
        h = self.jump([h, self.table(index), h.flip(-1) if False else h * 0.5])
        unit = torch.nn.functional.normalize(h, dim=-1)
        parts = torch.cat([unit, x], dim=-1).chunk(2, dim=-1)
        h = parts[0] * parts[1] + torch.nn.functional.gelu(parts[0]) - parts[1].sigmoid()
        pooled = [pyg.global_add_pool(h, batch, 4), pyg.global_max_pool(h, batch, 4), pyg.global_mean_pool(h, batch, 4)]
        rows = torch.cat([h, h[index]], dim=0)
        values, places = h.max(dim=-1)
        return [
            *pooled, rows, values, places, h.argmax(-1), h.softmax(-1), h.view(-1, 4, 7).mean(1), h.sum(0),
            h.mean(0, keepdim=True), h[:2], h[-1:], torch.stack([h, -h]), h.amin(-1), torch.full_like(h, float("-inf")),
        ]  # fmt: skip

    @staticmethod
    def arguments(count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the arguments of a call on so many rows."""
        return torch.randn(count, 16), torch.arange(count) * 5 % min(count, 9), torch.arange(count) * 4 // count


def _convs(layer: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: pyg.HeteroConv({key: layer() for key in EDGE_TYPES})


def _sage() -> nn.Module:
    return pyg.SAGEConv((WIDTH, WIDTH), WIDTH)


def _gat() -> nn.Module:
    return pyg.GATConv((WIDTH, WIDTH), WIDTH // 2, heads=2, add_self_loops=False)


HETERO: dict[str, Callable[[], nn.Module]] = {
    "HGT": lambda: pyg.HGTConv(WIDTH, WIDTH, (NODE_TYPES, EDGE_TYPES), heads=2),
    "HeteroConv-SAGE": _convs(_sage),
    "HeteroConv-GATv2": _convs(lambda: pyg.GATv2Conv((WIDTH, WIDTH), WIDTH // 2, heads=2, add_self_loops=False)),
    "HeteroConv-GAT-SAGE": lambda: pyg.HeteroConv({key: _gat() if i else _sage() for i, key in enumerate(EDGE_TYPES)}),
}
PLAIN: dict[str, tuple[Callable[[int, int], nn.Module], bool]] = {
    "RGCN": (lambda i, o: pyg.RGCNConv(i, o, RELATIONS, num_bases=3), True),
    "RGAT": (lambda i, o: pyg.RGATConv(i, o, RELATIONS), True),
    "GAT": (lambda i, o: pyg.GATConv(i, o // 2, heads=2), False),
    "GATv2": (lambda i, o: pyg.GATv2Conv(i, o // 2, heads=2), False),
    "GCN": (pyg.GCNConv, False),
    "SAGE-max": (lambda i, o: pyg.SAGEConv(i, o, aggr="max"), False),
    "GIN": (lambda i, o: pyg.GINConv(nn.Sequential(nn.Linear(i, o), nn.ReLU(), nn.Linear(o, o))), False),
}
NAMES = [*HETERO, *PLAIN]


@dataclass
class Trained:
    """Holds a trained model in eval mode, and makes arguments of its calls."""

    name: str
    model: nn.Module

    def arguments(self, nodes: int, edges: int, seed: int = 0) -> Arguments:
        """Returns the arguments of a call on a graph of about this size; some node types and relations are empty."""
        generator = torch.Generator().manual_seed(seed)

        def integers(bound: int, *shape: int) -> Tensor:
            return torch.randint(bound, shape, generator=generator)

        def features(count: int) -> Tensor:
            return torch.randn(count, WIDTH, generator=generator)

        if self.name not in HETERO:
            count = 0 if nodes == 0 else edges
            pairs = integers(max(nodes, 1), 2, count)
            return features(nodes), pairs, integers(RELATIONS, count), integers(3, nodes).sort().values
        missing = int(integers(8, 1)) if seed else 7  # names a type without nodes, if there is one
        counts = {n: 0 if i == missing else max(nodes - 3 * i, 0) for i, n in enumerate(NODE_TYPES)}
        edge_index_dict: dict[Any, Tensor] = {}
        for key in EDGE_TYPES:
            empty = min(counts[key[0]], counts[key[-1]]) == 0 or (seed and int(integers(4, 1)) == 0)
            ends = [integers(max(counts[end], 1), 0 if empty else edges) for end in (key[0], key[-1])]
            edge_index_dict[key] = torch.stack(ends)
        return {n: features(c) for n, c in counts.items()}, edge_index_dict, integers(7, counts["field"])


def trained(name: str) -> Trained:
    """Returns a model after a few steps of training: two layers of a name, or those of names with "+" in between."""
    torch.manual_seed(0)
    if name in HETERO:
        model: nn.Module = Hetero(HETERO[name])
    else:
        layers = [PLAIN[own] for own in (name.split("+") if "+" in name else (name, name))]
        model = Plain([layer for layer, _ in layers], typed=layers[0][1])
    made = Trained(name, model)
    arguments = made.arguments(40, 120)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        sum(t.square().mean() for t in leaves(model(*arguments))).backward()  # type: ignore[union-attr]
        optimizer.step()
    model.eval()
    return made


def leaves(tree: Any) -> list[Tensor]:
    """Returns the tensors of a structure."""
    return pytree.tree_leaves(tree)


def assert_equal(results: list[Tensor], expected: list[Tensor]) -> None:
    """Compares results to 1e-6 of the size of the values, with room for sums in another order."""
    assert len(results) == len(expected)
    for result, wanted in zip(results, expected, strict=True):
        size = max(1.0, float(wanted.abs().max())) if wanted.numel() else 1.0
        torch.testing.assert_close(result, wanted.detach(), rtol=1e-6, atol=2e-6 * size, equal_nan=True)

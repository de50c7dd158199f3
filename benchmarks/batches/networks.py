"""Makes the networks that are trained: one layer and ReLU for each hop, and a linear classifier of the seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from benchmarks.batches.settings import BLOCKS, PLAIN, RELATIONAL
from benchmarks.relational.problem import Problem

HEADS = 4


class Plain(nn.Module):
    """Represents a network over edges of all types, called with features, edges and perhaps edge types."""

    def __init__(self, convs: list[nn.Module], size: int) -> None:
        super().__init__()
        self.convs, self.head = nn.ModuleList(convs), nn.Linear(size, size)

    def forward(self, x: Tensor, *edges: Tensor) -> Tensor:
        for conv in self.convs:
            x = conv(x, *edges).relu()
        return self.head(x)


class Stack(nn.Module):
    """Runs layers with ReLU after each, as `to_hetero` takes them."""

    def __init__(self, convs: list[nn.Module]) -> None:
        super().__init__()
        self.convs = nn.ModuleList(convs)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        return x


class Typed(nn.Module):
    """Represents a network over dictionaries by type; types that a layer returns no rows for keep their rows."""

    def __init__(self, convs: list[nn.Module], size: int, seed_type: str) -> None:
        super().__init__()
        self.convs, self.head, self.seed_type = nn.ModuleList(convs), nn.Linear(size, size), seed_type

    def forward(self, x: dict[str, Tensor], edges: dict[Any, Tensor]) -> Tensor:
        for conv in self.convs:
            x = x | {name: rows.relu() for name, rows in conv(x, edges).items() if rows is not None}
        return self.head(x[self.seed_type])


class Blocks(nn.Module):
    """Represents a network over DGL's blocks, one for each layer, each with the types of its edges."""

    def __init__(self, convs: list[nn.Module], size: int, relational: bool) -> None:
        super().__init__()
        self.convs, self.head, self.relational = nn.ModuleList(convs), nn.Linear(size, size), relational

    def forward(self, x: Tensor, blocks: list[Any], types: list[Tensor]) -> Tensor:
        for conv, block, etypes in zip(self.convs, blocks, types, strict=True):
            rows = conv(block, x, etypes) if self.relational else conv(block, x)
            x = rows.flatten(1).relu()
        return self.head(x)


def make_network(layer: str, problem: Problem, hops: int, seed_type: int) -> nn.Module:
    """Returns the network of a layer, whose features are all of the problem's hidden size.

    Args:
        seed_type: The number of the seeds' node type.
    """
    size = problem.hidden
    if layer in BLOCKS:
        return Blocks([_dgl(layer, problem) for _ in range(hops)], size, layer == "RelGraphConv")
    if layer in PLAIN or layer in RELATIONAL:
        return Plain([_plain(layer, problem) for _ in range(hops)], size)
    return Typed(_typed(layer, problem, hops), size, f"t{seed_type}")


def _dgl(layer: str, problem: Problem) -> nn.Module:
    from dgl.nn import pytorch as dgl

    library: Any = dgl
    if layer == "RelGraphConv":
        return library.RelGraphConv(problem.hidden, problem.hidden, problem.num_etypes)
    return library.GATConv(problem.hidden, problem.hidden // HEADS, HEADS, allow_zero_in_degree=True)


def _plain(layer: str, problem: Problem) -> nn.Module:
    from torch_geometric import nn as pyg

    make: Any = getattr(pyg, layer)
    if layer in RELATIONAL:
        return make(problem.hidden, problem.hidden, problem.num_etypes)
    if layer.startswith("GAT"):
        return make(problem.hidden, problem.hidden // HEADS, heads=HEADS)
    return make(problem.hidden, problem.hidden)


def _typed(layer: str, problem: Problem, hops: int) -> list[nn.Module]:
    """Returns layers over dictionaries; for `to_hetero`, one layer that contains all hops."""
    from torch_geometric import nn as pyg

    from benchmarks.relational.peers_pyg import edge_key

    library: Any = pyg
    size = problem.hidden
    keys = [edge_key(problem, r) for r in range(problem.num_etypes)]
    types = [f"t{i}" for i in range(problem.num_ntypes)]
    if layer == "HGTConv":
        return [library.HGTConv(size, size, (types, keys), heads=HEADS) for _ in range(hops)]
    if layer == "to_hetero(SAGEConv)":
        convs: list[nn.Module] = [library.SAGEConv((-1, -1), size) for _ in range(hops)]
        return [library.to_hetero(Stack(convs), (types, keys))]
    makes: dict[str, Callable[[], nn.Module]] = {
        "HeteroConv(SAGEConv)": lambda: library.SAGEConv(size, size),
        "HeteroConv(GATv2Conv)": lambda: library.GATv2Conv(size, size // HEADS, heads=HEADS, add_self_loops=False),
    }
    return [library.HeteroConv({key: makes[layer]() for key in keys}) for _ in range(hops)]

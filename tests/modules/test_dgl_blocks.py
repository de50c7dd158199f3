"""Relations of a block between nodes of two types, of which destinations may be the more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn

dgl = pytest.importorskip("dgl")
dglnn = pytest.importorskip("dgl.nn")

SOURCES, DESTINATIONS, K, M = 2, 5, 3, 4
LAYERS: dict[str, Callable[[], nn.Module]] = {
    "GraphConv": lambda: dglnn.GraphConv(K, M, allow_zero_in_degree=True),
    "GraphConv-right": lambda: dglnn.GraphConv(K, M, norm="right", allow_zero_in_degree=True),
    "GATConv": lambda: dglnn.GATConv((K, K), M, 2, allow_zero_in_degree=True),
    "GATv2Conv": lambda: dglnn.GATv2Conv((K, K), M, 2, allow_zero_in_degree=True),
    "SAGEConv": lambda: dglnn.SAGEConv((K, K), M, "mean"),
    "SAGEConv-pool": lambda: dglnn.SAGEConv((K, K), M, "pool"),
    "GINConv": lambda: dglnn.GINConv(nn.Linear(K, M), "sum"),
    "EdgeConv": lambda: dglnn.EdgeConv(K, M),
}


def relation(*, block: bool) -> Any:
    edges = {("store", "sells", "game"): ([0, 0, 1, 1, 1], [0, 3, 1, 2, 4])}
    graph = dgl.heterograph(edges, num_nodes_dict={"store": SOURCES, "game": DESTINATIONS})
    nodes = {"game": torch.arange(DESTINATIONS), "store": torch.tensor([], dtype=torch.int64)}
    return dgl.to_block(graph, nodes)["sells"] if block else graph


@pytest.mark.parametrize("block", [True, False], ids=["block", "graph"])
@pytest.mark.parametrize("name", LAYERS)
def test_more_destinations_than_sources(name: str, *, block: bool) -> None:
    torch.manual_seed(0)
    original, graph = LAYERS[name](), relation(block=block)
    fast = dacergnn.optimize(original, on_unsupported="error")
    for _ in range(4):
        features: tuple[Tensor, Tensor] = torch.randn(SOURCES, K), torch.randn(DESTINATIONS, K)
        torch.testing.assert_close(fast(graph, features), original(graph, features))

"""`HeteroConv` and models of `to_hetero` x forms of edges: adjacencies and `EdgeIndex`, of some relations or of all."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn.modules import CompiledLayer
from tests.modules.layers import pyg
from tests.modules.pyg_call_forms import (
    EDGES,
    WEIGHTS,
    K,
    M,
    N,
    adjacency,
    assert_same,
    compiled_only,
    draw,
    indexed,
    outcome,
)

# -- one layer for each relation ------------------------------------------------------------------------------------

RELATIONS = [("a", "r", "a"), ("b", "s", "a"), ("a", "t", "b")]
X_DICT = {"a": draw(N, K, seed=1), "b": draw(N, K, seed=2)}
ONE_PROGRAM: dict[str, Callable[[Any, tuple[str, str, str]], nn.Module]] = {
    "SAGEConv": lambda p, _: p.SAGEConv((K, K), M),
    "GraphConv": lambda p, _: p.GraphConv((K, K), M),
    "GATConv": lambda p, key: p.GATConv((K, K), M, heads=2, add_self_loops=key[0] == key[2]),
    "GATv2Conv": lambda p, key: p.GATv2Conv((K, K), M, heads=2, add_self_loops=key[0] == key[2]),
    "TransformerConv": lambda p, _: p.TransformerConv((K, K), M, heads=2),
    "SAGEConv and TransformerConv": lambda p, key: (
        p.SAGEConv((K, K), M) if key[1] == "r" else p.TransformerConv((K, K), M)
    ),
    "three kinds": lambda p, key: {
        "r": partial(p.GCNConv, K, improved=True),
        "s": partial(p.GATConv, (K, K), add_self_loops=False),
        "t": partial(p.GraphConv, (K, K)),
    }[key[1]](M),
}
BY_THEMSELVES: dict[str, Callable[[Any, tuple[str, str, str]], nn.Module]] = {
    "ResGatedGraphConv": lambda p, _: p.ResGatedGraphConv((K, K), M),
    "SAGEConv and ResGatedGraphConv": lambda p, key: (
        p.SAGEConv((K, K), M) if key[1] == "r" else p.ResGatedGraphConv((K, K), M)
    ),
}


def relation_edges(form: str) -> dict[tuple[str, str, str], Any]:
    if form == "mixed":
        return {RELATIONS[0]: EDGES, RELATIONS[1]: adjacency("csr", WEIGHTS), RELATIONS[2]: adjacency("coo", WEIGHTS)}
    return {key: (indexed()[0][1] if form == "EdgeIndex" else adjacency(form, WEIGHTS * (i + 1)))
            for i, key in enumerate(RELATIONS)}  # fmt: skip


def hetero_pair(make: Callable[[Any, tuple[str, str, str]], nn.Module]) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    original = pyg().HeteroConv({key: make(pyg(), key) for key in RELATIONS}).double()
    return original, dacergnn.optimize(copy.deepcopy(original))


@pytest.mark.filterwarnings("ignore:Sparse ", "ignore:Converting sparse")
@pytest.mark.parametrize("form", ["coo", "csr", "EdgeIndex", "mixed"])
@pytest.mark.parametrize("layers", ONE_PROGRAM)
def test_hetero_conv_in_one_program(layers: str, form: str) -> None:
    original, fast = hetero_pair(ONE_PROGRAM[layers])
    assert isinstance(fast, CompiledLayer)
    edges = relation_edges(form)
    expected = outcome(original, (X_DICT, edges), {})
    for _ in range(2):
        with compiled_only():
            found = outcome(fast, (X_DICT, edges), {})
        assert_same(found, expected)


@pytest.mark.filterwarnings("ignore:Sparse ", "ignore:Converting sparse")
def test_two_layers_that_add_self_loops_to_one_adjacency() -> None:
    """One adds them to those that are there, one puts them in their place."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            key = RELATIONS[0]
            self.first = pyg().HeteroConv({key: pyg().GCNConv(K, M)})
            self.second = pyg().HeteroConv({key: pyg().GATv2Conv(K, M)})

        def forward(self, x: Any, edges: Any) -> Any:
            return self.first(x, edges)["a"], self.second(x, edges)["a"]

    torch.manual_seed(0)
    original = Model().double()
    fast = dacergnn.optimize(copy.deepcopy(original), on_unsupported="error")
    looped = torch.sparse_coo_tensor(torch.tensor([[0, 1, 1], [0, 0, 2]]), draw(3, seed=3).abs(), (N, N)).coalesce()
    with compiled_only():
        found = outcome(fast, (X_DICT, {RELATIONS[0]: looped}), {})
    assert_same(found, outcome(original, (X_DICT, {RELATIONS[0]: looped}), {}))


@pytest.mark.filterwarnings("ignore:Sparse ", "ignore:Converting sparse")
@pytest.mark.parametrize("form", ["csr", "EdgeIndex"])
@pytest.mark.parametrize("layers", [*BY_THEMSELVES, "a user's layer"])
def test_hetero_conv_over_other_layers(layers: str, form: str) -> None:
    make = BY_THEMSELVES.get(layers)
    if make is None:
        original, fast = hetero_pair(lambda p, key: _Pairs.of(p))
    else:
        original, fast = hetero_pair(make)
    assert sum(isinstance(m, CompiledLayer) for m in fast.modules()) == len(RELATIONS)
    edges = relation_edges(form)
    expected = outcome(original, (X_DICT, edges), {})
    with compiled_only():
        found = outcome(fast, (X_DICT, edges), {})
    assert_same(found, expected)


class _Pairs:
    """A user's layer over two node types."""

    @staticmethod
    def of(library: Any) -> nn.Module:
        class Pairs(library.MessagePassing):
            def __init__(self) -> None:
                super().__init__(aggr="mean")
                self.lin, self.own = nn.Linear(K, M), nn.Linear(K, M)

            def forward(self, x: Any, edge_index: Any) -> Tensor:
                x = (x, x) if isinstance(x, Tensor) else x
                return self.propagate(edge_index, x=x) + self.own(x[1])

            def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
                return self.lin(x_j * x_i).sigmoid()

        return Pairs()


@pytest.mark.filterwarnings("ignore:Sparse ", "ignore:Converting sparse")
@pytest.mark.parametrize("form", ["csr", "EdgeIndex"])
def test_models_of_to_hetero(form: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = pyg().SAGEConv((K, K), M)

        def forward(self, x: Any, edge_index: Any) -> Any:
            return self.conv(x, edge_index).relu()

    torch.manual_seed(0)
    original = pyg().to_hetero(Model(), (list(X_DICT), RELATIONS), debug=False).double()
    fast = dacergnn.optimize(copy.deepcopy(original), on_unsupported="error")
    edges = relation_edges(form)
    with compiled_only():
        found = outcome(fast, (X_DICT, edges), {})
    assert_same(found, outcome(original, (X_DICT, edges), {}))

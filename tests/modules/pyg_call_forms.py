"""Layers of PyG and forms of calls, for tests of their combinations."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn
from tests.modules.layers import assert_close, pyg

N, E, R, K, M = 9, 24, 3, 4, 5
Make = Callable[[Any], nn.Module]
Form = Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def features(*lead: int) -> Tensor:
    return draw(*lead, N, K, seed=sum(lead)).requires_grad_()


def edge_index() -> Tensor:
    """Edges that differ from each other, with self loops among them, in no order."""
    flat = torch.randperm(N * N, generator=torch.Generator().manual_seed(3))
    loops = torch.tensor([4 * N + 4, 0])
    flat = torch.cat([loops, flat[~torch.isin(flat, loops)][:E]])
    return torch.stack([flat // N, flat % N])


EDGES = edge_index()
COUNT = EDGES.size(1)
TYPES = torch.randint(0, R, (COUNT,), generator=torch.Generator().manual_seed(4))
WEIGHTS = draw(COUNT, seed=5).abs() + 0.1


def adjacency(layout: str, values: Tensor) -> Tensor:
    """A matrix with destinations in rows, of entries with these values in the order of `EDGES`."""
    order = (EDGES[1] * N + EDGES[0]).argsort()
    rows, columns, values = EDGES[1, order], EDGES[0, order], values[order]
    coo = torch.sparse_coo_tensor(torch.stack([rows, columns]), values, (N, N, *values.shape[1:]), is_coalesced=True)
    if layout == "csc":
        return coo.to_sparse_csc()
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), torch.bincount(rows, minlength=N).cumsum(0)])
    size = (N, N, *values.shape[1:])
    return coo if layout == "coo" else torch.sparse_csr_tensor(starts, columns, values, size)


def sparse(layout: str, values: Tensor, *others: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (features(), adjacency(layout, values), *others), {}


def indexed(*others: Any, by: str | None = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """An `EdgeIndex`, sorted and with everything that it keeps if ``by`` is given."""
    found: Any = pytest.importorskip("torch_geometric").EdgeIndex(EDGES, sparse_size=(N, N))
    if by is not None:
        found, _ = found.sort_by(by)
        found.fill_cache_()
    return (features(), found, *others), {}


FORMS: dict[str, Form] = {
    "coo": lambda: sparse("coo", WEIGHTS),
    "csr": lambda: sparse("csr", WEIGHTS),
    "csc": lambda: sparse("csc", WEIGHTS),
    "not coalesced": lambda: (
        (features(), torch.sparse_coo_tensor(EDGES.flip(0).repeat(1, 2), WEIGHTS.repeat(2), (N, N))), {}
    ),
    "csr, weights with gradient": lambda: sparse("csr", WEIGHTS.clone().requires_grad_()),
    "coo, weights with gradient": lambda: sparse("coo", WEIGHTS.clone().requires_grad_()),
    "csr of types": lambda: sparse("csr", TYPES),
    "csr and types": lambda: sparse("csr", WEIGHTS, TYPES),
    "coo of features": lambda: sparse("coo", draw(COUNT, 2, seed=6)),
    "csr of features": lambda: sparse("csr", draw(COUNT, 2, seed=6)),
    "csr of features with gradient": lambda: sparse("csr", draw(COUNT, 2, seed=6).requires_grad_()),
    "csr and features": lambda: sparse("csr", WEIGHTS, draw(COUNT, 2, seed=6).requires_grad_()),
    "csr of features and types": lambda: sparse("csr", draw(COUNT, 2, seed=6), TYPES),
    "EdgeIndex": indexed,
    "EdgeIndex by destination": lambda: indexed(by="col"),
    "EdgeIndex by source": lambda: indexed(by="row"),
    "EdgeIndex and types": lambda: indexed(TYPES),
    "EdgeIndex and weights": lambda: indexed(WEIGHTS.clone().requires_grad_(), by="col"),
    "static": lambda: ((features(3), EDGES), {}),
    "static of two axes": lambda: ((features(2, 3), EDGES), {}),
    "static by name": lambda: ((), {"x": features(3), "edge_index": EDGES}),
    "static and weights": lambda: ((features(3), EDGES, WEIGHTS.clone().requires_grad_()), {}),
    "static pair": lambda: (((features(2), draw(2, N, K, seed=8)), EDGES), {}),
    "static pair without destinations": lambda: (((features(2), None), EDGES), {}),
    "static csr": lambda: ((features(2), adjacency("csr", WEIGHTS)), {}),
    "pair without destinations": lambda: (((features(), None), EDGES), {}),
    "pair without destinations, size": lambda: (((features(), None), EDGES), {"size": (N, N + 2)}),
    "pair without destinations, EdgeIndex": lambda: (((features(), None), indexed()[0][1]), {}),
    "pair without destinations, csr": lambda: (((features(), None), adjacency("csr", WEIGHTS)), {}),
    "pair without destinations, features": lambda: (((features(), None), EDGES, draw(COUNT, 2, seed=6)), {}),
    "attention": lambda: ((features(), EDGES), {"return_attention_weights": True}),
    "no attention": lambda: ((features(), EDGES), {"return_attention_weights": False}),
    "attention of an EdgeIndex": lambda: (indexed()[0], {"return_attention_weights": True}),
    "attention of csr": lambda: (sparse("csr", WEIGHTS)[0], {"return_attention_weights": True}),
    "attention of coo": lambda: (sparse("coo", WEIGHTS)[0], {"return_attention_weights": True}),
    "attention by type": lambda: ((features(), EDGES, TYPES), {"return_attention_weights": True}),
    "false attention by type": lambda: ((features(), EDGES, TYPES), {"return_attention_weights": False}),
    "attention by type of csr": lambda: (sparse("csr", WEIGHTS, TYPES)[0], {"return_attention_weights": True}),
}  # fmt: skip

TIMES = "multiplicative-self-attention"


class _Own:
    """Layers as users write them."""

    @staticmethod
    def weighted(library: Any) -> nn.Module:
        class Weighted(library.MessagePassing):
            def __init__(self) -> None:
                super().__init__(aggr="max")
                self.lin = nn.Linear(K, M)

            def forward(self, x: Tensor, edge_index: Any, edge_weight: Any = None) -> Tensor:
                return self.propagate(edge_index, x=self.lin(x), edge_weight=edge_weight)

            def message(self, x_j: Tensor, edge_weight: Any) -> Tensor:
                return x_j if edge_weight is None else edge_weight.view(-1, 1) * x_j.tanh()

        return Weighted()

    @staticmethod
    def fused(library: Any) -> nn.Module:
        class Fused(library.MessagePassing):
            def __init__(self) -> None:
                super().__init__(aggr="add")
                self.lin = nn.Linear(K, M)

            def forward(self, x: Tensor, edge_index: Any) -> Tensor:
                return self.lin(self.propagate(edge_index, x=x))

            def message(self, x_j: Tensor) -> Tensor:
                return x_j

            def message_and_aggregate(self, adj_t: Any, x: Tensor) -> Tensor:
                return (adj_t @ x).relu()

        return Fused()


LAYERS: dict[str, tuple[Make, tuple[str, ...]]] = {
    "SAGEConv": (
        lambda p: p.SAGEConv(K, M),
        ("coo", "csr", "not coalesced", "csr, weights with gradient", "EdgeIndex by destination",
         "pair without destinations", "pair without destinations, csr", "static", "static by name",
         "static pair without destinations"),
    ),
    "SAGEConv of maxima": (lambda p: p.SAGEConv(K, M, aggr="max", project=True), ("EdgeIndex", "static")),
    "SAGEConv, normalized": (lambda p: p.SAGEConv(K, M, aggr="add", normalize=True), ("static of two axes",)),
    "GCNConv": (
        lambda p: p.GCNConv(K, M),
        ("coo", "csr, weights with gradient", "EdgeIndex", "EdgeIndex and weights", "static", "static and weights"),
    ),
    "GCNConv as it is": (
        lambda p: p.GCNConv(K, M, normalize=False),
        ("csc", "not coalesced", "coo, weights with gradient", "static of two axes", "static and weights"),
    ),
    "GCNConv, cached": (lambda p: p.GCNConv(K, M, cached=True), ("csr", "static")),
    "GINConv": (
        lambda p: p.GINConv(nn.Sequential(nn.Linear(K, M), nn.ReLU(), nn.Linear(M, M)), train_eps=True),
        ("csr", "EdgeIndex by source", "pair without destinations, size", "pair without destinations, EdgeIndex",
         "static pair"),
    ),
    "GINConv, normalized": (lambda p: p.GINConv(nn.Sequential(nn.Linear(K, N), nn.BatchNorm1d(N))), ("static",)),
    "GATConv": (
        lambda p: p.GATConv(K, M, heads=2),
        ("coo", "EdgeIndex", "pair without destinations, size", "attention", "attention of csr"),
    ),
    "GATConv without loops": (
        lambda p: p.GATConv(K, M, heads=2, add_self_loops=False, residual=True),
        ("csr of types", "coo of features", "pair without destinations, csr", "no attention",
         "attention of an EdgeIndex", "attention of coo"),
    ),
    "GATConv of two inputs": (
        lambda p: p.GATConv((K, K), M, add_self_loops=False, concat=False), ("pair without destinations, EdgeIndex",)
    ),
    "GATConv with features": (
        lambda p: p.GATConv(K, M, edge_dim=2, heads=2),
        ("csr", "csr of features with gradient", "pair without destinations, features"),
    ),
    "GATConv with features, without loops": (
        lambda p: p.GATConv(K, M, edge_dim=2, add_self_loops=False), ("coo of features", "csr and features")
    ),
    "GATv2Conv": (lambda p: p.GATv2Conv(K, M, heads=2), ("csr", "EdgeIndex by source", "attention of coo")),
    "GATv2Conv with features": (
        lambda p: p.GATv2Conv(K, M, edge_dim=2, add_self_loops=False), ("csr of features", "csr and features")
    ),
    "RGCNConv": (lambda p: p.RGCNConv(K, M, R), ("EdgeIndex and types",)),
    "FastRGCNConv": (lambda p: p.FastRGCNConv(K, M, R), ("csr of types", "csr and types")),
    "RGATConv": (
        lambda p: p.RGATConv(K, M, R, heads=2),
        ("EdgeIndex and types", "false attention by type", "attention by type of csr"),
    ),
    "RGATConv of one head": (lambda p: p.RGATConv(K, M, R), ("csr and types",)),
    "RGATConv, scaled": (
        lambda p: p.RGATConv(K, M, R, mod="f-scaled", attention_mode=TIMES, dim=2), ("attention by type",)
    ),
    "RGATConv with features": (lambda p: p.RGATConv(K, M, R, edge_dim=2), ("csr of features and types",)),
    "EdgeConv": (
        lambda p: p.EdgeConv(nn.Sequential(nn.Linear(2 * K, M), nn.ReLU())),
        ("csr of types", "EdgeIndex by destination", "static of two axes", "static pair", "static csr"),
    ),
    "GMMConv": (
        lambda p: p.GMMConv(K, M, 2, 3),
        ("coo of features", "csr of features with gradient", "csr and features",
         "pair without destinations, features"),
    ),
    "GMMConv, separate": (lambda p: p.GMMConv(K, M, 2, 3, separate_gaussians=True), ("csr of features",)),
    "GraphConv": (
        lambda p: p.GraphConv(K, M),
        ("csr", "csc", "not coalesced", "coo, weights with gradient", "EdgeIndex and weights",
         "pair without destinations, size", "pair without destinations, EdgeIndex", "static by name",
         "static and weights", "static pair"),
    ),
    "GraphConv of maxima": (lambda p: p.GraphConv(K, M, aggr="max"), ("EdgeIndex", "static of two axes")),
    "GraphConv of means": (lambda p: p.GraphConv(K, M, aggr="mean"), ("coo", "static pair")),
    "ResGatedGraphConv": (lambda p: p.ResGatedGraphConv(K, M), ("coo", "EdgeIndex by destination", "static csr")),
    "TransformerConv": (
        lambda p: p.TransformerConv(K, M), ("no attention", "attention of an EdgeIndex", "attention of csr")
    ),
    "ChebConv": (lambda p: p.ChebConv(K, M, K=3), ("EdgeIndex by source", "static and weights")),
    "TAGConv": (lambda p: p.TAGConv(K, M), ("csr", "static of two axes")),
    "SGConv": (lambda p: p.SGConv(K, M, K=2), ("coo", "EdgeIndex")),
    "LEConv": (lambda p: p.LEConv(K, M), ("csr", "static")),
    "FiLMConv": (lambda p: p.FiLMConv(K, M, R), ("EdgeIndex and types",)),
    "a user's layer": (_Own.weighted, ("csr, weights with gradient", "EdgeIndex", "static")),
    "a user's fused layer": (_Own.fused, ("coo", "csc", "static")),
}  # fmt: skip
"""A layer and its forms of calls; between them, layers of each kind have each form that matters to it."""
CASES = [(name, form) for name, (_, forms) in LAYERS.items() for form in forms]


@contextmanager
def compiled_only() -> Generator[None]:
    """No call may run the original; what torch and PyG say about sparse matrices is theirs."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="Sparse |Converting sparse")
        yield


def leaves(tree: Any) -> list[Tensor]:
    if isinstance(tree, Tensor):
        return [tree]
    items = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, tuple | list) else ()
    return [leaf for item in items for leaf in leaves(item)]


def outcome(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Results, and gradients of the parameters and of all arguments that need them."""
    torch.manual_seed(0)
    found = leaves(model(*args, **kwargs))
    kinds = [(type(t).__name__, t.layout, t.dtype) for t in found]
    values = [t.values() if t.layout is not torch.strided else getattr(t, "as_tensor", t.clone)() for t in found]
    loss = sum((t * draw(*t.shape, seed=9)).sum() for t in values if t.is_floating_point())
    inputs = [*model.parameters(), *[t for t in leaves((args, kwargs)) if t.requires_grad]]
    assert isinstance(loss, Tensor)
    return [*kinds, *values, *map(dense, torch.autograd.grad(loss, inputs, allow_unused=True))]


def dense(gradient: Tensor | None) -> Tensor | None:
    return None if gradient is None else gradient.to_dense()


def assert_same(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            assert a.shape == b.shape
            assert_close(a, b, 1e-8)
        else:
            assert a == b


def pair_of(make: Make) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    original = make(pyg()).double()
    return original, dacergnn.optimize(copy.deepcopy(original), on_unsupported="error")

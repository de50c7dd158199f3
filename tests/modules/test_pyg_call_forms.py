"""Layers of PyG x forms of calls: adjacencies, `EdgeIndex`, static graphs, pairs of features and None, attention.

Every call gives the values and gradients of the original layer, and none of them runs it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn.errors import UnsupportedCallError
from tests.modules.layers import assert_close, pyg
from tests.modules.pyg_call_forms import (
    CASES,
    COUNT,
    EDGES,
    FORMS,
    LAYERS,
    TYPES,
    WEIGHTS,
    K,
    M,
    Make,
    N,
    adjacency,
    assert_same,
    compiled_only,
    draw,
    features,
    leaves,
    outcome,
    pair_of,
)


@pytest.mark.filterwarnings("ignore:Sparse ", "ignore:Converting sparse")
@pytest.mark.parametrize(("layer", "form"), CASES)
def test_calls_are_compiled(layer: str, form: str) -> None:
    original, fast = pair_of(LAYERS[layer][0])
    args, kwargs = FORMS[form]()
    expected = outcome(original, args, kwargs)
    for _ in range(3):  # the first, one that is examined, and one like the one before
        with compiled_only():
            found = outcome(fast, args, kwargs)
        assert_same(found, expected)


@pytest.mark.filterwarnings("ignore:Sparse ", "ignore:Converting sparse")
@pytest.mark.parametrize("layer", ["SAGEConv", "GCNConv as it is", "GATConv without loops", "GraphConv"])
def test_forms_take_turns(layer: str) -> None:
    """A call in another form than the one before is not taken for one like it."""
    make, forms = LAYERS[layer]
    original, fast = pair_of(make)
    calls = [FORMS[form]() for form in forms]
    for args, kwargs in [call for call in calls for _ in range(2)] + calls:
        with compiled_only():
            found = fast(*args, **kwargs)
        assert_same(leaves(found), leaves(original(*args, **kwargs)))


@pytest.mark.filterwarnings("ignore:Sparse ", "ignore:Converting sparse")
@pytest.mark.parametrize("layer", ["SAGEConv", "GCNConv", "GraphConv"])
def test_values_that_are_written_to(layer: str) -> None:
    original, fast = pair_of(LAYERS[layer][0])
    (x, matrix), _ = FORMS["csr"]()
    for _ in range(3):
        assert_close(fast(x, matrix), original(x, matrix), 1e-8)
    matrix.values().mul_(3)
    assert_close(fast(x, matrix), original(x, matrix), 1e-8)


RAISING = [
    ("GCNConv", "csc"), ("GATConv", "csc"), ("EdgeConv", "csc"), ("RGCNConv", "csr and types"),
    ("SAGEConv", "static csr"), ("GATConv", "static"), ("GATv2Conv", "pair without destinations"),
    ("RGATConv", "csr of types"),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Sparse ", "ignore:Converting sparse")
@pytest.mark.parametrize(("layer", "form"), RAISING)
def test_calls_that_the_original_cannot_run(layer: str, form: str) -> None:
    original, _ = pair_of(LAYERS[layer][0])
    args, kwargs = FORMS[form]()
    with pytest.raises(Exception):  # noqa: B017, PT011
        original(*args, **kwargs)
    with pytest.raises(UnsupportedCallError, match="cannot run this call, compiled or not"):
        dacergnn.optimize(copy.deepcopy(original))(*args, **kwargs)


def writes_to_a_part(h: Tensor) -> Tensor:
    h = h * 1
    part = h.detach()[0]
    part.mul_(2)
    return h


MIXES: dict[str, Callable[[Tensor], Tensor]] = {
    "mean over graphs": lambda h: h - h.mean(0),
    "mean over nodes": lambda h: h - h.mean(1, keepdim=True),
    "softmax over graphs": lambda h: h.softmax(0),
    "one row for all": lambda h: h.view(-1, M),
    "one graph": lambda h: h[0],
    "a number for each graph": lambda h: h * torch.arange(3.0, dtype=h.dtype).view(3, 1, 1),
    "other axes": lambda h: h.transpose(0, 1),
    "what is sorted": lambda h: h.sort(1).values,
    "writes": lambda h: torch.relu_(h) + h,
    "writes to a part": writes_to_a_part,
}


def mixing(mix: Callable[[Tensor], Tensor]) -> nn.Module:
    """A layer that mixes the static graphs of a batch before its messages."""

    class Mixing(pyg().MessagePassing):
        def __init__(self) -> None:
            super().__init__(aggr="add")
            self.lin = nn.Linear(K, M)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.propagate(edge_index, x=mix(self.lin(x)))

        def message(self, x_j: Tensor) -> Tensor:
            return x_j

    return Mixing()


@pytest.mark.parametrize("name", MIXES)
def test_torch_runs_what_mixes_static_graphs(name: str) -> None:
    original, _ = pair_of(lambda _: mixing(MIXES[name]))
    fast = dacergnn.optimize(copy.deepcopy(original), on_unsupported="error")
    args = features(3), EDGES % 3
    assert_same(outcome(fast, args, {}), outcome(original, args, {}))


def hooks(h: Tensor) -> Tensor:
    h.register_hook(lambda gradient: 3 * gradient)
    return h.relu()


def differentiates(h: Tensor) -> Tensor:
    return torch.func.jvp(torch.sin, (h,), (torch.ones_like(h),))[1]


@pytest.mark.parametrize("mix", [hooks, differentiates])
def test_gradients_of_static_graphs_are_asked_of_the_original(mix: Callable[[Tensor], Tensor]) -> None:
    original, _ = pair_of(lambda _: mixing(mix))
    fast = dacergnn.optimize(copy.deepcopy(original), on_unsupported="ignore")
    args = features(3), EDGES % 3
    assert_same(outcome(fast, args, {}), outcome(original, args, {}))


class Twice(pyg().MessagePassing):
    """Messages before and after a write, which are results by themselves; nodes do not lie one after the other."""

    def __init__(self) -> None:
        super().__init__(aggr="mean")
        self.lin = nn.Linear(K, M)

    def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        h = self.lin(x).mT.contiguous().mT
        first = self.propagate(edge_index, x=h)
        return first, self.propagate(edge_index, x=h.mul_(2)) * first.tanh()

    def message(self, x_j: Tensor) -> Tensor:
        return x_j


MEANS = LAYERS["GraphConv of means"][0]


@pytest.mark.parametrize(("make", "count"), [(MEANS, 10), (lambda _: Twice(), 4)])
def test_static_graphs_of_several_sizes(make: Make, count: int) -> None:
    """There may be more sizes than a layer has networks."""
    original, fast = pair_of(make)
    for i in range(count):
        args = draw(2 + i % 3, N + i, K).requires_grad_(), EDGES[:, i:]
        with compiled_only():
            found = outcome(fast, args, {})
        assert_same(found, outcome(original, args, {}))


def catches(adj: Tensor, x: Tensor) -> Tensor:
    try:
        return adj @ x * adj._nnz()
    except Exception:
        return x


class Deep(pyg().MessagePassing):
    """A layer with layers in it."""

    def __init__(self) -> None:
        super().__init__(aggr="add")
        self.first, self.second = pyg().LEConv(K, K), pyg().GraphConv(K, M)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index) + self.propagate(edge_index, x=x), edge_index)

    def message(self, x_j: Tensor) -> Tensor:
        return x_j


@pytest.mark.filterwarnings("ignore:Sparse ")
@pytest.mark.parametrize("form", ["csr", "EdgeIndex"])
def test_layers_within_layers(form: str) -> None:
    original, fast = pair_of(lambda _: Deep())
    args, kwargs = FORMS[form]()
    for _ in range(2):
        with compiled_only():
            found = outcome(fast, args, kwargs)
        assert_same(found, outcome(original, args, kwargs))
    fast.second.propagate = lambda *_, **__: torch.zeros(N, M, dtype=torch.float64)  # type: ignore[method-assign]
    with pytest.raises(UnsupportedCallError, match="propagate was set on the layer"):
        fast(*args)


PRODUCTS: dict[str, Callable[[Any, Any], Any]] = {
    "shape": lambda a, x: (a @ x) * a.shape[0] * a.size(1),
    "layout": lambda a, x: torch.matmul(a, x) if a.layout == torch.sparse_csr else x,
    "class": lambda a, x: (a @ x) * a.values().sum() if isinstance(a, Tensor) else x,
    "device": lambda a, x: (a @ x) + torch.ones(1, dtype=a.dtype, device=a.device),
}
OTHERS: dict[str, Callable[[Any, Any], Any]] = {
    "torch.sparse": lambda a, x: torch.sparse.mm(a, x),
    "dense": lambda a, x: a.to_dense() @ x,
    "transposed": lambda a, x: a.t() @ x,
    "kind": lambda a, x: (a @ x) if a.is_sparse_csr else x,
    "scaled": lambda a, x: (a * 2) @ x,
    "type": lambda a, x: (a @ x) if type(a) is Tensor else x,
    "errors": catches,
}


class Multiplied(pyg().MessagePassing):
    multiply: Callable[[Tensor, Tensor], Tensor]

    def __init__(self) -> None:
        super().__init__(aggr="add")
        self.lin = nn.Linear(K, M)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.lin(self.propagate(edge_index, x=x))

    def message(self, x_j: Tensor) -> Tensor:
        return x_j

    def message_and_aggregate(self, edge_index: Tensor, x: Tensor) -> Tensor:
        return type(self).multiply(edge_index, x)


@pytest.mark.filterwarnings("ignore:Sparse ")
@pytest.mark.parametrize("name", [*PRODUCTS, *OTHERS])
def test_what_users_do_with_an_adjacency(name: str) -> None:
    multiply = staticmethod((PRODUCTS | OTHERS)[name])
    layer = type("Multiplied", (Multiplied,), {"multiply": multiply, "__module__": __name__})
    original, _ = pair_of(lambda _: layer())
    fast = dacergnn.optimize(copy.deepcopy(original))
    args, kwargs = FORMS["csr"]()
    with compiled_only() if name in PRODUCTS else pytest.warns(UserWarning, match="runs uncompiled"):
        found = outcome(fast, args, kwargs)
    assert_same(found, outcome(original, args, kwargs))


LOOPS = "a", "r", "a"
LARGEST: dict[str, tuple[Make, str]] = {
    "GraphConv": (lambda p: p.GraphConv(K, M, aggr="max"), "has no form in a program"),
    "SAGEConv": (lambda p: p.SAGEConv(K, M, aggr="max"), "of products with a sparse adjacency is trained"),
    "HeteroConv": (
        lambda p: p.HeteroConv({LOOPS: p.SAGEConv(K, M, aggr="min")}), "of products with a sparse adjacency is trained"
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Sparse ")
@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize(("make", "reason"), LARGEST.values(), ids=LARGEST)
def test_largest_messages_of_an_adjacency(make: Make, reason: str, trains: bool) -> None:
    """torch gives a gradient to one of several equal products only."""
    original, _ = pair_of(make)
    fast = dacergnn.optimize(copy.deepcopy(original))
    args: Any = torch.ones(N, K, dtype=torch.float64), adjacency("csr", torch.ones_like(WEIGHTS))
    args = args[0].requires_grad_(trains), args[1]
    if hasattr(original, "convs"):
        args = {"a": args[0]}, {LOOPS: args[1]}
    with torch.set_grad_enabled(trains):
        if trains:
            with pytest.warns(UserWarning, match=reason):
                assert_same(outcome(fast, args, {}), outcome(original, args, {}))
        else:
            with compiled_only():
                found = fast(*args)
            assert_close(found, original(*args), 1e-8)


# -- matrices of torch_sparse, as far as they are looked at ----------------------------------------------------------


class Matrix:
    """What a `torch_sparse.SparseTensor` answers to a layer that is compiled."""

    def __init__(self, values: Tensor | None) -> None:
        order = (EDGES[1] * N + EDGES[0]).argsort()
        self.row, self.column = EDGES[1, order], EDGES[0, order]
        self.values = None if values is None else values[order]

    def coo(self) -> tuple[Tensor, Tensor, Tensor | None]:
        return self.row, self.column, self.values

    def sparse_sizes(self) -> tuple[int, int]:
        return N, N

    def size(self, dim: int) -> int:
        return self.sparse_sizes()[dim]

    def nnz(self) -> int:
        return COUNT

    def device(self) -> torch.device:
        return EDGES.device


def without_values(layer: str) -> tuple[Any, ...]:
    return (features(), EDGES, TYPES) if "RGCN" in layer else (features(), EDGES)


@pytest.mark.parametrize(
    "layer", ["SAGEConv", "GINConv", "GATConv without loops", "EdgeConv", "RGCNConv", "FastRGCNConv"]
)
def test_matrices_of_torch_sparse(layer: str) -> None:
    """Their values are weights to no such layer, and types to those that have types."""
    original, fast = pair_of(LAYERS[layer][0])
    args = without_values(layer)
    matrix = Matrix(TYPES if "RGCN" in layer else WEIGHTS)
    with compiled_only():
        found = fast(args[0], matrix)
    assert_close(found, original(*args), 1e-8)


def test_matrices_of_torch_sparse_in_gcn() -> None:
    """Self loops that are there are replaced by those that are added."""
    original, fast = pair_of(lambda p: p.GCNConv(K, M, improved=True))
    others = EDGES[0] != EDGES[1]
    loops = torch.arange(N).expand(2, -1)
    edges = torch.cat([EDGES[:, others], loops], dim=1)
    weights = torch.cat([WEIGHTS[others], torch.full((N,), 2.0, dtype=WEIGHTS.dtype)])
    x = features()
    with compiled_only():
        found = fast(x, Matrix(WEIGHTS))
    assert_close(found, original(x, edges, weights), 1e-8)

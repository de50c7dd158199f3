"""Layers of PyG x forms of calls: adjacencies, `EdgeIndex`, static graphs, pairs of features and None, attention.

Every call gives the values and gradients of the original layer, and none of them runs it.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn.errors import UnsupportedCallError
from dacergnn.modules import CompiledLayer
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

MATRICES = ("coo", "csr", "csc", "not coalesced", "csr, weights with gradient", "coo, weights with gradient")
INDICES = ("EdgeIndex", "EdgeIndex by destination", "EdgeIndex by source")
WITHOUT = ("pair without destinations", "pair without destinations, size", "pair without destinations, EdgeIndex")
ATTENTION = (
    "attention",
    "no attention",
    "attention of an EdgeIndex",
    "attention of csr",
    "attention of coo",
    "csr of types",
)


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
        (*MATRICES, *INDICES, *WITHOUT, "pair without destinations, csr", "static", "static by name", "static pair",
         "static pair without destinations"),
    ),
    "SAGEConv of maxima": (lambda p: p.SAGEConv(K, M, aggr="max", project=True), ("not coalesced", "csc", "static")),
    "SAGEConv, normalized": (lambda p: p.SAGEConv(K, M, aggr="add", normalize=True), ("csr", "static")),
    "GCNConv": (
        lambda p: p.GCNConv(K, M),
        ("coo", "csr", "csr, weights with gradient", *INDICES, "EdgeIndex and weights", "static", "static and weights"),
    ),
    "GCNConv as it is": (lambda p: p.GCNConv(K, M, normalize=False), (*MATRICES, "static", "static and weights")),
    "GCNConv, cached": (lambda p: p.GCNConv(K, M, cached=True), ("csr", "static")),
    "GINConv": (
        lambda p: p.GINConv(nn.Sequential(nn.Linear(K, M), nn.ReLU(), nn.Linear(M, M)), train_eps=True),
        (*MATRICES, *INDICES, *WITHOUT, "static", "static pair"),
    ),
    "GINConv, normalized": (
        lambda p: p.GINConv(nn.Sequential(nn.Linear(K, N), nn.BatchNorm1d(N))), ("csr", "static")
    ),
    "GATConv": (lambda p: p.GATConv(K, M, heads=2), ("coo", "csr", *INDICES, *WITHOUT[:2], *ATTENTION)),
    "GATConv without loops": (
        lambda p: p.GATConv(K, M, heads=2, add_self_loops=False, residual=True),
        ("coo", "csr", "coo of features", *WITHOUT, "pair without destinations, csr", *ATTENTION),
    ),
    "GATConv of two inputs": (lambda p: p.GATConv((K, K), M, add_self_loops=False, concat=False), WITHOUT),
    "GATConv with features": (
        lambda p: p.GATConv(K, M, edge_dim=2, heads=2),
        ("csr", "csr of features", "coo of features", "csr of features with gradient",
         "pair without destinations, features"),
    ),
    "GATConv with features, without loops": (
        lambda p: p.GATConv(K, M, edge_dim=2, add_self_loops=False),
        ("csr of features", "csr of features with gradient", "csr and features"),
    ),
    "GATv2Conv": (lambda p: p.GATv2Conv(K, M, heads=2), ("coo", "csr", *INDICES, *ATTENTION)),
    "GATv2Conv with features": (
        lambda p: p.GATv2Conv(K, M, edge_dim=2, add_self_loops=False), ("coo", "coo of features", "csr and features")
    ),
    "RGCNConv": (lambda p: p.RGCNConv(K, M, R), ("EdgeIndex and types",)),
    "FastRGCNConv": (lambda p: p.FastRGCNConv(K, M, R), ("csr of types", "csr and types", "EdgeIndex and types")),
    "RGATConv": (
        lambda p: p.RGATConv(K, M, R, heads=2),
        ("csr and types", "EdgeIndex and types", "attention by type", "false attention by type",
         "attention by type of csr"),
    ),
    "RGATConv of one head": (lambda p: p.RGATConv(K, M, R), ("csr and types", "attention by type")),
    "RGATConv, scaled": (
        lambda p: p.RGATConv(K, M, R, mod="f-scaled", attention_mode=TIMES, dim=2), ("attention by type",)
    ),
    "RGATConv with features": (lambda p: p.RGATConv(K, M, R, edge_dim=2), ("csr of features and types",)),
    "EdgeConv": (
        lambda p: p.EdgeConv(nn.Sequential(nn.Linear(2 * K, M), nn.ReLU())),
        ("coo", "csr", "csr of types", *INDICES, "static", "static pair", "static csr"),
    ),
    "GMMConv": (
        lambda p: p.GMMConv(K, M, 2, 3),
        ("coo of features", "csr of features", "csr of features with gradient", "csr and features",
         "pair without destinations, features"),
    ),
    "GMMConv, separate": (
        lambda p: p.GMMConv(K, M, 2, 3, separate_gaussians=True),
        ("csr of features", "pair without destinations, features"),
    ),
    "GraphConv": (
        lambda p: p.GraphConv(K, M),
        (*MATRICES, "EdgeIndex", "EdgeIndex by source", *WITHOUT, "EdgeIndex and weights", "static",
         "static by name", "static and weights", "static pair"),
    ),
    "GraphConv of maxima": (lambda p: p.GraphConv(K, M, aggr="max"), ("coo", "csr", "not coalesced", "static")),
    "GraphConv of means": (lambda p: p.GraphConv(K, M, aggr="mean"), ("coo", "csr", "not coalesced", "static pair")),
    "ResGatedGraphConv": (lambda p: p.ResGatedGraphConv(K, M), ("coo", "csr", *INDICES, "static", "static csr")),
    "TransformerConv": (lambda p: p.TransformerConv(K, M), ("coo", "csr", *INDICES, *ATTENTION[:4])),
    "ChebConv": (lambda p: p.ChebConv(K, M, K=3), (*INDICES, "static", "static and weights")),
    "TAGConv": (lambda p: p.TAGConv(K, M), ("coo", "csr", "EdgeIndex", "static")),
    "SGConv": (lambda p: p.SGConv(K, M, K=2), ("coo", "csr", "EdgeIndex", "static")),
    "LEConv": (lambda p: p.LEConv(K, M), ("coo", "csr", "EdgeIndex", "static", "static csr")),
    "FiLMConv": (lambda p: p.FiLMConv(K, M, R), ("EdgeIndex and types",)),
    "a user's layer": (_Own.weighted, ("coo", "csr", "csr, weights with gradient", "EdgeIndex", "static")),
    "a user's fused layer": (_Own.fused, ("coo", "csr", "csc", "EdgeIndex", "static")),
}  # fmt: skip
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


MIXES: dict[str, Callable[[Tensor], Tensor]] = {
    "mean over graphs": lambda h: h - h.mean(0),
    "mean over nodes": lambda h: h - h.mean(1, keepdim=True),
    "softmax over graphs": lambda h: h.softmax(0),
    "one row for all": lambda h: h.view(-1, M),
    "one graph": lambda h: h[0],
    "a number for each graph": lambda h: h * torch.arange(3.0, dtype=h.dtype).view(3, 1, 1),
    "in place": lambda h: torch.relu_(h) + h,
    "other axes": lambda h: h.transpose(0, 1),
}


@pytest.mark.parametrize("name", MIXES)
def test_static_graphs_that_a_layer_mixes_run_the_original(name: str) -> None:
    mix = MIXES[name]

    class Mixing(pyg().MessagePassing):
        def __init__(self) -> None:
            super().__init__(aggr="add")
            self.lin = nn.Linear(K, M)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.propagate(edge_index, x=mix(self.lin(x)))

        def message(self, x_j: Tensor) -> Tensor:
            return x_j

    original, _ = pair_of(lambda _: Mixing())
    x = features(3)
    with pytest.warns(UserWarning, match=r"of features \[B, N, F\] may mix the graphs of a batch"):
        found = dacergnn.optimize(copy.deepcopy(original))(x[:, :, :], EDGES % 3)
    assert_close(found, original(x, EDGES % 3), 1e-10)


# -- one layer for each relation ------------------------------------------------------------------------------------

RELATIONS = [("a", "r", "a"), ("b", "s", "a"), ("a", "t", "b")]
X_DICT = {"a": draw(N, K, seed=1), "b": draw(N, K, seed=2)}
ONE_PROGRAM: dict[str, Callable[[Any, tuple[str, str, str]], nn.Module]] = {
    "SAGEConv": lambda p, _: p.SAGEConv((K, K), M),
    "GraphConv": lambda p, _: p.GraphConv((K, K), M),
    "GATConv": lambda p, key: p.GATConv((K, K), M, heads=2, add_self_loops=key[0] == key[2]),
    "three kinds": lambda p, key: {
        "r": partial(p.GCNConv, K, improved=True),
        "s": partial(p.GATConv, (K, K), add_self_loops=False),
        "t": partial(p.GraphConv, (K, K)),
    }[key[1]](M),
}
BY_THEMSELVES: dict[str, Callable[[Any, tuple[str, str, str]], nn.Module]] = {
    "GATv2Conv": lambda p, _: p.GATv2Conv((K, K), M, add_self_loops=False),
    "TransformerConv": lambda p, _: p.TransformerConv((K, K), M),
    "SAGEConv and TransformerConv": lambda p, key: (
        p.SAGEConv((K, K), M) if key[1] == "r" else p.TransformerConv((K, K), M)
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

"""Models of any wiring, which torch captures whole: what the full forward gives, or a refusal that names the place."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dacergnn
from dacergnn.errors import UnsupportedCallError, UnsupportedLayerError
from tests.layerwise.samples import (
    BATCHES,
    EDGE_ARRAYS,
    K,
    M,
    N,
    assert_same,
    draw,
    drawn,
    edges,
    pyg,
)

Forward = Callable[..., Tensor]
WEIGHT, MESSAGE = draw(K, M), draw(K + 2, M)
PLACES = torch.zeros(1, 1, dtype=torch.int64)
ARRAYS: dict[str, Tensor] = {**EDGE_ARRAYS, "pos": draw(N, K, seed=5), "kinds": torch.arange(N) % 4}


class Residual(nn.Module):
    """Layers with a skip from the input, and from each layer to the next."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.gcn, self.sage = nn.Linear(K, M), pyg().GCNConv(M, M), pyg().SAGEConv(M, M, normalize=True)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        first = self.encode(x)
        hidden = self.gcn(first, edge_index).relu() + first
        return self.sage(hidden, edge_index) + hidden + first


class Places(nn.Module):
    """A layer of features, positions and types of nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.gat = nn.Embedding(4, K), pyg().GATConv(2 * K, 4, heads=2)

    def forward(self, x: Tensor, edge_index: Tensor, pos: Tensor, kinds: Tensor) -> Tensor:
        return self.gat(torch.cat([x + self.table(kinds), pos], 1), edge_index)


def added(x: Tensor, edge_index: Tensor) -> Tensor:
    src, dst = edge_index
    out = torch.zeros(len(x), M)
    out.index_add_(0, dst, (x @ WEIGHT)[src])
    return out.tanh()


def largest(x: Tensor, edge_index: Tensor) -> Tensor:
    index = edge_index[1].unsqueeze(1).expand(-1, x.size(1))
    return x.new_zeros(x.shape).scatter_reduce(0, index, x[edge_index[0]], "amax", include_self=False)


def differences(x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
    """Messages of both ends, of edges and of a second step along them."""
    src, dst = edge_index
    message = F.silu(torch.cat([x[src] - x[dst], edge_attr], 1)) @ MESSAGE
    hidden = torch.zeros(len(x), M).index_add(0, dst, message) / len(x)
    return hidden + torch.zeros_like(hidden).index_add(0, dst, (hidden[src] - hidden[dst]) * message)


def both_directions(x: Tensor, edge_index: Tensor) -> Tensor:
    src, dst = edge_index
    back = torch.zeros_like(x).index_add_(0, src, x[dst])
    return torch.zeros_like(x).index_add_(0, dst, back[src]) + back


def by_place(x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
    """Reads numbers of nodes, and a running sum over edges, which come before all ranges."""
    shares = (edge_weight.cumsum(0) / edge_weight.sum()).unsqueeze(1)
    out = torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]] * shares)
    return out + torch.arange(len(x)).unsqueeze(1)


def written(x: Tensor, edge_index: Tensor) -> Tensor:
    loops = torch.ones(len(x))
    loops[edge_index[1][edge_index[0] == edge_index[1]]] = 2
    hidden = x * loops.unsqueeze(1)
    before = hidden + 1
    hidden += before
    hidden.relu_()
    return torch.zeros_like(x).index_add(0, edge_index[1], hidden[edge_index[0]]) - before


def sequence() -> Any:
    steps = [
        (pyg().SAGEConv(K, M), "x, edge_index -> h"),
        (nn.ReLU(), "h -> h"),
        (pyg().SAGEConv(M, K), "h, edge_index -> g"),
        (torch.add, "g, x -> x"),
    ]
    return pyg().Sequential("x, edge_index", steps)


MODELS: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "jumping knowledge, cat": (lambda: pyg().GCN(K, M, 3, out_channels=3, jk="cat"), ("edge_weight",)),
    "jumping knowledge, max": (lambda: pyg().GraphSAGE(K, M, 2, jk="max"), ()),
    "residual": (Residual, ()),
    "positions": (Places, ("pos", "kinds")),
    "GCNConv": (lambda: pyg().GCNConv(K, M), ()),
    "GCNConv, weights": (lambda: pyg().GCNConv(K, M), ("edge_weight",)),
    "GATConv, loops with attributes": (lambda: pyg().GATConv(K, 4, heads=2, edge_dim=2), ("edge_attr",)),
    "SAGEConv, normalized": (lambda: pyg().SAGEConv(K, M, normalize=True, project=True), ()),
    "PNAConv": (lambda: pyg().PNAConv(K, M, ["mean", "std"], ["amplification"], torch.tensor([0, 9, 4])), ()),
    "ChebConv": (lambda: pyg().ChebConv(K, M, K=3), ()),
    "SGConv": (lambda: pyg().SGConv(K, M, K=2), ()),
    "APPNP": (lambda: pyg().APPNP(3, 0.1), ()),
    "out-edges": (lambda: pyg().SAGEConv(K, M, flow="target_to_source"), ()),
    "PyG Sequential with a skip": (sequence, ()),
    "index_add_": (lambda: added, ()),
    "scatter_reduce": (lambda: largest, ()),
    "messages of edges": (lambda: differences, ("edge_attr",)),
    "both directions": (lambda: both_directions, ()),
    "numbers of nodes": (lambda: by_place, ("edge_weight",)),
    "writes": (lambda: written, ()),
}


@pytest.mark.parametrize("name", MODELS)
def test_model(name: str) -> None:
    make, names = MODELS[name]
    model = make()
    model = drawn(model) if isinstance(model, nn.Module) else model
    x, index, arrays = draw(N, K), edges(), {name: ARRAYS[name] for name in names}
    with torch.no_grad():
        expected = model(x.clone(), index, **arrays)
    for batch in BATCHES if name in ("residual", "index_add_") else (7,):  # each call is captured
        found = dacergnn.inference(model, index, x, batch=batch, **arrays)
        assert_same(found, expected)
        assert not found.requires_grad


@pytest.mark.parametrize("name", ["jumping knowledge, max", "residual"])
def test_compiled_model(name: str) -> None:
    model, x, index = drawn(MODELS[name][0]()), draw(N, K), edges()
    with torch.no_grad():
        expected = model(x, index)
    compiled = dacergnn.optimize(model, on_unsupported="error")
    assert_same(dacergnn.inference(compiled, index, x, batch=7), expected)


def test_as_many_nodes_as_edges_and_features() -> None:
    x, index = draw(K, K), torch.stack([torch.arange(K), torch.arange(K).roll(1)])
    model = drawn(pyg().GATConv(K, 4))
    with torch.no_grad():
        assert_same(dacergnn.inference(model, index, x, batch=2), model(x, index))


def test_other_features_in_a_later_call() -> None:
    for width in (K, K + 1, K + 2):
        x = draw(N, width)
        assert_same(dacergnn.inference(largest, edges(), x, batch=7), largest(x, edges()))


def test_numbers_of_rows_are_those_of_the_graph() -> None:
    """In shapes they are those of a range, in formulas those of the graph."""

    def model(x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = added(x, edge_index).view(len(x), 2, 4).reshape(2 * len(x), 4).softmax(1).view(len(x), M)
        return (hidden * 100).clamp(max=len(x) - 3) + torch.ones(len(x), 1) * edge_index.size(1)

    assert_same(dacergnn.inference(model, edges(), draw(N, K), batch=7), model(draw(N, K), edges()))


@pytest.mark.parametrize("name", ["pos", "edge_weight"])
def test_arrays_of_as_many_nodes_as_edges(name: str) -> None:
    index, array = torch.stack([torch.arange(K), torch.arange(K).roll(1)]), draw(K, 1)

    def of_nodes(x: Tensor, edge_index: Tensor, pos: Tensor) -> Tensor:
        return torch.zeros_like(x).index_add(0, edge_index[1], (x + pos)[edge_index[0]])

    def of_edges(x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        return torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]] * edge_weight)

    model: Any = of_nodes if name == "pos" else of_edges
    found = dacergnn.inference(model, index, draw(K, K), batch=2, **{name: array})
    assert_same(found, model(draw(K, K), index, array))


def test_inference_mode() -> None:
    model = drawn(pyg().GAT(K, M, 2, heads=2, norm="layer_norm", norm_kwargs={"mode": "node"}))
    with torch.inference_mode():
        x, index = draw(N, K), edges()
        assert_same(dacergnn.inference(model, index, x, batch=7), model(x, index))


def test_a_model_is_left_as_it_was() -> None:
    """A captured call does not run, so that a layer that keeps its edges keeps none of a description of them."""
    model, x, index = drawn(pyg().GCNConv(K, M, cached=True)), draw(N, K), edges()
    found = dacergnn.inference(model, index, x, batch=7)
    assert model._cached_edge_index is None
    assert_same(found, model(x, index).detach())


def of_rows(function: Forward) -> Forward:
    """Returns a model in which a function of rows follows an aggregation."""
    return lambda x, edge_index: function(added(x, edge_index))


def of_edges(function: Forward) -> Forward:
    """Returns a model in which messages are a function of rows of edges."""
    return lambda x, edge_index: torch.zeros_like(x).index_add(0, edge_index[1], function(x[edge_index[0]]))


class Table(nn.Module):
    """A model with a parameter for each node."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(draw(N, K))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return x + self.table


ALL_ROWS, ALONG = "depends on all rows at once", "works along the rows"
REFUSED: dict[str, tuple[Callable[[], Any], str, str]] = {
    "softmax over nodes": (lambda: of_rows(lambda h: h.softmax(0)), "softmax", ALONG),
    "sum over nodes": (lambda: of_rows(lambda h: h - h.sum(0)), "sum", ALL_ROWS),
    "mean of nodes": (lambda: of_rows(lambda h: h - h.mean(0, keepdim=True)), "mean", ALL_ROWS),
    "norm of nodes": (lambda: of_rows(lambda h: F.normalize(h, dim=0)), "normalize", ALL_ROWS),
    "norm of all": (lambda: of_rows(lambda h: h / h.norm()), "norm", ALL_ROWS),
    "statistics": (lambda: of_rows(lambda h: F.batch_norm(h, None, None, training=True)), "batch_norm", ALL_ROWS),
    "layer norm of all": (lambda: of_rows(lambda h: F.layer_norm(h, h.shape)), "layer_norm", ALL_ROWS),
    "neighbouring rows": (lambda: of_rows(lambda h: h[1:] - h[:-1]), "getitem", "neither that of the nodes"),
    "running sum": (lambda: of_rows(lambda h: h.cumsum(0)), "cumsum", ALONG),
    "sorted": (lambda: of_rows(lambda h: h.sort(0).values), "sort", ALONG),
    "backwards": (lambda: of_rows(lambda h: h.flip(0)), "flip", ALONG),
    "rolled": (lambda: of_rows(lambda h: h.roll(1, 0)), "roll", "no operation that is known"),
    "first row": (lambda: of_rows(lambda h: h + h[0]), "getitem", "some of them alone"),
    "written rows": (lambda: of_rows(lambda h: h.scatter(1, PLACES, 5.0)), "scatter", "some of the rows alone"),
    "read rows": (lambda: of_rows(lambda h: h + h.gather(1, PLACES)), "gather", "some of them alone"),
    "a cell of torch": (lambda: drawn(pyg().GatedGraphConv(M, 2)), "gru_cell", "this number of rows alone"),
    "all pairs": (lambda: of_rows(lambda h: (h @ h.T) @ h), "matmul", "all pairs of rows"),
    "products of features": (lambda: of_rows(lambda h: h @ (h.T @ h)), "matmul", ALL_ROWS),
    "another shape": (lambda: of_rows(lambda h: h.view(M, -1).T + h), "view", "mixes rows"),
    "chance": (lambda: of_rows(lambda h: h + torch.rand_like(h)), "rand_like", "random numbers"),
    "chosen rows": (lambda: of_rows(lambda h: h[h.argsort(0)[:, 0]]), "getitem", "depend on features"),
    "softmax over edges": (lambda: of_edges(lambda m: m.softmax(0)), "softmax", ALONG),
    "order of edges": (lambda: of_edges(lambda m: m.cumsum(0)), "cumsum", ALONG),
    "sum over edges": (lambda: of_edges(lambda m: m / m.sum(0)), "sum", ALL_ROWS),
    "writes to features": (lambda: lambda x, edge_index: added(x.relu_(), edge_index), "relu_", "writes to memory"),
    "parameters of nodes": (lambda: drawn(Table()), "", "no other number of nodes than 30"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    make, operation, problem = REFUSED[name]
    words = rf"cannot be computed range by range: .*{re.escape(operation)}.*{re.escape(problem)}.*\. [A-Z].*\.$"
    with pytest.raises(UnsupportedCallError, match=words):
        dacergnn.inference(make(), edges(), draw(N, K), batch=7)


def test_a_refusal_names_the_place() -> None:
    def model(x: Tensor, edge_index: Tensor) -> Tensor:
        return added(x, edge_index).softmax(0)

    line = model.__code__.co_firstlineno + 1
    with pytest.raises(UnsupportedCallError, match=rf"softmax at \S*test_captured\.py, line {line}, in model works"):
        dacergnn.inference(model, edges(), draw(N, K))


def test_rows_of_edges_are_no_result() -> None:
    with pytest.raises(UnsupportedLayerError, match=r"^shape of the result=.* give steps that return a row for each"):
        dacergnn.inference(lambda x, edge_index: x[edge_index[0]], edges(), draw(N, K))


def test_rows_by_numbers_of_nodes() -> None:
    def model(x: Tensor, edge_index: Tensor, parents: Tensor) -> Tensor:
        return x + x[parents]

    with pytest.raises(UnsupportedCallError, match=r"reads rows whose numbers depend on features"):
        dacergnn.inference(model, edges(), draw(N, K), parents=torch.arange(N).flip(0))

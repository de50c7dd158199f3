"""Layers and programs on sparse features: values and gradients of weights as on dense ones, never made dense."""

# ruff: noqa: F821

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn import HeteroGraph
from dacergnn.errors import ArrayError, GraphError, UnsupportedCallError
from tests.modules.layers import EDGES, K, M, R, arguments, compiled, hgt, hgt_arguments, pyg, rgat, rgcn
from tests.support.sparse import as_csr, assert_same, coo, csr, thinned

F64 = torch.float64
Layout = Callable[[Tensor], Tensor]
GRAPH = HeteroGraph.from_arrays(EDGES.edge_index, None, num_nodes=EDGES.num_src)


@pytest.fixture(autouse=True)
def never_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Tensor:
        raise AssertionError("made dense")

    monkeypatch.setattr(Tensor, "to_dense", refuse)


def as_narrow_csr(x: Tensor) -> Tensor:
    own = x.to_sparse_csr()
    starts, columns = own.crow_indices().int(), own.col_indices().int()
    return torch.sparse_csr_tensor(starts, columns, own.values(), own.shape)


def as_coo(x: Tensor) -> Tensor:
    return x.to_sparse()


def as_shuffled_coo(x: Tensor) -> Tensor:
    """Not coalesced: in no order, an explicit zero, half of each number twice."""
    own = x.to_sparse()
    indices = torch.cat([own.indices(), own.indices(), torch.tensor([[3], [1]])], dim=1)
    values = torch.cat([own.values() / 2, own.values() / 2, own.values().new_zeros(1)])
    order = torch.randperm(len(values), generator=torch.Generator().manual_seed(2))
    return torch.sparse_coo_tensor(indices[:, order], values[order], x.shape)


LAYOUTS = [as_csr, as_narrow_csr, as_coo, as_shuffled_coo]


@dacergnn.compile
def convolution(g, x, W, b, norm):
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["s"] += e.norm * e.src.x
        n["y"] = tanh(linear(n.s, W.T) + b)
    return y


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(sum(shape)))


def gradients(y: Tensor, *leaves: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad((y * draw(*y.shape)).sum(), leaves))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_program(layout: Layout) -> None:
    x, norm = thinned(draw(EDGES.num_src, K)), draw(EDGES.edge_index.size(1))
    w, b = draw(M, K).requires_grad_(), draw(M).requires_grad_()
    src, dst = GRAPH.index("E", "src"), GRAPH.index("E", "dst")
    total = torch.zeros(EDGES.num_src, K, dtype=F64).index_add(0, dst, norm[:, None] * x[src])
    expected = torch.tanh(total @ w.T + b)
    y = convolution(GRAPH, layout(x), w, b, norm)
    torch.testing.assert_close(y, expected)
    for found, wanted in zip(gradients(y, w, b), gradients(expected, w, b), strict=True):
        torch.testing.assert_close(found, wanted)
    with torch.no_grad():
        torch.testing.assert_close(convolution(GRAPH, layout(x), w, b, norm), expected)


def test_calls_with_other_features() -> None:
    """New tensors in every call, with other places, other values, written in between."""
    norm, w, b = draw(EDGES.edge_index.size(1)), draw(M, K), draw(M)
    one, other = (thinned(draw(EDGES.num_src, K)) for _ in range(2))
    other = other.roll(1, 0)
    kept = as_csr(one)
    for x in (kept, as_csr(other), as_csr(one * 2), as_coo(one), kept):
        dense = torch.zeros(x.shape, dtype=F64)
        entries = x.to_sparse_coo().coalesce()
        dense[tuple(entries.indices())] = entries.values()
        torch.testing.assert_close(convolution(GRAPH, x, w, b, norm), convolution(GRAPH, dense, w, b, norm))
    kept.values().mul_(3)
    torch.testing.assert_close(convolution(GRAPH, kept, w, b, norm), convolution(GRAPH, one * 3, w, b, norm))


def test_features_that_no_memory_would_hold() -> None:
    rows, columns = 1 << 18, 1 << 20
    graph = HeteroGraph.from_arrays(torch.arange(rows).repeat(2, 1), None, num_nodes=rows)
    x = coo(random.Random(1), rows, columns, 500).double()
    w, b = torch.rand(M, columns, dtype=F64, requires_grad=True), torch.zeros(M, dtype=F64)
    y = convolution(graph, x, w, b, torch.ones(rows, dtype=F64))
    found = gradients(y, w)[0]
    places, values = x._indices(), x._values()
    products = torch.zeros(rows, M, dtype=F64).index_add(0, places[0], values[:, None] * w.T[places[1]])
    expected = gradients(torch.tanh(products), w)[0]
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("make", [rgcn, lambda: rgat(heads=2)], ids=["RGCN", "RGAT"])
def test_relational_layers(make: Callable[[], nn.Module]) -> None:
    layer = make().double()
    x, edge_index, edge_type = arguments(dtype=F64)
    x = thinned(x)
    own = compiled(copy.deepcopy(layer))
    expected = layer(x, edge_index, edge_type)
    for sparse in (as_csr(x), as_shuffled_coo(x)):
        assert_same(own, [own(sparse, edge_index, edge_type)], layer, [expected])
    assert "g.src_nonzeros_of_src_pairs()" in dacergnn.explain(own).layers[0].builds[0].text
    torch.testing.assert_close(own(x, edge_index, edge_type), expected)


def perceptron(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 4), nn.ReLU(), nn.Linear(4, 4))


LAYERS: dict[str, Callable[[Any], nn.Module]] = {
    "GCN": lambda nn_: nn_.GCNConv(K, 4),
    "SAGE": lambda nn_: nn_.SAGEConv(K, 4),
    "GIN": lambda nn_: nn_.GINConv(perceptron(K)),
    "GAT": lambda nn_: nn_.GATConv(K, 4, heads=2),
    "GATv2": lambda nn_: nn_.GATv2Conv(K, 4, heads=2),
    "EdgeConv": lambda nn_: nn_.EdgeConv(perceptron(2 * K)),
    "GMM": lambda nn_: nn_.GMMConv(K, 4, 2, 3),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_without_relations(name: str) -> None:
    torch.manual_seed(1)
    layer = LAYERS[name](pyg()).double()
    own = compiled(copy.deepcopy(layer))
    x, edge_index = thinned(draw(EDGES.num_src, K)), EDGES.edge_index
    others = (draw(edge_index.size(1), 2),) if name == "GMM" else ()
    assert_same(own, [own(as_csr(x), edge_index, *others)], layer, [layer(x, edge_index, *others)])
    assert "nonzeros" in dacergnn.explain(own).layers[0].builds[-1].text


def test_a_report_is_of_the_calls_of_its_layer() -> None:
    """Layers with equal programs on graphs of equal size share one."""
    layers, ring = [compiled(pyg().GCNConv(K, 4).double()) for _ in range(2)], torch.arange(30)
    reports, calls = list[Any](), list[tuple[Tensor, Tensor]]()
    for shift, own in enumerate(layers):
        x = draw(30, K) if shift else thinned(draw(30, K))
        calls.append((as_csr(x), torch.stack([ring, ring.roll(1 + shift)])))
        own(*calls[-1])
        reports.append(dacergnn.explain(own).layers[0].encoding_bytes)
    assert dacergnn.explain(layers[0]).layers[0].encoding_bytes == reports[0] != reports[1]


def test_maxima_are_refused() -> None:
    own = compiled(pyg().SAGEConv(K, 4, aggr="max").double())
    with pytest.raises(UnsupportedCallError, match=r"is sparse, but used in .* can only be moved in front of sums"):
        own(as_csr(thinned(draw(EDGES.num_src, K))), EDGES.edge_index)


def test_node_types() -> None:
    """Some types have sparse features."""
    torch.manual_seed(3)
    x_dict, edge_index_dict = hgt_arguments(F64)
    x_dict = {name: thinned(x) for name, x in x_dict.items()}
    layer = pyg().HGTConv(M, 2 * M, (list(x_dict), list(edge_index_dict)), heads=2).double()
    own = compiled(copy.deepcopy(layer))
    sparse = {name: as_csr(x) if i != 1 else x for i, (name, x) in enumerate(x_dict.items())}
    found, expected = own(sparse, edge_index_dict), layer(x_dict, edge_index_dict)
    assert_same(own, [found[name] for name in expected], layer, list(expected.values()))


def test_node_types_of_different_width() -> None:
    nn_ = pyg()
    x_dict = {"a": thinned(draw(9, 5)), "b": thinned(draw(7, 4))}
    keys = [("a", "r", "b"), ("b", "s", "a"), ("a", "t", "a")]
    edges = {k: torch.stack([torch.randint(x_dict[k[i]].size(0), (12,)) for i in (0, 2)]) for k in keys}
    torch.manual_seed(4)
    layer = nn_.HeteroConv({k: nn_.SAGEConv((x_dict[k[0]].size(1), x_dict[k[2]].size(1)), 3) for k in keys}).double()
    own = compiled(copy.deepcopy(layer))
    found, expected = own({"a": as_csr(x_dict["a"]), "b": as_coo(x_dict["b"])}, edges), layer(x_dict, edges)
    assert_same(own, [found[name] for name in expected], layer, list(expected.values()))


def test_residuals_are_refused() -> None:
    x_dict, edge_index_dict = hgt_arguments(F64)
    own = compiled(hgt().double())
    sparse = {name: as_csr(thinned(x)) for name, x in x_dict.items()}
    with pytest.raises(UnsupportedCallError, match=r"x is sparse, but used in .*only products with weights take it"):
        own(sparse, edge_index_dict)


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (csr([0] * EDGES.num_src + [1], [K], (EDGES.num_src, K)), GraphError, r"x.col_indices\(\) holds 6 at"),
        (csr([0, 1], [0], (1, K)), ArrayError, r"x has shape \(1, 6\), but its rows are source nodes"),
        (csr([0] * EDGES.num_src + [1], [2], (EDGES.num_src, K)).requires_grad_(), ArrayError, "x.detach"),
        (csr([0] * EDGES.num_src + [1], [2], (EDGES.num_src, K)), ArrayError, r"W has dtype torch.float64, but x has"),
    ],
)  # fmt: skip
def test_bad_calls(x: Tensor, error: type[Exception], message: str) -> None:
    if "dtype" not in message:
        x = x.detach().double().requires_grad_(x.requires_grad)
    with pytest.raises(error, match=message):
        convolution(GRAPH, x, draw(M, K), draw(M), draw(EDGES.edge_index.size(1)))


def test_features_of_a_layer_that_have_another_layout() -> None:
    x, edge_index, edge_type = arguments(dtype=F64)
    with pytest.raises(UnsupportedCallError, match=r"x has the layout torch.sparse_csc; convert"):
        compiled(rgcn().double())(x.to_sparse_csc(), edge_index, edge_type)


def test_own_modules_and_autocast() -> None:
    layer = dacergnn.modules.RGCN(K, M, R).double()
    graph = HeteroGraph.from_arrays(EDGES.edge_index, EDGES.edge_type, num_nodes=EDGES.num_src, num_edge_types=R)
    x = thinned(draw(EDGES.num_src, K))
    expected = layer(x, graph)
    torch.testing.assert_close(layer(as_csr(x), graph), expected)
    with torch.autocast("cpu"):
        torch.testing.assert_close(layer(as_csr(x), graph), expected)

"""Front ends of EdgeConv and MoNet: what they refuse, what they hand back, graphs of nearest neighbours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn.errors import ArrayError, UnsupportedCallError, UnsupportedLayerError
from dacergnn.frontends import find_frontend
from dacergnn.frontends.pyg.neighbours import nearest_neighbours
from tests.frontends.edge_cases import DYNAMIC_CASES
from tests.frontends.graphs import typed_edges

pyg = pytest.importorskip("torch_geometric.nn")
EDGES = typed_edges()
X = torch.randn(EDGES.num_src, 6)
U = torch.randn(EDGES.edge_index.size(1), 2)


def frontend(layer: nn.Module) -> Any:
    found = find_frontend(layer)
    assert found is not None
    return found(layer)


def edge_conv(*modules: nn.Module, **options: Any) -> nn.Module:
    return pyg.EdgeConv(nn.Sequential(*modules) if modules else nn.Linear(12, 8), **options)


def hooked() -> nn.Module:
    layer = nn.Linear(12, 8)
    layer.register_forward_hook(lambda *_: None)
    return layer


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: edge_conv(nn.Linear(12, 8), nn.BatchNorm1d(8)), "nn='BatchNorm1d' of EdgeConv"),
        (lambda: edge_conv(nn.Linear(12, 8), nn.Dropout()), "nn='Dropout' of EdgeConv"),
        (lambda: pyg.EdgeConv(torch.tanh), "nn='function' of EdgeConv"),
        (lambda: pyg.EdgeConv(hooked()), "nn='Linear with hooks' of EdgeConv"),
        (lambda: edge_conv(nn.ReLU()), "nn='Sequential' of EdgeConv is not supported; begin with a linear layer"),
        (lambda: edge_conv(nn.Linear(7, 8)), "begin with a linear layer of 2"),
        (lambda: pyg.EdgeConv(pyg.Linear(-1, 8)), "nn='Linear that has not been called yet'"),
        (lambda: edge_conv(aggr="median"), "aggr='median' of EdgeConv"),
        (lambda: pyg.GMMConv(-1, 8, 2, 3), "in_channels=-1 of GMMConv"),
        (lambda: pyg.GMMConv(6, 8, 2, 3, flow="target_to_source"), "flow='target_to_source' of GMMConv"),
    ],
)
def test_refused_layers(make: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(UnsupportedLayerError, match=message):
        frontend(make())


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize("kind", ["edge", "gmm"])
def test_sparse_features(kind: str) -> None:
    x = (X * (X > 0.3)).double()
    layer, args = {
        "edge": lambda: (edge_conv(nn.Linear(12, 8), nn.ReLU()).double(), (EDGES.edge_index,)),
        "gmm": lambda: (pyg.GMMConv(6, 8, 2, 3).double(), (EDGES.edge_index, U.double())),
    }[kind]()
    compiled: Any = dacergnn.optimize(layer, on_unsupported="error")
    expected = layer(x, *args)
    gradients = torch.autograd.grad(expected.square().sum(), [*layer.parameters()])
    for sparse in (x.to_sparse_csr(), x.to_sparse_coo()):
        found = compiled(sparse, *args)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(torch.autograd.grad(found.square().sum(), [*layer.parameters()]), gradients)
    assert compiled.refusal is None


def test_separate_gaussians_of_sparse_features_are_not_compiled() -> None:
    layer = dacergnn.optimize(pyg.GMMConv(6, 8, 2, 3, separate_gaussians=True))
    with pytest.raises(UnsupportedCallError, match=r"x is sparse, but .*; pass x.to_dense\(\)"):
        layer(X.to_sparse(), EDGES.edge_index, U)


def test_refused_dgl_layers() -> None:
    dgl_nn = pytest.importorskip("dgl.nn.pytorch")
    with pytest.raises(UnsupportedLayerError, match="batch_norm=True of EdgeConv"):
        frontend(dgl_nn.EdgeConv(6, 8, batch_norm=True))


@pytest.mark.parametrize(
    ("layer", "args", "message"),
    [
        (edge_conv(), (X[:, 1:], EDGES.edge_index), r"x is \[13, 5\]|x is \[15, 5\]"),
        (edge_conv(), ((X, None), EDGES.edge_index), r"x\[1\] is None"),
        (edge_conv(), (X, EDGES.edge_index[:1]), r"edge_index has shape \[1, 50\]"),
        (pyg.GMMConv(6, 8, 2, 3), (X, EDGES.edge_index), "edge_attr is NoneType"),
        (pyg.GMMConv(6, 8, 2, 3), (X, EDGES.edge_index, U[1:]), "edge_attr has 49 rows for 50 edges"),
        (pyg.GMMConv(6, 8, 2, 3), (X, EDGES.edge_index, U.to_sparse()), "edge_attr is sparse; pass"),
        (pyg.GMMConv(6, 8, 2, 3), (X, EDGES.edge_index, U, (3, 4)), r"size=\(3, 4\) differs"),
    ],
)
def test_calls_handed_back(layer: nn.Module, args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(UnsupportedCallError, match=message):
        frontend(layer).edges(*args)


def test_dgl_layers_raise_their_own_error_for_nodes_without_edges() -> None:
    dgl = pytest.importorskip("dgl")
    g = dgl.graph(([0, 1], [1, 1]))
    for layer, args in (
        (dgl.nn.pytorch.EdgeConv(6, 8), (torch.randn(2, 6),)),
        (dgl.nn.pytorch.GMMConv(6, 8, 2, 3), (torch.randn(2, 6), torch.randn(2, 2))),
    ):
        with pytest.raises(dgl.DGLError, match="0-in-degree nodes"):
            dacergnn.optimize(layer)(g, *args)


def test_dgl_graphs_of_two_node_types_take_pairs() -> None:
    dgl = pytest.importorskip("dgl")
    g = dgl.heterograph({("a", "to", "b"): ([0, 1, 0], [1, 2, 0])})
    layer = dgl.nn.pytorch.EdgeConv(6, 8)
    with pytest.raises(UnsupportedCallError, match="pass a pair of features"):
        frontend(layer).edges(g, torch.randn(2, 6))
    assert frontend(layer).edges(g, (torch.randn(2, 6), torch.randn(3, 6)))[1][:4] == (2, 3, 3, True)


def test_neighbours_are_sorted_and_hold_the_point_itself() -> None:
    x = torch.tensor([[0.0], [1.0], [5.0], [6.0], [5.4]])
    edges = nearest_neighbours(x, x, None, None, 2)
    assert edges.tolist() == [[0, 1, 0, 1, 2, 4, 3, 4, 2, 4], [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]]
    graph = dacergnn.HeteroGraph.from_arrays(edges, None, num_nodes=5)
    assert graph.edge_perm is None  # in canonical order as it is


def test_neighbours_of_examples() -> None:
    x, batch = torch.randn(9, 3), torch.tensor([0, 0, 0, 0, 2, 2, 5, 5, 5])
    src, dst = nearest_neighbours(x, x, batch, batch, 3).numpy()
    assert np.bincount(dst).tolist() == [3, 3, 3, 3, 2, 2, 3, 3, 3]  # an example of two points has no third
    assert (batch.numpy()[src] == batch.numpy()[dst]).all()
    assert nearest_neighbours(x[:0], x[:0], batch[:0], batch[:0], 3).shape == (2, 0)


@pytest.mark.parametrize(
    ("x", "batch", "message"),
    [
        (torch.tensor([[0.0], [float("nan")]]), None, r"x\[0\] has a point that is not finite, row 1"),
        (X, torch.arange(len(X)).flip(0), r"batch\[0\] does not ascend"),
        (X, torch.zeros(3, dtype=torch.long), r"batch\[0\] has 3 entries"),
    ],
)
def test_points_without_neighbours(x: Tensor, batch: Tensor | None, message: str) -> None:
    with pytest.raises(ArrayError, match=message):
        nearest_neighbours(x, x, batch, batch, 2)


def test_every_call_has_neighbours_of_its_own() -> None:
    case = DYNAMIC_CASES[0]
    layer, ((x,), _) = case.layer(EDGES, torch.float64), case.inputs(EDGES, torch.float64)
    compiled: Any = dacergnn.optimize(layer)
    with torch.no_grad():
        compiled(x)
        x.data.add_(torch.randn_like(x))  # no version counts that
        torch.testing.assert_close(compiled(x), case.reference(layer, x))
    assert compiled.graphs.encoded == 2
    assert not compiled.frontend.repeatable


@pytest.mark.usefixtures("fresh_dynamo")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("kind", ["edge", "gmm", "dynamic"])
def test_traced_by_torch_compile(kind: str) -> None:
    case = DYNAMIC_CASES[0]
    layer, args = {
        "edge": lambda: (edge_conv(nn.Linear(12, 8), nn.ReLU()).double(), (EDGES.edge_index,)),
        "gmm": lambda: (pyg.GMMConv(6, 8, 2, 3).double(), (EDGES.edge_index, U.double())),
        "dynamic": lambda: (case.layer(EDGES, torch.float64), ()),
    }[kind]()
    compiled = dacergnn.optimize(layer)
    x = X.double().requires_grad_()
    found = torch.compile(compiled, fullgraph=True, backend="aot_eager")(x, *args)
    expected = compiled(x, *args)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(y.square().sum(), [x, *layer.parameters()]) for y in (found, expected)]
    torch.testing.assert_close(*gradients)

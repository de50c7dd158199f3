"""Shows where compiled layers differ from their originals on purpose; each case is a line of docs/compatibility.md.

Each test shows both sides: a release of a library that computes something else makes it fail.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import HGTConv, SAGEConv

import dacergnn

INTO_ONE = torch.tensor([[0, 1, 2], [3, 3, 3]])


def both(layer: nn.Module) -> tuple[nn.Module, nn.Module]:
    return layer, dacergnn.optimize(copy.deepcopy(layer), on_unsupported="error")


def gradient(layer: nn.Module, x: Tensor, *args: Any) -> list[float]:
    x = x.clone().requires_grad_()
    layer(x, *args)[3].sum().backward()
    assert x.grad is not None
    return x.grad.flatten().tolist()


@pytest.mark.parametrize(
    ("features", "original", "compiled"),
    [
        ([2.0, 2.0, 1.0, 0.0], [0.5, 0.5, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]),
        ([0.0, 0.0, -1.0, 0.0], [1 / 3, 1 / 3, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]),
        ([0.0, -1.0, -2.0, 0.0], [0.5, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]),
    ],
)
def test_pyg_counts_the_initial_zero_among_equal_maxima(
    features: list[float], original: list[float], compiled: list[float]
) -> None:
    layer = SAGEConv(1, 1, aggr="max", root_weight=False, bias=False)
    nn.init.ones_(layer.lin_l.weight)
    x = torch.tensor(features)[:, None]
    assert [gradient(own, x, INTO_ONE) for own in both(layer)] == [pytest.approx(original), compiled]


def test_dgl_gives_all_of_a_gradient_to_one_of_equal_maxima() -> None:
    dgl: Any = pytest.importorskip("dgl", reason="dgl 1.1.3 needs Python 3.11")
    graph, x = dgl.graph(tuple(INTO_ONE), num_nodes=4), torch.tensor([[2.0], [2.0], [1.0], [0.0]])
    found = []
    for layer in both(dgl.nn.GINConv(None, "max")):
        leaf = x.clone().requires_grad_()
        layer(graph, leaf)[3].sum().backward()
        assert leaf.grad is not None
        found.append(leaf.grad.flatten().tolist())
    dgl_gradient, gradient = found
    assert dgl_gradient in ([1.0, 0.0, 0.0, 1.0], [0.0, 1.0, 0.0, 1.0])  # by the processor's vectors
    assert gradient == [0.5, 0.5, 0.0, 1.0]


def test_dgl_gives_gradients_to_maxima_over_no_edges() -> None:
    dgl: Any = pytest.importorskip("dgl", reason="dgl 1.1.3 needs Python 3.11")
    graph = dgl.heterograph(
        {("a", "some", "b"): ([0, 1, 2], [0, 0, 1]), ("a", "none", "b"): ([], [])}, {"a": 3, "b": 2}
    )
    x, rows = torch.tensor([[3.0], [1.0], [2.0]], requires_grad=True), torch.ones(2, 1)
    layer = dgl.nn.HeteroGraphConv({name: dgl.nn.GINConv(None, "max") for name in ("some", "none")})
    results = [own(graph, ({"a": x}, {"b": rows}))["b"] for own in both(layer)]
    torch.testing.assert_close(*results)
    gradients = [torch.autograd.grad(r.sum(), x)[0].flatten().tolist() for r in results]
    assert gradients == [[3.0, 0.0, 1.0], [1.0, 0.0, 1.0]]  # node 0 has an edge, and no part in the other relation


def test_maxima_of_dgl_leave_missing_values_out() -> None:
    dgl: Any = pytest.importorskip("dgl", reason="dgl 1.1.3 needs Python 3.11")
    graph, x = dgl.graph(tuple(INTO_ONE), num_nodes=4), torch.tensor([[torch.nan], [2.0], [1.0], [0.0]])
    original, compiled = (layer(graph, x)[3] for layer in both(dgl.nn.GINConv(None, "max")))
    assert original == 2.0
    assert compiled.isnan()


def test_hgt_of_pyg_depends_on_the_order_of_edges_in_the_dictionary() -> None:
    torch.manual_seed(0)
    kinds = [("a", "to", "b"), ("b", "in", "b"), ("b", "of", "a")]
    layer = HGTConv(4, 4, (["a", "b"], kinds), heads=2)
    x = {name: torch.randn(5, 4) for name in "ab"}
    edges = {kind: torch.randint(5, (2, 9)) for kind in kinds}
    others = dict(reversed(edges.items()))
    original, compiled = both(layer)
    assert (original(x, edges)["b"] - original(x, others)["b"]).abs().max() > 0.1
    for given in (edges, others):
        torch.testing.assert_close(compiled(x, given), original(x, edges))


def test_torch_gives_wrong_gradients_for_edges_of_32_bits() -> None:
    torch.manual_seed(0)
    edges, x = torch.randint(50, (2, 1000)), torch.randn(50, 8)
    original, compiled = both(SAGEConv(8, 4))

    def of(layer: nn.Module, index: Tensor) -> Tensor:
        leaf = x.clone().requires_grad_()
        layer(leaf, index).square().sum().backward()
        assert leaf.grad is not None
        return leaf.grad

    expected = of(original, edges)
    assert (of(original, edges.int()) - expected).abs().max() > 0.1
    torch.testing.assert_close(of(compiled, edges.int()), expected, rtol=1e-4, atol=1e-4)

"""Layers, range by range: what the full forward gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn
from tests.layerwise.samples import (
    BATCHES,
    EDGE_ARRAYS,
    K,
    M,
    N,
    R,
    assert_same,
    draw,
    drawn,
    edges,
    pyg,
)

LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[str, ...]]] = {
    "SAGEConv": (lambda: pyg().SAGEConv(K, M), ()),
    "SAGEConv-max": (lambda: pyg().SAGEConv(K, M, aggr="max"), ()),
    "GATConv": (lambda: pyg().GATConv(K, 4, heads=2), ()),
    "GATConv-attr": (lambda: pyg().GATConv(K, 4, heads=2, edge_dim=2, add_self_loops=False), ("edge_attr",)),
    "GATv2Conv": (lambda: pyg().GATv2Conv(K, 4, heads=2), ()),
    "RGCNConv": (lambda: pyg().RGCNConv(K, M, R), ("edge_type",)),
    "RGATConv": (lambda: pyg().RGATConv(K, 4, R, heads=2), ("edge_type",)),
    "GINConv": (lambda: pyg().GINConv(nn.Linear(K, M)), ()),
    "GraphConv": (lambda: pyg().GraphConv(K, M), ("edge_weight",)),
    "GCNConv-weights": (lambda: pyg().GCNConv(K, M, normalize=False), ("edge_weight",)),
    "TransformerConv": (lambda: pyg().TransformerConv(K, 4, heads=2), ()),
}


@torch.no_grad()
def run(layer: nn.Module, name: str, batches: tuple[int, ...] = BATCHES) -> tuple[Tensor, list[Tensor]]:
    """Returns the results of a full forward, and of inference with each size of ranges."""
    x, index = draw(N, K), edges()
    arrays = {name: EDGE_ARRAYS[name] for name in LAYERS[name][1]}
    expected = layer(x, index, **arrays)
    return expected, [dacergnn.inference(layer, index, x, batch=batch, **arrays) for batch in batches]


@pytest.mark.parametrize("name", LAYERS)
def test_layer_by_ranges(name: str) -> None:
    batches = BATCHES if name in ("SAGEConv", "RGCNConv") else (7,)  # each call is captured
    expected, found = run(drawn(LAYERS[name][0]()), name, batches)
    for result in found:
        assert_same(result, expected)
        assert not result.requires_grad


@pytest.mark.parametrize("name", LAYERS)
def test_compiled_layer_by_ranges(name: str) -> None:
    layer = drawn(LAYERS[name][0]())
    expected, found = run(dacergnn.optimize(layer, on_unsupported="error"), name, (7,))
    assert_same(expected, run(layer, name, ())[0])
    for result in found:
        assert_same(result, expected)


@pytest.mark.parametrize("compiled", [False, True], ids=["original", "compiled"])
def test_gcn_with_weights_of_the_whole_graph(*, compiled: bool) -> None:
    """What the message about degrees of sources tells users to do."""
    gcn_norm: Any = pytest.importorskip("torch_geometric.nn.conv.gcn_conv").gcn_norm
    layer, x, index = drawn(pyg().GCNConv(K, M)), draw(N, K), edges()
    with torch.no_grad():
        expected = layer(x, index)
    index, weights = gcn_norm(index, None, N)
    layer.normalize = False
    layer = dacergnn.optimize(layer, on_unsupported="error") if compiled else layer
    for batch in BATCHES:
        assert_same(dacergnn.inference(layer, index, x, batch=batch, edge_weight=weights), expected)


@pytest.mark.parametrize("compiled", [False, True], ids=["original", "compiled"])
@pytest.mark.parametrize(("nodes", "count"), [(0, 0), (5, 0)], ids=["no nodes", "no edges"])
def test_empty_graphs(nodes: int, count: int, *, compiled: bool) -> None:
    layer, index = drawn(pyg().SAGEConv(K, M)), torch.zeros(2, count, dtype=torch.int64)
    layer = dacergnn.optimize(layer) if compiled else layer
    x = draw(nodes, K)
    with torch.no_grad():
        assert_same(dacergnn.inference(layer, index, x, batch=2), layer(x, index))


def test_int32_edges_reach_the_layer_as_they_are() -> None:
    def layer(x: Tensor, index: Tensor) -> Tensor:
        return x.new_zeros(x.shape).index_add(0, index[1], x[index[0]]) + index.element_size()

    found = dacergnn.inference(layer, edges().int(), draw(N, K), batch=4)
    assert_same(found, layer(draw(N, K), edges().int()))


def test_edges_of_pyg() -> None:
    """An `EdgeIndex`, and a layer that can be called without edges."""

    def layer(x: Tensor, edge_index: Tensor | None = None) -> Tensor:
        assert type(edge_index) is Tensor
        return x.new_zeros(x.shape).index_add(0, edge_index[1], x[edge_index[0]])

    index = pytest.importorskip("torch_geometric").EdgeIndex(edges(), sparse_size=(N, N))
    assert_same(dacergnn.inference(layer, index, draw(N, K), batch=4), layer(draw(N, K), edges()))


def test_edges_keep_their_order_within_a_destination() -> None:
    """A layer that reads it, as no sum does."""

    def last(x: Tensor, index: Tensor, number: Tensor) -> Tensor:
        result = torch.full((len(x),), -1)
        for edge, destination in zip(number.tolist(), index[1].tolist(), strict=True):
            result[destination] = edge
        return result

    index, numbers = edges()[:, :40], torch.arange(40)
    expected = last(draw(N, K), index, numbers)
    assert torch.equal(dacergnn.inference(last, index, draw(N, K), batch=7, number=numbers), expected)

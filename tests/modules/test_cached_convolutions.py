"""Convolutions of both libraries that keep their edges, or share them with others."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn.frontends.pyg.gcn import GCNFrontend
from tests.capture.test_layers_without_front_end import draw, edges, weights
from tests.modules.layers import assert_close, compiled, pyg
from tests.modules.test_convolutions import K, M, N


def test_cached_adjacencies_are_kept_as_adjacencies() -> None:
    """So that the original, which runs where there are hooks, multiplies with them and has no messages either."""
    original = pyg().GCNConv(K, M, cached=True).double()
    layer = dacergnn.optimize(copy.deepcopy(original), on_unsupported="ignore")
    given = torch.eye(3, dtype=torch.float64).roll(1, 0).to_sparse_csr()
    for module in (layer, original):
        module(draw(3, K), given)
        module.register_message_forward_hook(lambda *given: 2 * given[-1])
    assert layer._cached_edge_index[0].layout is original._cached_edge_index[0].layout
    assert_close(layer(draw(3, K), given), original(draw(3, K), given), 1e-8)


def test_edges_are_cached_without_gradients_where_these_are_off() -> None:
    layer = compiled(pyg().GCNConv(K, M, cached=True).double())
    weight = torch.ones(3, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        layer(draw(3, K), torch.tensor([[0, 1, 2], [1, 2, 0]]), weight)
    assert not layer._cached_edge_index[1].requires_grad


def test_cached_edges_count_where_cached_is_set_back() -> None:
    original = pyg().GCNConv(K, M, cached=True).double()
    layer = compiled(copy.deepcopy(original))
    for ends in ([[0, 1, 2], [1, 2, 0]], [[0, 0, 2], [1, 2, 0]]):
        index = torch.tensor(ends)
        assert_close(layer(draw(3, K), index), original(draw(3, K), index), 1e-8)
        layer.cached = original.cached = False


@pytest.mark.parametrize("size", [(3, 3), None])
def test_cached_edges_have_the_sizes_that_they_had(size: tuple[int, int] | None) -> None:
    edge_index = pytest.importorskip("torch_geometric").EdgeIndex
    original = pyg().GCNConv(K, M, cached=True).double()
    layer = compiled(copy.deepcopy(original))
    given = edge_index(torch.tensor([[0, 1, 2], [1, 2, 0]]), sparse_size=size or (None, None))
    assert_close(layer(draw(3, K), given), original(draw(3, K), given), 1e-8)
    kept, expected = (module._cached_edge_index[0] for module in (layer, original))
    assert (type(kept), kept.sparse_size()) == (type(expected), expected.sparse_size())
    if size is None:
        assert_close(layer(draw(5, K), given), original(draw(5, K), given), 1e-8)
    else:
        with pytest.raises(ValueError, match="size 5"):
            dacergnn.optimize(original, on_unsupported="ignore")(draw(5, K), given)


def test_layers_that_share_edges_have_loops_and_coefficients_of_their_own() -> None:
    index, x, weight, nn_ = edges(), draw(N, K), weights(), pyg()
    modes: tuple[dict[str, Any], ...] = ({}, {"improved": True}, {"add_self_loops": False}, {"normalize": False})
    layers = [nn_.GCNConv(K, M, **options) for options in modes]
    layers += [nn_.GATConv(K, M), nn_.GATConv(K, M, add_self_loops=False)]
    for dtype in (torch.float64, torch.float32):
        model = nn.ModuleList(layers).to(dtype)
        pairs, args = list(zip(model, dacergnn.optimize(model), strict=True)), (x.to(dtype), index)
        weight = weight.to(dtype)
        for original, layer in pairs[: len(modes)]:
            assert_close(layer(*args, weight), original(*args, weight))
        for original, layer in pairs:
            assert_close(layer(*args), original(*args))


def test_layers_of_dgl_that_share_edges() -> None:
    """On a graph whose ends are the same nodes, to which DGL gives the features of one of them, and on a block."""
    dgl = pytest.importorskip("dgl")
    layers = pytest.importorskip("dgl.nn.pytorch")
    graphs = dgl.graph(tuple(edges()), num_nodes=N), dgl.create_block(tuple(edges()), N, N)
    x = draw(N, K)
    for dtype in (torch.float64, torch.float32):
        model = nn.ModuleList([layers.SAGEConv(K, M, aggregator) for aggregator in ("gcn", "mean", "pool")])
        model += [layers.GINConv(nn.Linear(K, M), aggregator) for aggregator in ("mean", "sum")]
        model += [layers.GraphConv(K, M, norm, allow_zero_in_degree=True) for norm in ("left", "right", "both")]
        model, own = model.to(dtype), x.to(dtype)
        for original, layer in zip(model, dacergnn.optimize(model), strict=True):
            for g in graphs:
                for features in (own, (own, own.sin()), own):
                    assert_close(layer(g, features), original(g, features))


def test_edges_that_were_written_to() -> None:
    original = pyg().GCNConv(K, M).double()
    layer, x, index = compiled(original), draw(N, K), edges()
    for step in range(3):
        index[0, step] = 3
        index[1, step] = 3
        assert_close(layer(x, index), original(x, index), 1e-8)


def test_cached_layers_compute_factors_of_their_edges_once(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = [compiled(pyg().GCNConv(K, K, cached=True).double()) for _ in range(2)]
    x, index = draw(N, K), edges()
    counted: list[int] = []
    real = GCNFrontend._coefficients  # pyright: ignore[reportPrivateUsage]

    def count(self: GCNFrontend, *args: Any) -> Tensor:
        counted.append(1)
        return real(self, *args)

    monkeypatch.setattr(GCNFrontend, "_coefficients", count)
    for given in (None, weights()):
        for layer in layers:
            layer.original._cached_edge_index = None
        for _ in range(4):
            for layer in layers:
                layer(x, index, given)
    assert len(counted) <= len(layers)


def test_coefficients_in_a_cache_may_be_changed() -> None:
    original = pyg().GCNConv(K, M, cached=True).double()
    layer = compiled(copy.deepcopy(original))
    x, index = draw(N, K), edges()
    for _ in range(4):  # the last of these are not examined again
        assert_close(layer(x, index), original(x, index), 1e-10)
    for module in (layer.original, original):
        module._cached_edge_index[1].mul_(3)
    for _ in range(2):
        assert_close(layer(x, index), original(x, index), 1e-10)


def test_what_a_cached_layer_keeps_is_what_pyg_keeps() -> None:
    original = pyg().GCNConv(K, M, cached=True).double()
    layer = compiled(copy.deepcopy(original))
    x, index = draw(N, K), edges()
    expected = original(x, index, weights())
    assert_close(layer(x, index, weights()), expected, 1e-10)
    for kept, known in zip(layer.original._cached_edge_index, original._cached_edge_index, strict=True):
        assert_close(kept, known, 1e-10)
    assert_close(layer(x, index[:, :5]), expected, 1e-10)
    layer.original.reset_parameters()
    original.load_state_dict(layer.state_dict())
    original._cached_edge_index = None
    assert_close(layer(x, index[:, :5]), original(x, index[:, :5]), 1e-10)


def test_a_cached_layer_that_has_run_before() -> None:
    original = pyg().GCNConv(K, M, cached=True).double()
    x, index = draw(N, K), edges()
    expected = original(x, index, weights())
    assert_close(compiled(original)(x, index), expected, 1e-10)

"""Attention layers: what becomes of edges and random numbers between calls, and errors of the libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn.errors import GraphError
from tests.frontends.graphs import dgl_graph
from tests.modules.layers import EDGES, K, assert_close, compiled, features, pyg, rgat


def gat(**options: Any) -> nn.Module:
    torch.manual_seed(6)
    return pyg().GATConv(K, 4, heads=2, **options)


def loops_at(*places: int) -> Tensor:
    """The edges of the graph with self loops of the nodes 2 and 3, and the rest behind."""
    edges = EDGES.edge_index.clone()
    for node, place in enumerate(places, start=2):
        edges[:, place] = node
    return edges


@pytest.mark.parametrize("options", [{"edge_dim": 3}, {"concat": False}, {"residual": True, "concat": False}])
def test_calls_that_look_alike_take_other_values(options: dict[str, Any]) -> None:
    layer, expected = compiled(gat(**options)), gat(**options)
    edges, rows = EDGES.edge_index.clone(), EDGES.edge_type.numel()
    for seed in range(3):
        x = features() + seed
        attributes = [features(rows=rows, channels=3) * seed] if "edge_dim" in options else []
        assert_close(layer(x, edges, *attributes), expected(x, edges, *attributes))
        found, known = (m(x, edges, *attributes, return_attention_weights=True) for m in (layer, expected))
        assert_close([found[0], *found[1]], [known[0], *known[1]])


def test_nodes_that_are_not_there_are_named_by_their_place() -> None:
    """In the list of the call, of which self loops are taken out."""
    for end, kind in ((0, "source"), (1, "destination")):
        edges = loops_at(0, 5)
        edges[end, 7] = EDGES.num_src
        with pytest.raises(GraphError, match=rf"edge_index\[{end}\] holds {EDGES.num_src} at position 7.*{kind}"):
            compiled(gat())(features(), edges)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (gat, {}),
        (rgat, {}),
        (rgat, {"heads": 2, "edge_dim": 3}),
        (rgat, {"attention_mode": "multiplicative-self-attention", "dim": 2}),
        (rgat, {"attention_mechanism": "within-relation", "heads": 2}),
    ],
)
def test_every_call_with_dropout_draws_anew(make: Callable[..., Any], options: dict[str, Any]) -> None:
    layer, expected = compiled(make(dropout=0.5, **options)), make(dropout=0.5, **options)
    args = (EDGES.edge_index.clone(), *([EDGES.edge_type] if make is rgat else []))
    given = {"edge_attr": features(rows=EDGES.edge_type.numel(), channels=3)} if "edge_dim" in options else {}
    results: list[list[Tensor]] = []
    for module in (layer, expected):
        torch.manual_seed(7)
        x = features().requires_grad_()
        out = [module(x, *args, **given) for _ in range(3)]
        wanted = [x, module.q, module.k] if make is rgat else [x]
        results.append([*out, *torch.autograd.grad(torch.cat(out).square().sum(), wanted)])
    assert_close(*results)
    assert not torch.equal(results[0][0], results[0][1])
    for module in (layer, expected):
        module.eval()
    assert_close(layer(features(), *args, **given), expected(features(), *args, **given))


def test_attributes_follow_edges_when_loops_move() -> None:
    """Lists of edges that differ only in where loops stand that are taken away are one graph, but not one call."""
    layer, expected = compiled(gat(edge_dim=3)), gat(edge_dim=3)
    attributes = features(rows=EDGES.edge_type.numel(), channels=3)
    for edges in (loops_at(0, 5), loops_at(5, 0), loops_at(0, 5)):
        assert_close(layer(features(), edges, attributes), expected(features(), edges, attributes))


@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv"])
def test_nodes_without_edges_are_an_error_of_dgl(name: str) -> None:
    dgl = pytest.importorskip("dgl")
    layer = dacergnn.optimize(getattr(dgl.nn, name)(K, 4, 2), on_unsupported="error")
    with pytest.raises(dgl.DGLError, match="0-in-degree"):
        layer(dgl_graph(EDGES), features())
    graph = dgl.add_self_loop(dgl_graph(EDGES))
    assert layer(graph, features()).shape == (EDGES.num_src, 2, 4)


def test_calls_of_a_layer_of_dgl_with_dropout_and_attention() -> None:
    dgl = pytest.importorskip("dgl")
    torch.manual_seed(8)
    drops = {"feat_drop": 0.4, "attn_drop": 0.3}
    graph, x = dgl.add_self_loop(dgl_graph(EDGES)), features()
    for options in (drops, {"feat_drop": 0.4}, {"attn_drop": 0.3}):
        original = dgl.nn.GATConv(K, 4, 2, activation=torch.tanh, **options)
        layer = dacergnn.optimize(original, on_unsupported="error")
        for training in (True, True, False):
            original.train(training)
            layer.train(training)
            for attention in (False, True):
                results: list[list[Tensor]] = []
                for module in (layer, original):
                    torch.manual_seed(9)
                    found = module(graph, x, get_attention=attention)
                    results.append(list(found) if attention else [found])
                assert_close(*results)

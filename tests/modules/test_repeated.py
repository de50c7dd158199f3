"""Calls after one that was examined: those that look like it are not, all others end as they would on a new layer."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from itertools import cycle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn.errors import ArrayError
from dacergnn.modules import CompiledLayer
from tests.modules.layers import M, arguments, assert_close, compiled, hgt, hgt_arguments, rgcn

Args = tuple[dict[str, Tensor], dict[Any, Tensor]]
pytestmark = pytest.mark.filterwarnings("ignore:There exist node types:UserWarning")


def called(original: nn.Module, args: Args) -> CompiledLayer:
    """The compiled layer after calls with ``args``."""
    layer = compiled(original)
    for _ in range(2):
        layer(*args)
    assert layer.runner.repeated
    return layer


def own_arguments() -> Args:
    x, edges = hgt_arguments()
    return x, {key: edge_index.clone() for key, edge_index in edges.items()}


def outcome(layer: nn.Module, args: Any, kwargs: Any) -> Any:
    """The result of a call, or its error."""
    try:
        return layer(*args, **kwargs)
    except Exception as error:
        return type(error), str(error)


Change = Callable[[dict[Any, Any], dict[Any, Any]], tuple[tuple[Any, ...], dict[str, Any]]]
"""From features and edges to the arguments of another call."""


def changed(values: dict[Any, Any], change: Callable[[Any], Any]) -> dict[Any, Any]:
    """A dictionary whose first value is another."""
    key = next(iter(values))
    return values | {key: change(values[key])}


def first(change: Callable[[Any], Any]) -> Change:
    """Changes features of the first type."""
    return lambda x, edges: ((changed(x, change), edges), {})


def first_edges(change: Callable[[Any], Any]) -> Change:
    """Changes edges of the first type."""
    return lambda x, edges: ((x, changed(edges, change)), {})


CHANGES: dict[str, Change] = {
    "other features": first(lambda x: x + 1),
    "features that are a parameter": first(nn.Parameter),
    "more nodes": first(lambda x: torch.cat([x, x])),
    "fewer nodes": first(lambda x: x[:1]),
    "narrow features": first(lambda x: x[:, 1:]),
    "flat features": first(lambda x: x[:, 0]),
    "sparse features": first(lambda x: x.to_sparse()),
    "double features": first(lambda x: x.double()),
    "features of integers": first(lambda x: x.long()),
    "features as a list": first(lambda x: x.tolist()),
    "features of NumPy": first(lambda x: x.numpy()),
    "features on another device": first(lambda x: x.to("meta")),
    "no features": lambda _, edges: (({}, edges), {}),
    "a node type less": lambda x, edges: ((dict([*x.items()][1:]), edges), {}),
    "turned node types": lambda x, edges: ((dict(reversed(x.items())), edges), {}),
    "other edges": first_edges(lambda e: e[:, 1:]),
    "reversed edges of equal shape": first_edges(lambda e: e.sort(1)[0]),
    "edges written to": first_edges(lambda e: e.fill_(1)),
    "edges of NumPy": first_edges(lambda e: e.numpy()),
    "an edge type less": lambda x, edges: ((x, dict([*edges.items()][1:])), {}),
    "exchanged edges": lambda x, edges: ((x, dict(zip(edges, reversed(edges.values()), strict=True))), {}),
    "exchanged edge types": lambda x, edges: ((x, dict(zip(reversed(edges), edges.values(), strict=True))), {}),
    "by name": lambda x, edges: ((x,), {"edge_index_dict": edges}),
    "by another name": lambda x, edges: ((x,), {"edges": edges}),
    "an argument too much": lambda x, edges: ((x, edges, None), {}),
    "an argument missing": lambda x, _: ((x,), {}),
}


def hetero() -> nn.Module:
    nn_ = pytest.importorskip("torch_geometric.nn")
    x, edges = hgt_arguments()
    torch.manual_seed(0)
    channels = {name: rows.size(1) for name, rows in x.items()}
    return nn_.HeteroConv({key: nn_.SAGEConv((channels[key[0]], channels[key[-1]]), M) for key in edges}, aggr="mean")


BY_TYPE: dict[str, Callable[[], nn.Module]] = {"HGTConv": hgt, "HeteroConv": hetero}


@pytest.mark.parametrize(("change", "name"), [*zip(CHANGES, cycle(BY_TYPE), strict=False)])
def test_other_calls_end_as_on_a_new_layer(change: str, name: str) -> None:
    original, kept = BY_TYPE[name](), own_arguments()
    layer = called(original, kept)
    args, kwargs = CHANGES[change](*kept)
    found, expected = (outcome(m, args, kwargs) for m in (layer, compiled(original)))
    if isinstance(expected, dict):
        assert_close(found, expected)
        of_original = outcome(original, args, kwargs)  # which may not take features that compiled layers take
        assert_close(found, of_original if isinstance(of_original, dict) else expected)
    else:
        assert found == expected


def test_parameters_and_submodules_are_those_of_the_moment() -> None:
    original: Any = hgt()
    args = own_arguments()
    layer = called(original, args)
    for name in ("kqv_lin", "out_lin", "k_rel", "p_rel", "skip"):
        module = getattr(hgt(), name)
        for parameter in module.parameters():
            parameter.data.add_(0.5)
        setattr(original, name, module)
        assert_close(layer(*args), original(*args))
    original.out_lin.lins["t9"] = nn.Linear(M, M)
    assert_close(layer(*args), original(*args))
    original.p_rel = nn.ParameterDict({k: nn.Parameter(p.detach() * 2) for k, p in original.p_rel.items()})
    assert_close(layer(*args), original(*args))


def test_parameters_of_another_type() -> None:
    original, args = hgt(), own_arguments()
    layer = called(original, args)
    layer.double()
    message = "of x has dtype torch.float32, but the layer has torch.float64"
    with torch.no_grad(), pytest.raises(ArrayError, match=message):
        layer(*args)
    double = {name: x.double() for name, x in args[0].items()}
    assert_close(layer(double, args[1]), original(double, args[1]))


def test_edges_that_count_no_versions() -> None:
    original, (x, edges) = hgt(), own_arguments()
    layer = compiled(original)
    with torch.inference_mode():
        uncounted = {key: edge_index.clone() for key, edge_index in edges.items()}
        for _ in range(2):
            layer(x, uncounted)
        assert layer.runner.repeated
        next(iter(uncounted.values())).zero_()  # unseen by torch, but not by a checksum
        assert_close(layer(x, uncounted), original(x, uncounted))
    assert_close(layer(x, edges), original(x, edges))


KEPT: dict[str, tuple[Callable[[Any], nn.Module], Callable[[], tuple[Tensor, ...]]]] = {
    "GCNConv": (lambda nn_: nn_.GCNConv(4, M), lambda: (torch.rand(20),)),
    "GCNConv-plain": (lambda nn_: nn_.GCNConv(4, M, normalize=False), lambda: (torch.rand(20),)),
    "GATConv": (lambda nn_: nn_.GATConv(4, M, edge_dim=2, add_self_loops=False), lambda: (torch.rand(20, 2),)),
    "RGATConv": (lambda nn_: nn_.RGATConv(4, M, 2, edge_dim=2), lambda: (torch.arange(20) % 2, torch.rand(20, 2))),
}


@pytest.mark.parametrize("name", KEPT)
def test_no_layer_keeps_its_arguments(name: str) -> None:
    make, more = KEPT[name]
    original = make(pytest.importorskip("torch_geometric.nn"))
    layer, args = compiled(original), (torch.rand(9, 4), torch.randint(0, 9, (2, 20)), *more())
    for _ in range(4):
        assert_close(layer(*args), original(*args))
    references = [weakref.ref(t) for t in args]
    del args
    gc.collect()
    assert not any(reference() is not None for reference in references)


def test_graphs_that_take_turns() -> None:
    original, (x, edges) = hgt(), own_arguments()
    layer = called(original, (x, edges))
    fewer = {key: edge_index[:, 1:] for key, edge_index in edges.items()}
    for turn in (fewer, edges, fewer):
        assert_close(layer(x, turn), original(x, turn))
        assert not layer.runner.repeated
    assert_close(layer(x, fewer), original(x, fewer))
    assert layer.runner.repeated


def test_what_a_graph_keeps_is_found_again() -> None:
    original, args = rgcn(), arguments()
    layer = compiled(original)
    for settled in (False, False, True, True):
        assert_close(layer(*args), original(*args))
        assert [found.settled for found in layer.runner.repeated.values()] in ([settled], [])
    assert layer.runner.repeated


def test_layers_whose_calls_are_all_examined() -> None:
    """A weight that is made at every call is no tensor that could be found again, and is not looked for any longer."""
    original, args = rgcn(num_bases=2), arguments()
    layer = compiled(original)
    with torch.no_grad():
        for factor in range(1, 20):
            original.weight.mul_(1 + 1 / factor)
            assert_close(layer(*args), original(*args))
    assert not layer.runner.repeated
    assert set(layer.runner.attempts.values()) == {0}


def test_weights_of_edges_are_compared_where_they_are_not_given_to_the_program() -> None:
    """What a graph keeps may belong to their numbers."""
    nn_ = pytest.importorskip("torch_geometric.nn")
    original = nn_.GraphConv(4, M, aggr="mean")
    index = arguments()[1]
    layer, x, weight = compiled(original), torch.randn(int(index.max()) + 1, 4), torch.rand(index.size(1))
    for factor in (1, 1, 1, 1, 2, 2, 3):
        weight.mul_(factor)
        assert_close(layer(x, index, weight), original(x, index, weight))
        assert_close(layer(x, index, weight.clone()), original(x, index, weight))


def test_a_parameter_of_the_layer_as_features() -> None:
    """An argument that is a parameter, too, does not tell where the tensors of the program come from."""
    nn_ = pytest.importorskip("torch_geometric.nn")
    original = nn_.SAGEConv(M, M)
    layer, index = compiled(original), torch.randint(0, M, (2, 20))
    weight = layer.lin_l.weight
    for _ in range(4):
        assert_close(layer(weight, index), original(weight, index))
    x = torch.randn_like(weight).requires_grad_()
    assert_close(layer(x, index), original(x, index))
    assert_close(layer(nn.Parameter(x.detach()), index), original(x, index))


def test_arguments_that_share_memory() -> None:
    nn_ = pytest.importorskip("torch_geometric.nn")
    original = nn_.GATConv(1, M, edge_dim=1, add_self_loops=False)
    layer, index = compiled(original), torch.randint(0, 20, (2, 20))
    shared = torch.randn(20, 1)
    for _ in range(4):
        assert_close(layer(shared, index, shared.view(-1)), original(shared, index, shared.view(-1)))
    x, features = torch.randn(20, 1), torch.randn(20)
    assert_close(layer(x, index, features), original(x, index, features))


DROPPING: dict[str, Callable[[Any], nn.Module]] = {
    "GATConv": lambda dglnn: dglnn.GATConv(4, M, 2, feat_drop=0.5, attn_drop=0.5),
    "GATv2Conv": lambda dglnn: dglnn.GATv2Conv(4, M, 2, feat_drop=0.5, attn_drop=0.5),
    "SAGEConv": lambda dglnn: dglnn.SAGEConv(4, M, "mean", feat_drop=0.5),
    "RelGraphConv": lambda dglnn: dglnn.RelGraphConv(4, M, 2, dropout=0.5),
    "HGTConv": lambda dglnn: dglnn.HGTConv(4, 2, 2, 2, 2, dropout=0.5),
}


def dropping(name: str) -> tuple[nn.Module, tuple[Any, ...]]:
    """Returns a layer of DGL with dropout, and the arguments of a call."""
    dgl, dglnn = pytest.importorskip("dgl"), pytest.importorskip("dgl.nn")
    torch.manual_seed(0)
    graph = dgl.add_self_loop(dgl.rand_graph(9, 20))
    x, types = torch.randn(9, 4), torch.zeros(graph.num_edges(), dtype=torch.int64)
    more: tuple[Any, ...] = {"RelGraphConv": (types,), "HGTConv": (types[:9], types)}.get(name, ())
    return DROPPING[name](dglnn), (graph, x, *more)


@pytest.mark.filterwarnings("ignore:.*AlphaDropout stands in place of a dropout")
@pytest.mark.parametrize(("name", "kind"), [*zip(DROPPING, cycle([nn.Identity, nn.AlphaDropout]), strict=False)])
def test_other_modules_in_place_of_dropouts(name: str, kind: type[nn.Module]) -> None:
    original, call = dropping(name)
    layer: Any = dacergnn.optimize(original)
    for path in [path for path, m in layer.named_modules() if isinstance(m, nn.Dropout)]:
        setattr(layer, path, kind(0.5))
    for _ in range(3):
        torch.manual_seed(3)
        found = layer(*call)
        torch.manual_seed(3)
        assert_close(found, original(*call))


@pytest.mark.parametrize("name", DROPPING)
def test_dropouts_within_a_layer_have_a_mode_of_their_own(name: str) -> None:
    original, call = dropping(name)
    layer = compiled(original)
    dropouts = [m for m in layer.modules() if isinstance(m, nn.Dropout)]
    for training in (True, False, True):
        layer.train(training)
        for dropout in dropouts:
            dropout.eval()
        for _ in range(4):
            assert_close(layer(*call), original(*call))
        for dropout in dropouts:
            dropout.train()
        assert not torch.equal(layer(*call), layer(*call))

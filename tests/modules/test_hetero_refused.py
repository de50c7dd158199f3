"""`HeteroConv` refuses layers that are not one program; refused calls run the original or fail."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn.errors import ArrayError, GraphError, UnsupportedCallError, UnsupportedLayerError
from dacergnn.frontends.pyg.hetero import HeteroFrontend
from dacergnn.modules import CompiledLayer
from tests.modules.hetero_cases import gat, gatv2, transformer
from tests.modules.hetero_layers import MIXED, WITHIN, K, Key, M, Make, draw, edge_index_dict, hetero, x_dict
from tests.modules.layers import assert_close, compiled, pyg

pytestmark = pytest.mark.filterwarnings("ignore:There exist node types:UserWarning")
X, EDGES = x_dict(), edge_index_dict(MIXED)


def sage(library: Any, _: Key) -> nn.Module:
    return library.SAGEConv((K, K), M)


REFUSED: dict[str, tuple[Make, list[Key], str | None, str]] = {
    "empty": (sage, [], "sum", "convs={} of HeteroConv is not supported; give it at least one layer."),
    "aggr": (sage, MIXED, "max", "aggr='max' of HeteroConv is not supported; use \"sum\" or \"mean\"."),
    "none": (sage, MIXED, None, "aggr=None of HeteroConv is not supported; use \"sum\" or \"mean\"."),
    "class": (
        lambda library, _: library.ResGatedGraphConv((K, K), M), MIXED, "sum",
        "convs='ResGatedGraphConv' of HeteroConv is not supported; "
        "one program takes SAGEConv, GraphConv, GCNConv, GATConv, GATv2Conv, TransformerConv.",
    ),
    "normalize": (
        lambda library, _: library.SAGEConv((K, K), M, normalize=True), MIXED, "sum",
        "normalize=True of SAGEConv of edge type ('a', 'r0', 'b') is not supported; "
        "normalize the result of the model's layer instead.",
    ),
    "project": (
        lambda library, _: library.SAGEConv((K, K), M, project=True), MIXED, "sum",
        "project=True of SAGEConv of edge type ('a', 'r0', 'b') is not supported; "
        "project the features before the layer.",
    ),
    "cached": (
        lambda library, _: library.GCNConv(K, M, cached=True), WITHIN, "sum",
        "cached=True of GCNConv of edge type ('a', 'r3', 'a') is not supported; "
        "leave it False; the encoded graph and its coefficients are kept anyway.",
    ),
    "bipartite": (
        lambda library, _: library.GCNConv(K, M, add_self_loops=False), MIXED, "sum",
        "edge_type=('a', 'r0', 'b') of GCNConv is not supported; "
        "GCNConv, and other layers with self loops, take edges between nodes of one type.",
    ),
    "aggregation": (
        lambda library, _: library.SAGEConv((K, K), M, aggr="median"), MIXED, "sum",
        "aggr='median' of SAGEConv of edge type ('a', 'r0', 'b') is not supported; "
        "use one of \"add\", \"mean\", \"max\", \"min\" as a string.",
    ),
    "different reductions": (
        lambda library, key: library.SAGEConv((K, K), M, aggr="max" if key[1] == "r2" else "mean"), MIXED, "sum",
        "aggr of convs='max' of HeteroConv is not supported; give all layers the same; the first has 'sum'.",
    ),
    "different sizes": (
        lambda library, key: library.SAGEConv((K, K), 4 if key[2] == "a" else M), MIXED, "sum",
        "out_channels=4 of HeteroConv is not supported; give all layers the same; the first has 8.",
    ),
    "different inputs": (
        lambda library, key: library.SAGEConv((5 if key[1] == "r4" else K, K), M), MIXED, "sum",
        "in_channels=5 of HeteroConv is not supported; 'a' has 6 elsewhere.",
    ),
    "projection": (
        lambda library, key: replaced(library.SAGEConv((K, K), M)), MIXED, "sum",
        "lin_l='Sequential' of SAGEConv of edge type ('a', 'r0', 'b') is not supported; keep the Linear of the layer.",
    ),
    "hooks": (
        lambda library, key: hooked(library.SAGEConv((K, K), M)), MIXED, "sum",
        "hooks='SAGEConv' of SAGEConv of edge type ('a', 'r0', 'b') is not supported; put hooks on the HeteroConv.",
    ),
    "two kinds": (
        lambda lib, key: (lib.GATConv if key[1] == "r0" else lib.GATv2Conv)((K, K), M, add_self_loops=False),
        MIXED, "sum",
        "attention=Attention(layer='GATv2Conv', heads=1, channels=8, concat=True, slope=0.2) of HeteroConv is not "
        "supported; give all layers the same; the first has "
        "Attention(layer='GATConv', heads=1, channels=8, concat=True, slope=0.2).",
    ),
    "maxima beside attention": (
        lambda lib, key: (
            lib.SAGEConv((K, K), M, aggr="max") if key[1] == "r2" else lib.GATv2Conv((K, K), M, add_self_loops=False)
        ),
        MIXED, "sum",
        "aggr of convs='max' of HeteroConv is not supported; give all layers the same; the first has 'sum'.",
    ),
    "dropout": (
        lambda lib, key: gatv2(lib, key, dropout=0.5),
        MIXED, "sum",
        "dropout=0.5 of GATv2Conv of edge type ('a', 'r0', 'b') is not supported; "
        "set it to 0 to have one program for all relations.",
    ),
    "beta": (
        lambda lib, key: transformer(lib, key, beta=True),
        MIXED, "sum",
        "beta=True of TransformerConv of edge type ('a', 'r0', 'b') is not supported; "
        "leave it False to have one program for all relations.",
    ),
    "features of edges": (
        lambda lib, key: transformer(lib, key, edge_dim=3),
        MIXED, "sum",
        "edge_dim=3 of TransformerConv of edge type ('a', 'r0', 'b') is not supported; "
        "leave it None; calls with features of edges are one program for each relation.",
    ),
}  # fmt: skip


def replaced(layer: Any) -> nn.Module:
    layer.lin_l = nn.Sequential(nn.Linear(K, M))
    return layer


def hooked(layer: nn.Module) -> nn.Module:
    layer.register_forward_hook(lambda *_: None)
    return layer


@pytest.mark.parametrize("name", REFUSED)
def test_layers_that_are_refused(name: str) -> None:
    make, keys, aggr, message = REFUSED[name]
    library = pyg()
    layer = library.HeteroConv({key: make(library, key) for key in keys}, aggr=aggr)
    with pytest.raises(UnsupportedLayerError) as error:
        HeteroFrontend(layer)
    assert str(error.value) == message


def test_the_layers_of_a_refused_one_are_compiled_one_by_one() -> None:
    layer = hetero(sage, MIXED, "max")
    optimized = dacergnn.optimize(layer, on_unsupported="error")
    assert sum(isinstance(m, CompiledLayer) for m in optimized.modules()) == len(MIXED)


@pytest.mark.parametrize("within", [False, True])
def test_what_is_not_joined_is_explained_with_the_reason(within: bool) -> None:
    layer = hetero(sage, MIXED, "max")
    report = dacergnn.explain(dacergnn.optimize(nn.ModuleDict({"conv": layer}) if within else layer))
    reason = "HeteroConv is not joined; its layers are compiled one by one: aggr='max' of HeteroConv is not supported"
    place = "conv" if within else ""
    assert report.apart[place].startswith(reason)
    assert f"{place or '(model)'}: {reason}" in " ".join(str(report).split())
    assert json.loads(report.to_json())["apart"] == report.apart
    joined = dacergnn.explain(dacergnn.optimize(hetero(sage, MIXED)))
    assert (joined.apart, "not joined" in str(joined)) == ({}, False)


def test_layers_with_dropout_are_compiled_one_by_one() -> None:
    layer = hetero(lambda library, key: gat(library, key, dropout=0.5), MIXED)
    optimized = dacergnn.optimize(layer, on_unsupported="error")
    assert sum(isinstance(m, CompiledLayer) for m in optimized.modules()) == len(MIXED)
    for training in (True, False, True):
        layer.train(training)
        optimized.train(training)
        for _ in range(3):
            torch.manual_seed(1)
            found = optimized(X, EDGES)
            torch.manual_seed(1)
            assert_close(found, layer(X, EDGES), 1e-9)


CALLS: dict[str, tuple[Make, tuple[Any, ...], dict[str, Any], str]] = {
    "third": (
        sage, (X, EDGES, {}), {},
        "a third argument is given; compiled layers take x_dict, edge_index_dict and, by its name, edge_weight_dict.",
    ),
    "edge_attr": (
        gat, (X, EDGES), {"edge_attr_dict": {}},
        "edge_attr_dict is given; compiled layers take x_dict, edge_index_dict and, by its name, edge_weight_dict.",
    ),
    "nothing": (
        sage, (X, {}), {}, "x_dict or edge_index_dict is empty; pass at least one relation of the layer."
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_calls_that_run_the_original(name: str) -> None:
    make, args, kwargs, message = CALLS[name]
    layer = hetero(make, MIXED)
    optimized = compiled(layer)
    torch.manual_seed(1)
    with pytest.warns(UserWarning, match=f"^HeteroConv runs uncompiled: {re.escape(message)}$"):
        found = optimized(*args, **kwargs)
    torch.manual_seed(1)
    assert_close(found, layer(*args, **kwargs), 0)


@pytest.mark.parametrize(
    ("x", "kwargs", "message"),
    [
        (
            {"a": X["a"]},
            {},
            "x_dict must hold a tensor for each node type of edge type ('a', 'r0', 'b').",
        ),
        (X | {"b": draw(5, 3)}, {}, "x_dict['b'] is [5, 3]; it must be a tensor of shape [N, 6]."),
        (
            X,
            {"edge_weight_dict": {MIXED[0]: draw(17)}},
            "edge_weight_dict[('a', 'r0', 'b')] is given, but no layer takes it.",
        ),
    ],
)
def test_calls_that_cannot_run(x: dict[str, Tensor], kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedCallError) as error:
        compiled(hetero(sage, MIXED))(x, EDGES, **kwargs)
    assert str(error.value) == f"HeteroConv cannot run this call, compiled or not: {message}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda layer, x: layer.float(), "x_dict['b'] has dtype torch.float64, but the layer has torch.float32"),
        (lambda layer, x: x.update(a=x["a"].float()), "x_dict['a'] has dtype torch.float32, but the layer has"),
        (lambda layer, x: layer.convs[MIXED[2]].lin_r.float(), "lin_r.weight has dtype torch.float32, but"),
    ],
    ids=["layer", "features", "parameter"],
)
def test_several_element_types(change: Callable[[Any, dict[str, Tensor]], object], message: str) -> None:
    layer, x = hetero(sage, MIXED), dict(X)
    change(layer, x)
    with pytest.raises(ArrayError, match=re.escape(message)):
        compiled(layer)(x, EDGES)


def test_edges_out_of_range() -> None:
    edges = EDGES | {MIXED[2]: torch.tensor([[0, 5], [1, 1]])}
    with pytest.raises(GraphError, match=r"^edge_index_dict\[\('b', 'r2', 'a'\)\]\[0\] holds 5 at position 1, but"):
        compiled(hetero(sage, MIXED))(X, edges)

"""`HeteroConv`: one program for all relations, equal to a loop over them."""

from __future__ import annotations

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
from tests.modules.hetero_layers import (
    MIXED,
    WITHIN,
    K,
    Key,
    M,
    Make,
    draw,
    edge_index_dict,
    edge_weights,
    hetero,
    outcome,
    x_dict,
)
from tests.modules.layers import assert_close, compiled, pyg

pytestmark = pytest.mark.filterwarnings("ignore:There exist node types:UserWarning")


def mixed(library: Any, key: Key) -> nn.Module:
    """As in PyG's example: another layer for each relation."""
    makes: dict[str, Callable[[], nn.Module]] = {
        "r0": lambda: library.GATConv((K, K), 4, heads=2, add_self_loops=False, residual=True),
        "r2": lambda: library.GraphConv((K, K), M, bias=False),
        "r3": lambda: library.GCNConv(K, M),
    }
    return makes.get(key[1], lambda: library.SAGEConv((K, K), M))()


def gat(library: Any, key: Key, **options: Any) -> nn.Module:
    return library.GATConv((K, K), 4, heads=2, add_self_loops=key[0] == key[2], **options)


LAYERS: dict[str, tuple[Make, list[Key], bool]] = {
    "SAGEConv": (lambda library, _: library.SAGEConv((K, K), M), MIXED, False),
    "GraphConv": (lambda library, _: library.GraphConv((K, K), M), MIXED, True),
    "GCNConv": (lambda library, _: library.GCNConv(K, M), WITHIN, False),
    "GATConv": (gat, MIXED, False),
}
OTHERS: dict[str, tuple[Make, list[Key], bool]] = {
    "max": (lambda library, _: library.SAGEConv((K, K), M, aggr="max", root_weight=False), MIXED, False),
    "weights and self loops": (lambda library, _: library.GCNConv(K, M, improved=True), WITHIN, True),
    "weights alone": (lambda library, _: library.GCNConv(K, M, add_self_loops=False, bias=False), WITHIN, True),
    "averaged heads": (lambda library, key: gat(library, key, concat=False), MIXED, False),
    "shared projection": (lambda library, _: library.GATConv(K, M, add_self_loops=False), MIXED, False),
    "different layers": (mixed, MIXED, False),
    "different layers, weights": (mixed, MIXED, True),
}
CASES = [(name, aggr, *case) for name, case in LAYERS.items() for aggr in ("sum", "mean")]
CASES += [(name, "mean", *case) for name, case in OTHERS.items()]


@pytest.mark.parametrize(("make", "keys", "weighted", "aggr"), [
    pytest.param(make, keys, weighted, aggr, id=f"{name}-{aggr}") for name, aggr, make, keys, weighted in CASES
])  # fmt: skip
def test_outputs_and_gradients(make: Make, keys: list[Key], weighted: bool, aggr: str) -> None:
    layer, edges = hetero(make, keys, aggr), edge_index_dict(keys)
    args = x_dict(), edges, edge_weights(layer, edges) if weighted else {}
    optimized = compiled(layer)
    expected = outcome(layer, *args)
    for _ in range(2):
        names, values = outcome(optimized, *args)
        assert names == expected[0]
        assert_close(values, expected[1], 1e-9)
    assert optimized.graphs.encoded == 1  # by the first call
    assert optimized.refusal is None


def sage(library: Any, _: Key) -> nn.Module:
    return library.SAGEConv((K, K), M)


def test_types_of_different_widths() -> None:
    widths = {"a": K, "b": 3, "c": 5}
    layer = hetero(lambda library, key: library.SAGEConv((widths[key[0]], widths[key[2]]), M), MIXED)
    args = x_dict(widths), edge_index_dict(MIXED), {}
    assert_close(outcome(compiled(layer), *args)[1], outcome(layer, *args)[1], 1e-9)


def test_features_that_no_layer_reads() -> None:
    layer = hetero(lambda library, _: library.SAGEConv((K, K), M, root_weight=False), [("a", "r0", "b")])
    args = x_dict({"a": K, "b": 2, "c": 1}), edge_index_dict([("a", "r0", "b")]), {}
    assert_close(outcome(compiled(layer), *args)[1], outcome(layer, *args)[1], 1e-9)


def test_calls_with_some_of_the_relations() -> None:
    """The mean is over the relations of a call; other types and relations are ignored."""
    layer = hetero(sage, MIXED, "mean")
    optimized = compiled(layer)
    x, edges = x_dict(), edge_index_dict(MIXED)
    for keys in (MIXED[:2], [MIXED[2]], MIXED[1:]):
        part = {key: edges[key] for key in reversed(keys)} | {("a", "other", "d"): edges[MIXED[0]]}
        names, values = outcome(optimized, x | {"d": draw(2, 1)}, part, {})
        expected = outcome(layer, x | {"d": draw(2, 1)}, part, {})
        assert names == expected[0]
        assert_close(values, expected[1], 1e-9)
    assert optimized.refusal is None


def test_calls_with_relations_that_do_not_attend() -> None:
    layer = hetero(mixed, MIXED)
    args = x_dict(), edge_index_dict(MIXED[2:4]), {}
    assert_close(outcome(compiled(layer), *args)[1], outcome(layer, *args)[1], 1e-9)


def test_replaced_inside_a_model() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = (hetero(lambda lib, _: lib.SAGEConv((K, K), K), MIXED) for _ in range(2))

        def forward(self, x: dict[str, Tensor], edges: dict[Key, Tensor]) -> dict[str, Tensor]:
            hidden = {name: v.relu() for name, v in self.first(x, edges).items()}
            return self.second(x | hidden, edges)

    model = Model()
    optimized = dacergnn.optimize(model, on_unsupported="error")
    assert [name for name, m in optimized.named_modules() if isinstance(m, CompiledLayer)] == ["first", "second"]
    args = x_dict(), edge_index_dict(MIXED)
    assert_close(optimized(*args), model(*args), 1e-9)
    assert optimized.get_submodule("first").graphs.encoded == 1
    assert list(optimized.state_dict()) == list(model.state_dict())
    assert all(a is b for a, b in zip(optimized.parameters(), model.parameters(), strict=True))
    assert type(dacergnn.revert(optimized).get_submodule("first")) is pyg().HeteroConv


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


def dropout(library: Any, key: Key) -> nn.Module:
    return gat(library, key, dropout=0.5)


X, EDGES = x_dict(), edge_index_dict(MIXED)


def test_layers_with_dropout_are_compiled_one_by_one() -> None:
    layer = hetero(dropout, MIXED)
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

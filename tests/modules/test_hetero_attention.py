"""`HeteroConv` over layers that attend, alone and beside others: one program, equal to a loop over the relations."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn.errors import UnsupportedLayerError
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
    hetero,
    outcome,
    x_dict,
)
from tests.modules.layers import assert_close, compiled, pyg

WIDTHS = {"a": K, "b": 3, "c": 5}
pytestmark = pytest.mark.filterwarnings("ignore:There exist node types:UserWarning")


def gatv2(library: Any, key: Key, **options: Any) -> nn.Module:
    """Two heads, self loops where the ends are of one type."""
    return library.GATv2Conv((K, K), 4, **{"heads": 2, "add_self_loops": key[0] == key[2], **options})


def transformer(library: Any, key: Key, **options: Any) -> nn.Module:
    return library.TransformerConv((K, K), 4, heads=2, **options)


def beside_others(library: Any, key: Key, attending: Any, **options: Any) -> nn.Module:
    """The first and the fourth relation attend."""
    if key[1] in ("r0", "r3"):
        return attending(library, key, **options)
    width = 8 if options.get("concat", True) else 4
    kind = library.GraphConv if key[1] == "r2" else library.SAGEConv
    return kind((K, K), width, bias=key[1] != "r4")


CASES: dict[str, tuple[Make, list[Key]]] = {
    "GATv2Conv": (gatv2, MIXED),
    "one head": (lambda lib, key: gatv2(lib, key, heads=1), MIXED),
    "averaged": (lambda lib, key: gatv2(lib, key, concat=False), MIXED),
    "no bias": (lambda lib, key: gatv2(lib, key, bias=False), MIXED),
    "some biases": (lambda lib, key: gatv2(lib, key, bias=key[1] == "r2"), MIXED),
    "shared": (lambda lib, key: gatv2(lib, key, share_weights=True), MIXED),
    "some shared": (lambda lib, key: gatv2(lib, key, share_weights=key[2] == "a"), MIXED),
    "residual": (lambda lib, key: gatv2(lib, key, residual=True), MIXED),
    "averaged residual": (lambda lib, key: gatv2(lib, key, residual=True, concat=False), MIXED),
    "no slope": (lambda lib, key: gatv2(lib, key, negative_slope=0.0), MIXED),
    "features of edges that calls lack": (lambda lib, key: gatv2(lib, key, edge_dim=3), MIXED),
    "self loops": (lambda lib, key: gatv2(lib, key, fill_value=0.5), WITHIN),
    "widths": (lambda lib, key: lib.GATv2Conv((WIDTHS[key[0]], WIDTHS[key[2]]), M, add_self_loops=False), MIXED),
    "beside others": (lambda lib, key: beside_others(lib, key, gatv2), MIXED),
    "averaged beside others": (lambda lib, key: beside_others(lib, key, gatv2, concat=False, residual=True), MIXED),
    "TransformerConv": (transformer, MIXED),
    "TransformerConv, averaged": (lambda lib, key: transformer(lib, key, concat=False), MIXED),
    "TransformerConv, no bias": (lambda lib, key: transformer(lib, key, bias=False), MIXED),
    "TransformerConv, no root": (lambda lib, key: transformer(lib, key, root_weight=key[1] == "r0"), MIXED),
    "TransformerConv, widths": (lambda lib, key: lib.TransformerConv((WIDTHS[key[0]], WIDTHS[key[2]]), M), MIXED),
    "TransformerConv beside others": (lambda lib, key: beside_others(lib, key, transformer), MIXED),
    "GATConv, averaged residual": (
        lambda lib, key: lib.GATConv((K, K), 4, heads=2, concat=False, residual=True, add_self_loops=False), MIXED,
    ),
}  # fmt: skip


def features(name: str) -> dict[str, Tensor]:
    return x_dict(WIDTHS if "widths" in name else K)


@pytest.mark.parametrize("aggr", ["sum", "mean"])
@pytest.mark.parametrize("name", CASES)
def test_outputs_and_gradients(name: str, aggr: str) -> None:
    make, keys = CASES[name]
    layer = hetero(make, keys, aggr)
    optimized = compiled(layer)
    args = features(name), edge_index_dict(keys), {}
    expected = outcome(layer, *args)
    for _ in range(2):
        names, values = outcome(optimized, *args)
        assert names == expected[0]
        assert_close(values, expected[1], 1e-9)
    assert optimized.graphs.encoded == 1  # by the first call
    assert optimized.refusal is None


@pytest.mark.parametrize("name", ["GATv2Conv", "averaged beside others", "TransformerConv beside others"])
def test_one_program_for_all_relations(name: str) -> None:
    make, keys = CASES[name]
    optimized = dacergnn.optimize(hetero(make, keys), on_unsupported="error")
    outcome(optimized, features(name), edge_index_dict(keys), {})
    assert [m for m in optimized.modules() if isinstance(m, CompiledLayer)] == [optimized]
    report = dacergnn.explain(optimized)
    assert report.refused == {}
    assert [(layer.layer, layer.refusal, len(layer.builds)) for layer in report.layers] == [("HeteroConv", None, 1)]
    assert str(report).startswith("(model): HeteroConv compiled for training\n")


@pytest.mark.parametrize("name", ["GATv2Conv", "beside others", "TransformerConv beside others"])
def test_calls_with_some_of_the_relations(name: str) -> None:
    make, keys = CASES[name]
    layer = hetero(make, keys, "mean")
    optimized = compiled(layer)
    x, edges = x_dict(), edge_index_dict(keys)
    for some in (keys[:2], [keys[2]], keys[1:]):
        part = {key: edges[key] for key in reversed(some)}
        names, values = outcome(optimized, x, part, {})
        expected = outcome(layer, x, part, {})
        assert names == expected[0]
        assert_close(values, expected[1], 1e-9)
    assert optimized.refusal is None


@pytest.mark.parametrize("name", ["shared", "TransformerConv beside others"])
def test_training_on_new_graphs(name: str) -> None:
    make, keys = CASES[name]
    models = [hetero(make, keys) for _ in range(2)]
    models[1] = compiled(models[1])
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.003) for model in models]
    for step in range(4):
        x = {node: draw(count + step, K) for node, count in (("a", 7), ("b", 5), ("c", 4))}
        edges = {key: index[:, step:] for key, index in edge_index_dict(keys).items()}
        losses: list[Tensor] = []
        for model, optimizer in zip(models, optimizers, strict=True):
            optimizer.zero_grad()
            losses.append(torch.stack([value.square().sum() for value in model(x, edges).values()]).sum())
            losses[-1].backward()
            optimizer.step()
        assert_close(losses[1], losses[0], 1e-9)
    assert models[1].graphs.encoded == 4
    assert models[1].refusal is None
    assert_close(list(models[1].parameters()), list(models[0].parameters()), 1e-9)


def test_parameters_are_those_of_the_original() -> None:
    layer = hetero(CASES["some shared"][0], MIXED)
    optimized = compiled(layer)
    assert list(optimized.state_dict()) == list(layer.state_dict())
    assert all(a is b for a, b in zip(optimized.parameters(), layer.parameters(), strict=True))
    args = x_dict(), edge_index_dict(MIXED), {}
    optimized.load_state_dict({name: 0.5 * value for name, value in layer.state_dict().items()})
    assert_close(outcome(optimized, *args)[1], outcome(layer, *args)[1], 1e-9)


def test_options_that_change() -> None:
    """With features of two types the original calls both projections, whether they are said to be one or not."""
    layer = hetero(gatv2, MIXED)
    optimized = compiled(layer)
    args = x_dict(), edge_index_dict(MIXED), {}
    for conv in layer.convs.values():
        conv.share_weights, conv.negative_slope = True, 0.6
    assert_close(outcome(optimized, *args)[1], outcome(layer, *args)[1], 1e-9)
    assert optimized.refusal is None


@pytest.mark.parametrize("make", [
    lambda lib, key: lib.SAGEConv((K, K), M),
    lambda lib, key: lib.TransformerConv((K, K), M),
], ids=["SAGEConv", "TransformerConv"])  # fmt: skip
def test_root_weights_that_are_switched_off(make: Make) -> None:
    layer = hetero(make, MIXED)
    optimized = compiled(layer)
    args = x_dict(), edge_index_dict(MIXED), {}
    layer.convs[MIXED[0]].root_weight = False
    assert_close(outcome(optimized, *args)[1], outcome(layer, *args)[1], 1e-9)
    assert optimized.refusal is None


def test_features_without_gradients_of_results_that_are_not_used() -> None:
    """Parameters of relations into other types keep the gradient None."""
    layer, edges = hetero(gatv2, MIXED), edge_index_dict(MIXED)
    compiled(layer)(x_dict(), edges)["a"].sum().backward()
    for key, conv in layer.convs.items():
        assert all((parameter.grad is None) == (key[2] != "a") for parameter in conv.parameters())


def test_layers_whose_widths_calls_tell() -> None:
    layer = hetero_of_any_width()
    layer(x_dict(), edge_index_dict(MIXED))
    args = x_dict(), edge_index_dict(MIXED), {}
    optimized = compiled(layer)
    assert_close(outcome(optimized, *args)[1], outcome(layer, *args)[1], 1e-9)
    assert optimized.refusal is None


def hetero_of_any_width() -> Any:
    torch.manual_seed(0)
    library = pyg()
    convs = {key: library.GATv2Conv((-1, -1), M, add_self_loops=False) for key in MIXED}
    return library.HeteroConv(convs).double()


REFUSED: dict[str, tuple[Make, str]] = {
    "two kinds": (
        lambda lib, key: (lib.GATConv if key[1] == "r0" else lib.GATv2Conv)((K, K), M, add_self_loops=False),
        "attention=Attention(layer='GATv2Conv', heads=1, channels=8, concat=True, slope=0.2) of HeteroConv is not "
        "supported; give all layers the same; the first has "
        "Attention(layer='GATConv', heads=1, channels=8, concat=True, slope=0.2).",
    ),
    "maxima beside attention": (
        lambda lib, key: (
            lib.SAGEConv((K, K), M, aggr="max") if key[1] == "r2" else lib.GATv2Conv((K, K), M, add_self_loops=False)
        ),
        "aggr of convs='max' of HeteroConv is not supported; give all layers the same; the first has 'sum'.",
    ),
    "dropout": (
        lambda lib, key: gatv2(lib, key, dropout=0.5),
        "dropout=0.5 of GATv2Conv of edge type ('a', 'r0', 'b') is not supported; "
        "set it to 0 to have one program for all relations.",
    ),
    "beta": (
        lambda lib, key: transformer(lib, key, beta=True),
        "beta=True of TransformerConv of edge type ('a', 'r0', 'b') is not supported; "
        "leave it False to have one program for all relations.",
    ),
    "features of edges": (
        lambda lib, key: transformer(lib, key, edge_dim=3),
        "edge_dim=3 of TransformerConv of edge type ('a', 'r0', 'b') is not supported; "
        "leave it None; calls with features of edges are one program for each relation.",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_layers_that_are_refused(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(UnsupportedLayerError) as error:
        HeteroFrontend(hetero(make, MIXED))
    assert str(error.value) == message


def test_layers_with_dropout_are_compiled_one_by_one() -> None:
    layer = hetero(REFUSED["dropout"][0], MIXED)
    optimized = dacergnn.optimize(layer, on_unsupported="error")
    assert sum(isinstance(m, CompiledLayer) for m in optimized.modules()) == len(MIXED)
    args = x_dict(), edge_index_dict(MIXED)
    torch.manual_seed(1)
    found = optimized(*args)
    torch.manual_seed(1)
    assert_close(found, layer(*args), 1e-9)

"""`HeteroConv` over layers that attend: one program, its parameters, options and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import dacergnn
from dacergnn.modules import CompiledLayer
from tests.modules.hetero_cases import CASES, gatv2
from tests.modules.hetero_layers import MIXED, K, M, Make, draw, edge_index_dict, hetero, outcome, x_dict
from tests.modules.layers import assert_close, compiled, pyg

pytestmark = pytest.mark.filterwarnings("ignore:There exist node types:UserWarning")


@pytest.mark.parametrize("name", ["GATv2Conv", "averaged beside others", "TransformerConv beside others"])
def test_one_program_for_all_relations(name: str) -> None:
    layer = CASES[name].layer()
    optimized = dacergnn.optimize(layer, on_unsupported="error")
    outcome(optimized, *CASES[name].arguments(layer))
    assert [m for m in optimized.modules() if isinstance(m, CompiledLayer)] == [optimized]
    report = dacergnn.explain(optimized)
    assert report.refused == {}
    assert [(layer.layer, layer.refusal, len(layer.builds)) for layer in report.layers] == [("HeteroConv", None, 1)]
    assert str(report).startswith("(model): HeteroConv compiled for training\n")


@pytest.mark.parametrize("name", ["shared", "TransformerConv beside others"])
def test_training_on_new_graphs(name: str) -> None:
    models = [CASES[name].layer() for _ in range(2)]
    models[1] = compiled(models[1])
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.003) for model in models]
    for step in range(4):
        x = {node: draw(count + step, K) for node, count in (("a", 7), ("b", 5), ("c", 4))}
        edges = {key: index[:, step:] for key, index in edge_index_dict(MIXED).items()}
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
    layer = CASES["some shared"].layer()
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

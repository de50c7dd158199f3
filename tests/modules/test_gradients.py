"""Gradients: only what is asked for is computed, and what is computed is right."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from dacergnn.modules import CompiledLayer
from dacergnn.modules.programs import compiled_program
from dacergnn.program import Program
from tests.frontends.graphs import Edges, typed_edges
from tests.modules.layers import (
    EDGES,
    K,
    M,
    R,
    arguments,
    assert_close,
    compiled,
    features,
    gradients,
    hetero_graph,
    native,
    rgat,
    rgcn,
)


def alone(layer: nn.Module) -> CompiledLayer:
    """The compiled layer, whose program has no builds for calls of other layers."""
    compiled_program.cache_clear()
    return compiled(layer)


def gradient_arrays(layer: CompiledLayer) -> set[str]:
    """What the backward of the layer's call has gradients of: inputs and intermediates."""
    assert layer.last_call is not None
    (variant,) = layer.last_call[0].variants
    if variant.compilation.backward is None:
        return set()
    view = Program(variant.compilation.backward)
    written = {name for operator in view.operators for name in operator.written_arrays}
    return {name.removeprefix("grad_") for name in written if name.startswith("grad_")}


def freeze(layer: nn.Module, *names: str) -> nn.Module:
    for name, parameter in layer.named_parameters():
        parameter.requires_grad_(name not in names)
    return layer


def test_frozen_parameters_cost_nothing() -> None:
    everything = {"W", "root", "bias", "x"}
    for names in itertools.chain.from_iterable(itertools.combinations(("weight", "root", "bias"), n) for n in range(3)):
        layer = alone(freeze(rgcn(), *names))
        x, *edges = arguments()
        layer(x.requires_grad_(), *edges).sum().backward()
        frozen = {"weight": "W", "root": "root", "bias": "bias"}
        assert gradient_arrays(layer) & everything == everything - {frozen[n] for n in names}
        assert all((p.grad is None) == (n in names) for n, p in layer.named_parameters())
        assert x.grad is not None


def test_inputs_without_gradients_cost_nothing() -> None:
    layer = alone(rgcn())
    layer(*arguments()).sum().backward()
    assert "x" not in gradient_arrays(layer)
    assert {"W", "root", "bias"} <= gradient_arrays(layer)


def test_a_frozen_layer_only_passes_gradients_on() -> None:
    layer = alone(freeze(rgat(), "weight", "q", "k", "bias", "w", "l1", "b1", "l2", "b2"))
    x, *edges = arguments()
    layer(x.requires_grad_(), *edges).sum().backward()
    assert not gradient_arrays(layer) & {"W", "q", "k", "bias"}
    assert x.grad is not None


def test_bias_alone_needs_no_edges() -> None:
    layer = alone(freeze(rgcn(), "weight", "root"))
    layer(*arguments()).sum().backward()
    assert gradient_arrays(layer) == {"bias"}
    assert_close(layer.bias.grad, torch.full((M,), float(EDGES.num_src)))


def test_nothing_to_differentiate_builds_no_backward() -> None:
    layer = alone(freeze(rgcn(), "weight", "root", "bias"))
    assert not layer(*arguments()).requires_grad
    assert gradient_arrays(layer) == set()


# Finite differences in float64 ------------------------------------------------------------------------------


@pytest.mark.parametrize("edges", [typed_edges(12, 3), typed_edges(0, 1)], ids=["12 edges", "no edges"])
@pytest.mark.parametrize("name", ["RGCN", "RGAT", "HGT"])
def test_native_layer(name: str, edges: Edges) -> None:
    """By x and every parameter."""
    layer, graph = native(name).double(), hetero_graph(edges)
    x = features(torch.float64, channels=M if name == "HGT" else K).requires_grad_()

    def call(x: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        return layer(x, graph)

    inputs = (x, *layer.parameters())
    assert torch.autograd.gradcheck(call, inputs, eps=1e-6, atol=1e-6, rtol=1e-5, fast_mode=True)


@pytest.mark.parametrize("name", ["RGCN", "RGAT"])
def test_native_layers_agree_with_pyg(name: str) -> None:
    ours = native(name)
    if name == "RGCN":
        theirs = rgcn()
        names = {"W": "weight", "root": "root", "bias": "bias"}
    else:
        ours = type(ours)(K, 4, R)  # type: ignore[arg-type]
        theirs = rgat()
        names = {"W": "weight", "q": "q", "k": "k", "bias": "bias"}
    for own, other in names.items():
        parameter = getattr(ours, own)
        parameter.data = getattr(theirs, other).data.reshape(parameter.shape)
    args = arguments()
    graph = hetero_graph()
    assert_close(ours(args[0], graph), theirs(*args))
    found, expected = gradients(ours, (args[0], graph)), gradients(theirs, args)
    by_name = dict(zip(["x", *dict(theirs.named_parameters())], expected, strict=True))
    for (own, _), gradient in zip(ours.named_parameters(), found[1:], strict=True):
        assert_close(gradient, by_name[names[own]].view_as(gradient))
    assert_close(found[0], expected[0])

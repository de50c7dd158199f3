"""Models without a layer of a library are captured whole: nothing falls back, all sizes share a network."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dacergnn
from dacergnn.frontends.symbolic.steps import ProgramRun
from dacergnn.modules.capture.captured_forward import CapturedForward
from dacergnn.modules.graph_forward import compiled_forwards
from tests.capture.plain_models import MODELS, arguments

SIZES = ((30, 90), (50, 400), (17, 33), (40, 40))


def call(model: nn.Module, nodes: int, edges: int) -> list[Tensor]:
    """Returns results, gradients of features and parameters, and buffers after a call."""
    named = arguments(nodes, edges, seed=nodes)
    args = [named[name] for name in signature(model.forward).parameters]
    args = [a.clone().requires_grad_() if a.is_floating_point() else a for a in args]
    results: Any = model(*args)
    results = results if isinstance(results, tuple) else (results,)
    leaves = [a for a in (*args, *model.parameters()) if a.requires_grad]
    gradients = torch.autograd.grad(sum(r.square().sum() for r in results), leaves)
    return [*results, *gradients, *model.buffers()]


@pytest.mark.parametrize("name", MODELS)
def test_a_plain_model_is_captured_whole(name: str) -> None:
    torch.manual_seed(0)
    model, other = MODELS[name]().double(), MODELS[name]().double()
    other.load_state_dict(model.state_dict())
    fast = dacergnn.optimize(model, on_unsupported="error")
    for nodes, edges in SIZES:
        for found, expected in zip(call(fast, nodes, edges), call(other, nodes, edges), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    (forward,) = compiled_forwards(fast)
    assert isinstance(forward, CapturedForward)
    (graph,) = forward.graphs
    ((_, network),) = graph.networks
    assert any(isinstance(step, ProgramRun) for step in network.steps)
    assert "compiled for training" in str(dacergnn.explain(fast))

"""Activations behind layers, done by their programs."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import RGATConv, RGCNConv, Sequential

import dacergnn
from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.activations import activation_of
from dacergnn.modules import CompiledLayer
from dacergnn.modules.follower import DoneBefore
from dacergnn.program.flatten import Activation

N, R = 20, 3


def arguments() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(N, 8, dtype=torch.float64), torch.randint(0, N, (2, 60)), torch.randint(0, R, (60,))


def model(*activations: nn.Module) -> Any:
    torch.manual_seed(0)
    layers = [RGCNConv(8, 8, R), RGATConv(8, 4, R, heads=2), RGCNConv(8, 8, R, num_bases=2)]
    steps: list[Any] = []
    for layer, activation in zip(layers, activations, strict=False):
        steps += [(layer, "x, e, t -> x"), activation]
    return Sequential("x, e, t", steps).double()


def gradients(module: Any, x: Tensor, *edges: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    out = module(x, *edges)
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    found = torch.autograd.grad((out * weights).sum(), [x, *module.parameters()], allow_unused=True)
    return [out, *(g for g in found if g is not None)]


@pytest.mark.parametrize(
    "activations",
    [(nn.ReLU(), nn.ELU(0.5), nn.LeakyReLU(0.2)), (nn.Sigmoid(), nn.Tanh(), nn.ReLU(inplace=True))],
)
def test_followed_layers_do_the_activation(activations: tuple[nn.Module, ...]) -> None:
    original, args = model(*activations), arguments()
    fast = dacergnn.optimize(original)
    layers = [m for m in fast.modules() if isinstance(m, CompiledLayer)]
    assert [layer.follower is not None for layer in layers] == [True] * 3
    assert sum(isinstance(m, DoneBefore) for m in fast.modules()) == 3
    for ours, theirs in zip(gradients(fast, *args), gradients(original, *args), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert torch.equal(dacergnn.revert(fast)(*args), original(*args))
    for same in (copy.deepcopy(fast), pickle.loads(pickle.dumps(layers[0]))):
        assert any(m.follower is not None for m in same.modules() if isinstance(m, CompiledLayer))


def test_the_backward_reads_the_result_and_nothing_more() -> None:
    fast, args = dacergnn.optimize(model(nn.ELU())), arguments()
    gradients(fast, *args)
    (layer,) = dacergnn.explain(fast).layers
    assert layer.builds[0].saved == ["out_3"]


def test_calls_that_run_the_original_are_activated(monkeypatch: pytest.MonkeyPatch) -> None:
    original, args = model(nn.ReLU()), arguments()
    fast = dacergnn.optimize(original)
    (layer,) = (m for m in fast.modules() if isinstance(m, CompiledLayer))

    def refuse(*args: Any) -> None:
        raise UnsupportedCallError("no.")

    monkeypatch.setattr(layer.frontend, "edges", refuse)
    with pytest.warns(UserWarning, match="runs uncompiled"):
        assert torch.equal(fast(*args), original(*args))


def test_what_is_used_elsewhere_stays() -> None:
    """A layer or an activation of several steps, a result that is needed as it is, layers with hooks, other modules."""
    layer, relu, step = RGCNConv(8, 8, R), nn.ReLU(), "x, e, t -> x"
    hooked = RGCNConv(8, 8, R)
    hooked.register_forward_hook(lambda module, args, out: None)
    cases: list[list[Any]] = [
        [(layer, step), relu, (layer, step), nn.ReLU()],
        [(RGCNConv(8, 8, R), step), relu, (RGCNConv(8, 8, R), step), relu],
        [(RGCNConv(8, 8, R), "x, e, t -> y"), (nn.ReLU(), "y -> x")],
        [(hooked, step), nn.ReLU()],
        [(RGCNConv(8, 8, R), step), nn.Dropout(0.0), nn.ReLU()],
    ]
    for steps in cases:
        fast = dacergnn.optimize(Sequential("x, e, t", steps))
        assert not any(isinstance(m, DoneBefore) for m in fast.modules())


def test_known_activations() -> None:
    assert activation_of(F.elu) == Activation("elu", (1.0,))
    assert activation_of(nn.LeakyReLU(0.3)) == Activation("leakyrelu", (0.3,))
    assert activation_of(nn.Softmax()) is None
    assert activation_of(lambda x: x) is None
    hooked = nn.ReLU()
    hooked.register_forward_hook(lambda module, args, out: None)
    assert activation_of(hooked) is None

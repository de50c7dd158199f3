"""Activations behind layers, done by their programs."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import GCN, GATConv, GCNConv, RGATConv, RGCNConv, Sequential

import dacergnn
from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.activations import activation_of
from dacergnn.frontends.followed import followed
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


@pytest.mark.parametrize("module", [nn.GELU(approximate="tanh"), nn.Softplus(beta=2.0), nn.Softplus(threshold=1.0)])
def test_modules_with_other_options_are_no_operators(module: nn.Module) -> None:
    assert activation_of(module) is None
    assert activation_of(type(module)()) is not None


@pytest.mark.parametrize(
    "activations",
    [
        (nn.ReLU(), nn.ELU(0.5), nn.LeakyReLU(0.2)),
        (nn.Sigmoid(), nn.Tanh(), nn.ReLU(inplace=True)),
        (nn.GELU(), nn.SiLU(), nn.Softplus()),
        (nn.LeakyReLU(-0.3), nn.LeakyReLU(0.0), nn.ELU(-0.5)),  # results do not tell the sign of operands
    ],
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
    fast, args = dacergnn.optimize(model(nn.LeakyReLU())), arguments()
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
        [(RGCNConv(8, 8, R), "x, e, t -> y"), (nn.ReLU(), "x -> x")],
        [(hooked, step), nn.ReLU()],
        [(RGCNConv(8, 8, R), step), nn.Dropout(0.0), nn.ReLU()],
    ]
    for steps in cases:
        fast = dacergnn.optimize(Sequential("x, e, t", steps))
        assert not any(isinstance(m, DoneBefore) for m in fast.modules())


@pytest.mark.parametrize(
    ("options", "layers"),
    [
        ({}, 2),
        ({"jk": "cat"}, 3),
        ({"norm": "batch_norm"}, 0),
        ({"norm": "batch_norm", "act_first": True}, 2),
        ({"act": None}, 0),
        ({"num_layers": 1}, 0),
        ({"num_layers": 1, "jk": "last"}, 1),
    ],
)
def test_models_of_pyg(options: dict[str, Any], layers: int) -> None:
    found = followed(GCN(8, 8, **{"num_layers": 3, "out_channels": 4} | options))
    assert found == ([(tuple(f"convs.{i}" for i in range(layers)), "act")] if layers else [])


def test_a_model_of_pyg() -> None:
    torch.manual_seed(2)
    original, (x, edges, _) = GCN(8, 8, num_layers=2, out_channels=4, act="elu").double(), arguments()
    fast = dacergnn.optimize(original)
    assert [m.follower is not None for m in fast.modules() if isinstance(m, CompiledLayer)] == [True, False]
    torch.testing.assert_close(fast(x, edges), original(x, edges))


def test_what_stands_for_an_activation_is_in_the_mode_of_the_model() -> None:
    model = GCN(8, 8, num_layers=2, out_channels=4)
    for mode in (False, True):
        assert [m.training for m in dacergnn.optimize(model.train(mode)).modules()] == [mode] * len([*model.modules()])


def test_programs_and_results_that_take_no_activation() -> None:
    """Of one layer: programs by what a call has, heads whose mean torch takes."""
    x, edges, _ = arguments()
    weight = torch.linspace(0, 1, edges.size(1), dtype=torch.float64)
    torch.manual_seed(3)
    first = Sequential("x, e, w", [(GCNConv(8, 8), "x, e, w -> x"), nn.Tanh()]).double()
    heads = Sequential("x, e, w", [(GATConv(8, 4, heads=2, concat=False), "x, e -> x"), nn.ELU()]).double()
    for original in (first, heads):
        fast = dacergnn.optimize(original)
        assert any(isinstance(m, DoneBefore) for m in fast.modules())
        for given in (weight, None, weight):
            torch.testing.assert_close(fast(x, edges, given), original(x, edges, given))


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (F.relu, Activation("relu")), (torch.relu, Activation("relu")), (F.elu, Activation("elu", (1.0,))),
        (F.leaky_relu, Activation("leakyrelu", (0.01,))), (F.sigmoid, Activation("sigmoid")),
        (torch.sigmoid, Activation("sigmoid")), (F.tanh, Activation("tanh")), (torch.tanh, Activation("tanh")),
        (nn.LeakyReLU(0.3), Activation("leakyrelu", (0.3,))), (nn.ReLU6(), None), (nn.Softmax(), None),
        (lambda x: x, None), ([torch.relu], None),
    ],
)  # fmt: skip
def test_known_activations(function: Any, expected: Activation | None) -> None:
    assert activation_of(function) == expected


def test_activations_that_do_more_are_none() -> None:
    class Own(nn.ReLU):
        pass

    changed = [Own(), *(nn.ReLU() for _ in range(4))]
    changed[1].register_forward_hook(lambda module, args, out: None)
    changed[2].register_forward_pre_hook(lambda module, args: None)
    changed[3].register_full_backward_hook(lambda module, given, grad: None)
    changed[4].forward = torch.tanh
    assert [activation_of(module) for module in changed] == [None] * 5

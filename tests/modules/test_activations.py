"""Activations of layers, done by their programs; those of models stay where users see them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric import nn as pyg

import dacergnn
from dacergnn.frontends.activations import activation_of
from dacergnn.program.flatten import Activation

dgl = pytest.importorskip("dgl")
N, K, R = 20, 8, 3
EDGES = torch.randint(N, (2, 60), generator=torch.Generator().manual_seed(1))


def features(seed: int = 1) -> Tensor:
    return torch.randn(N, K, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def step(module: Any, *args: Any) -> list[Tensor]:
    """Returns the result, and the gradients of features and parameters."""
    (x,) = [a for a in args if isinstance(a, Tensor) and a.requires_grad]
    out = module(*args)
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    found = torch.autograd.grad((out * weights).sum(), [x, *module.parameters()], allow_unused=True)
    return [out, *(g for g in found if g is not None)]


@pytest.mark.parametrize("module", [nn.GELU(approximate="tanh"), nn.Softplus(beta=2.0), nn.Softplus(threshold=1.0)])
def test_modules_with_other_options_are_no_operators(module: nn.Module) -> None:
    assert activation_of(module) is None
    assert activation_of(type(module)()) is not None


@pytest.mark.parametrize(
    "activation",
    [
        nn.ReLU(), nn.ELU(0.5), nn.LeakyReLU(0.2), nn.Sigmoid(), nn.Tanh(), nn.ReLU(inplace=True), nn.GELU(), nn.SiLU(),
        nn.Softplus(), nn.LeakyReLU(-0.3), nn.LeakyReLU(0.0), nn.ELU(-0.5),
    ],
    ids=str,
)  # fmt: skip
def test_layers_do_their_own_activation(activation: nn.Module) -> None:
    g = dgl.add_self_loop(dgl.graph((EDGES[0], EDGES[1]), num_nodes=N))
    for make in (dgl.nn.GraphConv, lambda *sizes, **options: dgl.nn.GATConv(*sizes, 2, **options)):
        torch.manual_seed(0)
        original = make(K, 4, activation=activation).double()
        fast, x = dacergnn.optimize(original, on_unsupported="error"), features()
        for ours, theirs in zip(step(fast, g, x), step(original, g, x), strict=True):
            torch.testing.assert_close(ours, theirs)


def test_the_backward_reads_the_result_and_nothing_more() -> None:
    g = dgl.graph((EDGES[0], EDGES[1]), num_nodes=N)
    fast = dacergnn.optimize(dgl.nn.RelGraphConv(K, K, R, activation=nn.LeakyReLU(), self_loop=False).double())
    x = features()
    fast(g, x, torch.arange(60) % R).sum().backward()
    (layer,) = dacergnn.explain(fast).layers
    assert len(layer.builds[0].saved) == 1


Change = Callable[[Any], Any]


class _Around(nn.Module):
    """Uses the activation of the model within once more."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = pyg.GraphSAGE(K, K, 2, K, act="tanh"), nn.Linear(K, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.body.act(self.head(self.body(x, edge_index)))


def _steps() -> Any:
    step = "x, edges -> x"
    return pyg.Sequential("x, edges", [(pyg.SAGEConv(K, K), step), nn.LeakyReLU(0.1), (pyg.GCNConv(K, 3), step)])


PARTS: dict[str, tuple[Callable[[], Any], Change]] = {
    "used again": (_Around, lambda m: None),
    "a layer alone": (lambda: pyg.GCN(K, K, 2, 3, act="elu"), lambda m: m.convs[0]),
    "another activation": (lambda: pyg.GAT(K, K, 2, 3, act="relu"), lambda m: setattr(m, "act", nn.ELU())),
    "no activation": (lambda: pyg.GraphSAGE(K, K, 2, 3), lambda m: setattr(m, "act", None)),
    "a norm": (
        lambda: pyg.GCN(K, K, 2, 3),
        lambda m: setattr(m, "norms", nn.ModuleList([nn.LayerNorm(K).double()] * 2)),
    ),
    "another layer": (lambda: pyg.GCN(K, K, 2, 3), lambda m: m.convs.__setitem__(0, pyg.GraphConv(K, K).double())),
    "an option": (_steps, lambda m: setattr(m[1], "negative_slope", 0.7)),
    "a layer of several alone": (_steps, lambda m: m[0]),
    "a hook of the activation": (_steps, lambda m: m[1].register_forward_hook(lambda *call: call[2] * 2) and None),
    "a model without its last layer": (_steps, lambda m: nn.Sequential(_First(m))),
}


class _First(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.conv, self.act = model[0], model[1]

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.act(self.conv(x, edge_index))


@pytest.mark.parametrize("change", PARTS)
@pytest.mark.parametrize("called", [False, True])
def test_parts_of_a_model_mean_what_they_meant(change: str, called: bool) -> None:
    make, apply = PARTS[change]
    torch.manual_seed(0)
    original = make().double()
    fast = dacergnn.optimize(copy.deepcopy(original))
    found: list[Any] = []
    for model in (original, fast):
        if called:
            model(features(2), EDGES)
        torch.manual_seed(1)
        part = apply(model)
        if isinstance(part, nn.Sequential):
            part = part[0]
        found.append(step(part if part is not None else model, features(), EDGES))
    torch.testing.assert_close(*found)


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

"""What front ends make of torch's element-wise functions, from one end of the floating-point numbers to the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import MessagePassing

import dacergnn
from tests.support.far_out import SEED, assert_as_accurate, errors, exactly, operands

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "exp": torch.exp, "expm1": torch.expm1, "log": torch.log, "log1p": torch.log1p, "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt, "reciprocal": torch.reciprocal, "square": torch.square, "abs": torch.abs, "neg": torch.neg,
    "erf": torch.erf, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "logsigmoid": F.logsigmoid, "silu": F.silu,
    "softplus": F.softplus, "softplus of twice": lambda x: F.softplus(x, beta=2.0),
    "softplus of minus a half": lambda x: F.softplus(x, beta=-0.5, threshold=30),
    "softplus up to 1": lambda x: F.softplus(x, 1.0, 1.0),
    "relu": F.relu, "leaky_relu": F.leaky_relu, "leaky_relu of 0": lambda x: F.leaky_relu(x, 0.0),
    "elu": F.elu, "elu of 0.3": lambda x: F.elu(x, 0.3), "gelu": F.gelu,
    "pow 0": lambda x: x**0, "pow 0.5": lambda x: x**0.5, "pow 1": lambda x: x**1, "pow 2": lambda x: x**2,
    "pow -1": lambda x: x**-1,
    "pow 3": lambda x: x**3, "pow -1.5": lambda x: torch.pow(x, -1.5), "sin": torch.sin, "cos": torch.cos,
    "clamp_max": lambda x: x.clamp_max(0.5),
    "clamp": lambda x: x.clamp(-1.0, 2.0), "clamp_min": lambda x: x.clamp_min(1e-5), "clip": lambda x: x.clip(max=0),
    "clamp nothing": lambda x: x.clamp(2.0, -1.0), "maximum": lambda x: torch.maximum(x, x.square()),
    "minimum": lambda x: torch.minimum(0.5 * x, x),
    "add": lambda x: torch.add(x, 1.0, alpha=3), "sub": lambda x: 1.0 - x, "mul": lambda x: x * -3.0,
    "div": lambda x: 3.0 / x, "share": lambda x: x / (x + 1.0),
    "share of squares": lambda x: x / (x.square() + 1.0),
    "selu": F.selu, "celu": F.celu, "celu of a half": lambda x: F.celu(x, 0.5), "hardtanh": F.hardtanh,
    "hardtanh of 0 and 2": lambda x: F.hardtanh(x, 0.0, 2.0), "relu6": F.relu6,
    "hardswish": F.hardswish, "softshrink": F.softshrink, "hardshrink": F.hardshrink,
    "softsign": F.softsign, "threshold": lambda x: F.threshold(x, 0.1, 20.0),
    # An infinite slope behind a function that hides it.
    "sqrt of relu": lambda x: F.relu(x).sqrt(), "log of clamp": lambda x: x.clamp(min=0).log(),
    "sqrt of maximum": lambda x: torch.maximum(x, torch.zeros_like(x)).sqrt(),
    "log of minimum": lambda x: torch.minimum(x, torch.ones_like(x)).rsqrt(),
    "log of softplus": lambda x: F.softplus(x).log(), "log of sigmoid": lambda x: torch.sigmoid(x).log(),
    "sqrt of square": lambda x: x.square().sqrt(), "inverse of square": lambda x: 1.0 / x**2,
}  # fmt: skip


class Layer(MessagePassing):
    """Each function of an argument of its own, edge by edge."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.names = names

    def forward(self, edge_index: Tensor, *xs: Tensor) -> list[Tensor]:
        return [self.propagate(edge_index, x=x, function=name) for name, x in zip(self.names, xs, strict=True)]

    def message(self, x_j: Tensor, function: str) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return FUNCTIONS[function](x_j)


Results = dict[str, tuple[Tensor, Tensor]]


def run(layer: Callable[..., list[Tensor]], names: list[str], x: Tensor) -> Results:
    """Value and gradient of each function; the seed of the gradient is not 1."""
    edges = torch.arange(len(x)).repeat(2, 1)
    xs = [x.clone().requires_grad_() for _ in names]
    values = layer(edges, *xs)
    gradients = torch.autograd.grad(values, xs, [torch.full_like(x, SEED)] * len(xs))
    return {name: (v.detach(), g) for name, v, g in zip(names, values, gradients, strict=True)}


@pytest.fixture(autouse=True)
def _as_users_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """Multiplications and additions are contracted as in their builds."""
    monkeypatch.delenv("CXXFLAGS", raising=False)


@pytest.mark.compiled
@pytest.mark.parametrize(("dtype", "names"), [(torch.float32, [*FUNCTIONS]), (torch.float64, [*FUNCTIONS][::3])])
def test_functions_far_out(dtype: torch.dtype, names: list[str]) -> None:
    """Functions become the same operators in float64, each of which is tested there by itself.

    It takes a quarter of a minute, as users' builds of so many loops do.
    """
    x, layer = operands(dtype), Layer(names)
    fast = dacergnn.optimize(Layer(names), on_unsupported="error")
    found, given = run(fast, names, x), run(layer, names, x)
    assert len(dacergnn.explain(fast).layers[0].builds) == 1  # all of them were compiled
    single = run(layer, names, x.float())
    wide = run(layer, names, x.double())
    reference = run(layer, names, x.float().double())
    for name in names:
        for i, what in enumerate(("value", "gradient")):
            exact = exactly(name, i, x, wide[name][i])
            own = errors(single[name][i], reference[name][i])
            steps = 2 if " of " in name else 1
            assert_as_accurate(found[name][i], given[name][i], exact, f"{what} of {name}", own, steps)


def test_trained_exponents_get_gradients() -> None:
    """Even where their value is one that the program form has an operator for."""

    class Power(MessagePassing):
        def __init__(self) -> None:
            super().__init__()
            self.exponent = torch.nn.Parameter(torch.tensor([2.0]))

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.propagate(edge_index, x=x)

        def message(self, x_j: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
            return x_j**self.exponent

    x, edges = torch.tensor([[0.5], [3.0]]), torch.arange(2).repeat(2, 1)
    found: list[Tensor] = []
    for layer in (Power(), dacergnn.optimize(Power(), on_unsupported="ignore")):
        layer(x, edges).sum().backward()
        (parameter,) = layer.parameters()
        assert parameter.grad is not None
        found.append(parameter.grad)
    torch.testing.assert_close(found[1], found[0])

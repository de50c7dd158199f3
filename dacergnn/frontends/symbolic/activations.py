"""Rules for activations that are written with other operators; values and slopes are those of torch, also at kinks.

A branch is chosen by `where`, so that the other one has no part in the gradient.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from dacergnn.frontends.symbolic.call import LayerCall
from dacergnn.frontends.symbolic.expr import Expr, Untranslatable, apply, const
from dacergnn.frontends.symbolic.table import rule

_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805
"""The constants of torch, from Klambauer et al., "Self-Normalizing Neural Networks"."""


def _where(name: str, a: Expr, b: Expr, chosen: Expr, other: Expr) -> Expr:
    """Returns one value where ``a`` compares to ``b`` as asked, and another one elsewhere."""
    return apply("where", apply(name, a, b), chosen, other)


@rule("selu")
def _selu(c: LayerCall, a: Any, inplace: bool = False) -> Expr:
    return apply("mul", apply("elu", c.operand(a), const(_SELU_ALPHA)), const(_SELU_SCALE))


@rule("celu")
def _celu(c: LayerCall, a: Any, alpha: float = 1.0, inplace: bool = False) -> Expr:
    if not alpha > 0:
        raise Untranslatable
    return apply("mul", apply("elu", apply("div", c.operand(a), const(alpha)), const(1.0)), const(alpha))


@rule("hardtanh")
def _hardtanh(c: LayerCall, a: Any, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Expr:
    return _between(c.operand(a), min_val, max_val)


def _between(x: Expr, low: float, high: float) -> Expr:
    """Returns a value within bounds, whose slope is 0 at these and beyond, and where it is NaN."""
    flat = apply("clamp_min", Expr("detach", (x,), (), x.shape), const(low))
    return _where("gt", x, const(low), _where("gt", const(high), x, x, const(high)), flat)


@rule("relu6")
def _relu6(c: LayerCall, a: Any, inplace: bool = False) -> Expr:
    return _hardtanh(c, a, 0.0, 6.0)


@rule("hardswish")
def _hardswish(c: LayerCall, a: Any, inplace: bool = False) -> Expr:
    x = c.operand(a)
    return apply("div", apply("mul", x, _between(apply("add", x, const(3.0)), 0.0, 6.0)), const(6.0))


@rule("mish")
def _mish(c: LayerCall, a: Any, inplace: bool = False) -> Expr:
    # tanh(softplus(x)) is n / (n + 2) for n = e^x (e^x + 2); the slope of 1 - 2 / (n + 2) does not cancel out.
    x = c.operand(a)
    power = apply("exp", apply("clamp_max", x, const(20.0)))  # beyond, it is x in any element type
    n = apply("mul", power, apply("add", power, const(2.0)))
    full = apply("add", n, const(2.0))
    above = apply("mul", x, apply("sub", const(1.0), apply("div", const(2.0), full)))
    return _where("gt", x, const(0.0), above, apply("div", apply("mul", x, n), full))


@rule("softshrink")
def _softshrink(c: LayerCall, a: Any, lambd: float = 0.5) -> Expr:
    x, width = c.operand(a), const(lambd)
    below = _where("gt", const(-lambd), x, apply("add", x, width), _nothing(x))
    return _where("gt", x, width, apply("sub", x, width), below)


def _nothing(x: Expr) -> Expr:
    """Returns zeros, NaN where the operand is; they have no slope."""
    constant = Expr("detach", (x,), (), x.shape)
    return apply("sub", constant, constant)


@rule("hardshrink")
def _hardshrink(c: LayerCall, a: Any, lambd: float = 0.5) -> Expr:
    x = c.operand(a)
    return _where("gt", apply("abs", x), const(lambd), x, _nothing(x))


@rule("tanhshrink")
def _tanhshrink(c: LayerCall, a: Any) -> Expr:
    x = c.operand(a)
    return apply("sub", x, apply("tanh", x))


@rule("softsign")
def _softsign(c: LayerCall, a: Any) -> Expr:
    x = c.operand(a)
    return apply("div", x, apply("add", apply("abs", x), const(1.0)))


@rule("prelu", "_prelu_kernel")
def _prelu(c: LayerCall, a: Any, weight: Any) -> Expr:
    """Scales what is below 0 by a weight for all, or for each entry of the first axis of rows."""
    slopes = c.tensor(weight)
    if slopes.dim() == 1:
        slopes = c.trace.torch(Tensor.view, slopes, (-1, *[1] * (len(c.shape) - 2)))
    x = c.operand(a)
    return _where("gt", x, const(0.0), x, apply("mul", x, c.operand(slopes)))


@rule("threshold", "_threshold")
def _threshold(c: LayerCall, a: Any, threshold: float, value: float, inplace: bool = False) -> Expr:
    x = c.operand(a)
    return _where("ge", const(threshold), x, const(value), x)

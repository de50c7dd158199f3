"""Rules for functions that work element by element, and for constant values."""

from __future__ import annotations

import math
from typing import Any

import torch

from dacergnn.frontends.symbolic.call import LayerCall
from dacergnn.frontends.symbolic.expr import Expr, Untranslatable, apply, const
from dacergnn.frontends.symbolic.table import rule
from dacergnn.library_nodes.operators import OPERATORS, Operator
from dacergnn.runtime.random_masks import ones_after_dropout


@rule("add")
def _add(c: LayerCall, a: Any, b: Any, *, alpha: float = 1) -> Expr:
    return c.elementwise("add", a, b) if alpha == 1 else _scaled("add", c, a, b, alpha)


@rule("sub", "subtract")
def _sub(c: LayerCall, a: Any, b: Any, *, alpha: float = 1) -> Expr:
    return c.elementwise("sub", a, b) if alpha == 1 else _scaled("sub", c, a, b, alpha)


def _scaled(name: str, c: LayerCall, a: Any, b: Any, alpha: float) -> Expr:
    return c.fitted(apply(name, c.operand(a), apply("mul", c.operand(b), const(alpha))), c.shape)


@rule("__rsub__", "rsub")
def _rsub(c: LayerCall, a: Any, b: Any) -> Expr:
    return c.elementwise("sub", b, a)


@rule("mul", "multiply", "__rmul__")
def _mul(c: LayerCall, a: Any, b: Any) -> Expr:
    return c.elementwise("mul", a, b)


@rule("div", "divide", "true_divide")
def _div(c: LayerCall, a: Any, b: Any, *, rounding_mode: str | None = None) -> Expr:
    if rounding_mode is not None:
        raise Untranslatable
    return c.elementwise("div", a, b)


@rule("__rdiv__", "__rtruediv__")
def _rdiv(c: LayerCall, a: Any, b: Any) -> Expr:
    return c.elementwise("div", b, a)


@rule("reciprocal")
def _reciprocal(c: LayerCall, a: Any) -> Expr:
    return c.elementwise("div", 1.0, a)


@rule("square")
def _square(c: LayerCall, a: Any) -> Expr:
    return c.elementwise("mul", a, a)


@rule("pow", "__pow__")
def _pow(c: LayerCall, a: Any, exponent: Any) -> Expr:
    if not isinstance(exponent, int | float):  # a tensor, which may be trained
        raise Untranslatable
    if exponent == 2:
        return c.elementwise("mul", a, a)
    if exponent == 0.5:
        return c.elementwise("sqrt", a)
    if exponent == -1:
        return c.elementwise("div", 1.0, a)
    if exponent == 1:
        return c.operand(a)
    return apply("pow", c.operand(a), _constant(exponent))


@rule("rsqrt")
def _rsqrt(c: LayerCall, a: Any) -> Expr:
    return apply("div", const(1.0), c.elementwise("sqrt", a))


def _of_record(name: str, operator: Operator) -> None:
    """Enters the rule of an operator that takes one value, and constants by position or by name."""
    meaning = operator.torch

    @rule(*meaning.functions)
    def _(c: LayerCall, a: Any, *args: Any, inplace: bool = False, **options: Any) -> Expr:
        arguments = dict(zip(meaning.options, args, strict=False)) | options
        others = args[len(meaning.options) :]
        fixed = {k: arguments.pop(k, value) for k, value in meaning.fixed.items()}
        if any(value is not True and value is not False for value in others) or fixed != meaning.fixed:
            raise Untranslatable
        defaults = zip(meaning.options, operator.constants, strict=True)
        constants = [_constant(arguments.pop(option, default)) for option, default in defaults]
        if arguments:
            raise Untranslatable
        return apply(name, c.operand(a), *constants) if constants else c.elementwise(name, a)


for _name, _operator in OPERATORS.items():
    if _operator.is_activation:
        _of_record(_name, _operator)


@rule("softplus")
def _softplus(c: LayerCall, a: Any, beta: float = 1, threshold: float = 20) -> Expr:
    if beta == 1 and threshold >= 20:  # the function and its operand round to the same float
        return c.elementwise("softplus", a)
    if beta == 0:
        raise Untranslatable
    x = c.operand(a)
    scaled = apply("mul", x, const(beta))
    soft = apply("div", apply("softplus", scaled), const(beta))
    return apply("where", apply("gt", scaled, const(threshold)), x, soft)


@rule("logsigmoid", "log_sigmoid")
def _logsigmoid(c: LayerCall, a: Any) -> Expr:
    return apply("neg", apply("softplus", apply("neg", c.operand(a))))


@rule("clamp", "clip")
def _clamp(c: LayerCall, a: Any, min: float | None = None, max: float | None = None) -> Expr:
    x = c.operand(a)
    if min is not None:
        x = apply("clamp_min", x, _constant(min))
    return x if max is None else apply("clamp_max", x, _constant(max))


def _constant(argument: Any) -> Expr:
    if not isinstance(argument, int | float) or not math.isfinite(argument):
        raise Untranslatable
    return const(argument)


@rule("maximum")
def _maximum(c: LayerCall, a: Any, b: Any) -> Expr:
    return c.elementwise("max", a, b)


@rule("minimum")
def _minimum(c: LayerCall, a: Any, b: Any) -> Expr:
    return c.elementwise("min", a, b)


@rule("dropout", view=True)
def _dropout(c: LayerCall, a: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Expr:
    x = c.operand(a)
    if not training or p == 0:
        return x
    # The same random numbers as torch draws for a tensor of this shape.
    mask = c.trace.torch(ones_after_dropout, c.shape, p, dtype=c.dtype, device=c.trace.device)
    c.call = (torch.mul, (a.node, mask), {})  # in place of a dropout with other numbers
    return apply("mul", x, c.trace.leaf(mask, "row", mask.shape))


@rule("detach", view=True)
def _detach(c: LayerCall, a: Any) -> Expr:
    x = c.operand(a)
    return x if x.op in ("const", "detach") else Expr("detach", (x,), (), x.shape)


@rule("clone", mask=True)
def _clone(c: LayerCall, a: Any, *, memory_format: Any = None) -> Expr:
    return c.operand(a)


@rule("contiguous", "float", "double", "to", "type_as", view=True)
def _same(c: LayerCall, a: Any, *args: Any, **options: Any) -> Expr:
    for place in (*args, *options.values()):
        if isinstance(place, str | torch.device) and not _here(torch.device(place), c.trace.device):
            raise Untranslatable
    return c.operand(a)


def _here(place: torch.device, device: torch.device) -> bool:
    if place == torch.device("cuda"):  # the current one
        place = torch.device("cuda", torch.cuda.current_device())
    return place == device


@rule("new_zeros", "zeros_like")
def _zeros(c: LayerCall, *_: Any, **__: Any) -> Expr:
    return const(0.0)


@rule("new_ones", "ones_like")
def _ones(c: LayerCall, *_: Any, **__: Any) -> Expr:
    return const(1.0)


@rule("new_full", "full_like")
def _full(c: LayerCall, _: Any, *args: Any, **options: Any) -> Expr:
    number = options.get("fill_value", args[-1] if args else None)
    if not isinstance(number, int | float) or not abs(number) <= torch.finfo(c.dtype).max:
        raise Untranslatable
    return const(number)

"""Rules for comparisons of values per edge, and for values that these choose.

A mask is a value of truth, whose rows programs compute as the numbers 0 and 1 of the values that were compared.
"""

from __future__ import annotations

from math import isinf
from typing import Any

import torch
from torch import Tensor

from dacergnn.frontends.symbolic.call import LayerCall
from dacergnn.frontends.symbolic.expr import Expr, Untranslatable, apply, const
from dacergnn.frontends.symbolic.table import RULES, rule


@rule("gt", "greater", "__gt__", mask=True)
def _gt(c: LayerCall, a: Any, b: Any) -> Expr:
    return _compared(c, "gt", a, b)


@rule("lt", "less", "__lt__", mask=True)
def _lt(c: LayerCall, a: Any, b: Any) -> Expr:
    return _compared(c, "gt", b, a)


@rule("ge", "greater_equal", "__ge__", mask=True)
def _ge(c: LayerCall, a: Any, b: Any) -> Expr:
    return _compared(c, "ge", a, b)


@rule("le", "less_equal", "__le__", mask=True)
def _le(c: LayerCall, a: Any, b: Any) -> Expr:
    return _compared(c, "ge", b, a)


@rule("eq", "__eq__", mask=True)
def _eq(c: LayerCall, a: Any, b: Any) -> Expr:
    if isinstance(b, float) and isinf(b):
        return apply("gt", c.operand(a), _largest(c)) if b > 0 else apply("gt", _least(c), c.operand(a))
    return _compared(c, "eq", a, b)


@rule("ne", "not_equal", "__ne__", mask=True)
def _ne(c: LayerCall, a: Any, b: Any) -> Expr:
    return _not(_eq(c, a, b))


@rule("isinf", mask=True)
def _isinf(c: LayerCall, a: Any) -> Expr:
    return apply("gt", apply("abs", c.operand(a)), _largest(c))


@rule("isfinite", mask=True)
def _isfinite(c: LayerCall, a: Any) -> Expr:
    return apply("ge", _largest(c), apply("abs", c.operand(a)))


@rule("isnan", mask=True)
def _isnan(c: LayerCall, a: Any) -> Expr:
    x = c.operand(a)
    return _not(apply("eq", x, x))


@rule("sign")
def _sign(c: LayerCall, a: Any) -> Expr:
    # Zeros are chosen from a product, through which the result has a gradient, as torch's: that of zeros.
    x, zero = c.operand(a), const(0.0)
    return apply(
        "where",
        apply("eq", x, zero),
        apply("mul", x, zero),
        apply("sub", apply("gt", x, zero), apply("gt", zero, x)),
    )


@rule("logical_not", "__invert__", "bitwise_not", mask=True)
def _logical_not(c: LayerCall, a: Any) -> Expr:
    return _not(_truth(c, a))


@rule("logical_and", "__and__", "__rand__", "bitwise_and", mask=True)
def _logical_and(c: LayerCall, a: Any, b: Any) -> Expr:
    return c.fitted(apply("mul", _truth(c, a), _truth(c, b)), c.shape)


@rule("logical_or", "__or__", "__ror__", "bitwise_or", mask=True)
def _logical_or(c: LayerCall, a: Any, b: Any) -> Expr:
    return c.fitted(apply("max", _truth(c, a), _truth(c, b)), c.shape)


@rule("logical_xor", "__xor__", "__rxor__", "bitwise_xor", mask=True)
def _logical_xor(c: LayerCall, a: Any, b: Any) -> Expr:
    return c.fitted(_not(apply("eq", _truth(c, a), _truth(c, b))), c.shape)


@rule("where", mask=True)
def _where(c: LayerCall, condition: Any, input: Any, other: Any) -> Expr:
    return c.fitted(apply("where", _truth(c, condition), c.operand(input), c.operand(other)), c.shape)


RULES[Tensor.where] = lambda c, input, condition, other: _where(c, condition, input, other)


@rule("masked_fill", mask=True)
def _masked_fill(c: LayerCall, a: Any, mask: Any, value: Any) -> Expr:
    return _where(c, mask, value, a)


def _compared(c: LayerCall, name: str, a: Any, b: Any) -> Expr:
    return c.fitted(apply(name, _number(c, a), _number(c, b)), c.shape)


def _largest(c: LayerCall) -> Expr:
    """Returns the largest number of the elements; infinity, which programs have no constant for, is beyond."""
    return const(torch.finfo(c.dtype).max)


def _least(c: LayerCall) -> Expr:
    return const(torch.finfo(c.dtype).min)


def _number(c: LayerCall, argument: Any) -> Expr:
    """Returns an operand of a comparison; torch rounds a constant to the elements that it is compared with."""
    if isinstance(argument, int | float):
        argument = torch.tensor(argument, dtype=c.dtype).item()
    return c.operand(argument)


def _truth(c: LayerCall, argument: Any) -> Expr:
    """Returns 1 where an argument is true, as numbers other than 0 are, else 0."""
    if not isinstance(argument, Tensor):
        raise Untranslatable
    x = c.operand(argument)
    return x if argument.dtype is torch.bool else _not(apply("eq", x, const(0.0)))


def _not(mask: Expr) -> Expr:
    return apply("sub", const(1.0), mask)

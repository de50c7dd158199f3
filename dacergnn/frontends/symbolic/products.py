"""Rules for products with matrices."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from dacergnn.frontends.symbolic.axes import first_axis_sum
from dacergnn.frontends.symbolic.call import FEW, Call, Untranslatable, apply
from dacergnn.frontends.symbolic.expr import Expr, squeezed
from dacergnn.frontends.symbolic.table import rule
from dacergnn.frontends.symbolic.value import Value


@rule("linear")
def _linear(c: Call, x: Any, weight: Any, bias: Any = None) -> Expr:
    product = _product(c, x, weight, transposed=True)
    return product if bias is None else c.fitted(apply("add", product, c.operand(bias)), c.shape)


@rule("matmul", "__matmul__", "mm")
def _matmul(c: Call, x: Any, weight: Any) -> Expr:
    if type(x) is not Value or not isinstance(weight, Tensor):
        raise Untranslatable
    batched = type(weight) is Value and x.dim() == 3 == weight.dim() and weight.shape[:1] == x.shape[:1]
    if batched and x.shape[1] == 1 and 1 < x.shape[2] <= FEW:
        rows, matrices = c.value(x), c.value(weight)  # a matrix for each row
        return first_axis_sum(apply("mul", rows, matrices), x.shape[2])
    if weight.dim() != 2:
        raise Untranslatable
    return _product(c, x, weight, transposed=False)


def _product(c: Call, x: Any, weight: Any, *, transposed: bool) -> Expr:
    """Rows by one matrix, [out, in] if it is transposed, else [in, out]."""
    rows, weight = c.value(x), c.tensor(weight)
    if x.dim() < 2:  # it would sum over the rows
        raise Untranslatable
    k, m = (weight.size(1), weight.size(0)) if transposed else (weight.size(0), weight.size(1))
    axes, shape = x.shape[1:], squeezed(c.shape)
    if k == 1 or m == 1:  # an outer or an inner product with the only row
        vector = c.parameter(weight.reshape(-1))
        if k == 1 == m:
            return apply("mul", rows, c.parameter(weight.reshape(())))
        if len(squeezed(x.shape)) != (0 if k == 1 else 1):
            raise Untranslatable
        return apply("mul", rows, vector) if k == 1 else Expr("dot_prd", (rows, vector), (), ())
    heads = [d for d in axes[:-1] if d != 1]
    if len(heads) > 1:
        raise Untranslatable
    matrix = c.parameter(weight, (*heads, *weight.shape))
    return Expr("linear", (rows, matrix), (int(transposed),), shape)

"""Rules for products with matrices."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dacergnn.frontends.symbolic.axes import first_axis_sum
from dacergnn.frontends.symbolic.call import FEW, LayerCall
from dacergnn.frontends.symbolic.edges import TYPES
from dacergnn.frontends.symbolic.expr import Expr, Untranslatable, apply, squeezed
from dacergnn.frontends.symbolic.table import rule
from dacergnn.frontends.symbolic.value import Value


@rule("linear")
def _linear(c: LayerCall, x: Any, weight: Any, bias: Any = None) -> Expr:
    product = _product(c, x, weight, transposed=True)
    return product if bias is None else c.fitted(apply("add", product, c.operand(bias)), c.shape)


@rule("matmul", "__matmul__", "mm", "bmm")
def _matmul(c: LayerCall, x: Any, weight: Any) -> Expr:
    if type(x) is not Value or not isinstance(weight, Tensor):
        raise Untranslatable
    if type(weight) is Value and x.dim() > 1 < weight.dim() and x.shape[:-2] == weight.shape[:-2] and x.shape[-2] == 1:
        matrices = c.value(weight)
        if matrices.op == "gather" and matrices.data[0] in TYPES:
            return _typed_product(c.value(x), matrices, weight.shape)
    batched = type(weight) is Value and x.dim() == 3 == weight.dim() and weight.shape[:1] == x.shape[:1]
    if batched and x.shape[1] == 1 and 1 < x.shape[2] <= FEW:
        rows, matrices = c.value(x), c.value(weight)  # a matrix for each row
        return first_axis_sum(apply("mul", rows, matrices), x.shape[2])
    if weight.dim() != 2:
        raise Untranslatable
    return _product(c, x, weight, transposed=False)


def _typed_product(rows: Expr, matrices: Expr, shape: torch.Size) -> Expr:
    """Multiplies rows [n, ..., K] with the matrices that their types choose, of ``shape`` [n, ..., K, M]."""
    k, m = shape[-2:]
    heads = squeezed(shape[:-2])
    if len(heads) > 1 or (heads and 1 in (k, m) and k != m):
        raise Untranslatable
    if k == 1:
        return apply("mul", rows, matrices)
    return Expr("dot_prd", (rows, matrices), (), ()) if m == 1 else Expr("linear", (rows, matrices), (0,), (*heads, m))


@rule("einsum")
def _einsum(c: LayerCall, equation: Any, *operands: Any) -> Expr:
    """Multiplies the rows of each head with a matrix of its own: "bij,ijk->bik" in any letters."""
    names = equation.replace(" ", "") if isinstance(equation, str) else ""
    x, weight = operands if len(operands) == 2 else (None, None)
    if len(names) != 12 or type(x) is not Value or not isinstance(weight, Tensor):
        raise Untranslatable
    b, i, j, k = names[0], names[1], names[2], names[6]
    if names != f"{b}{i}{j},{i}{j}{k}->{b}{i}{k}" or len({b, i, j, k}) < 4 or 1 in weight.shape:
        raise Untranslatable
    return Expr("linear", (c.value(x), c.parameter(weight)), (0,), squeezed(c.shape))


def _product(c: LayerCall, x: Any, weight: Any, *, transposed: bool) -> Expr:
    """Multiplies rows with one matrix, [out, in] if it is transposed, else [in, out]."""
    rows, weight = c.value(x), c.tensor(weight)
    if x.dim() < 2:  # it would sum over the rows
        raise Untranslatable
    k, m = (weight.size(1), weight.size(0)) if transposed else (weight.size(0), weight.size(1))
    axes, shape = x.shape[1:], squeezed(c.shape)
    if k == 1 or m == 1:  # an outer or an inner product with the only row
        if k == 1 == m:
            return apply("mul", rows, c.parameter(c.trace.torch(Tensor.reshape, weight, ())))
        vector = c.parameter(c.trace.torch(Tensor.reshape, weight, (-1,)))
        if len(squeezed(x.shape)) != (0 if k == 1 else 1):
            raise Untranslatable
        return apply("mul", rows, vector) if k == 1 else Expr("dot_prd", (rows, vector), (), ())
    heads = [d for d in axes[:-1] if d != 1]
    if len(heads) > 1:
        raise Untranslatable
    matrix = c.parameter(weight, (*heads, *weight.shape))
    return Expr("linear", (rows, matrix), (int(transposed),), shape)

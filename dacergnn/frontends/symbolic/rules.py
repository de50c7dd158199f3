"""Torch functions in terms of the program form: one table from functions to rules.

A rule takes the call and torch's own arguments, and returns the expression of the result, or a tuple of them; it
raises Untranslatable where the program form has none. Shapes have been checked by torch before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dacergnn.frontends.symbolic.call import FEW, Call, Untranslatable, apply, concat, reshaped
from dacergnn.frontends.symbolic.expr import Expr, const, squeezed
from dacergnn.frontends.symbolic.value import Value
from dacergnn.library_nodes.form import size

Rule = Callable[..., Any]
RULES: dict[Any, Rule] = {}
IN_PLACE: dict[Any, Any] = {}
"""Functions that write to their first argument, and those that return the same."""
VIEWS: set[Any] = set()
"""Functions whose results share memory with their first argument."""


def _functions(name: str) -> list[Any]:
    owners = (torch, Tensor, F)
    return list({id(f): f for o in owners if (f := getattr(o, name, None)) is not None}.values())


def _rule(*names: str, view: bool = False) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        for name in names:
            for function in _functions(name):
                RULES[function] = rule
                if view:
                    VIEWS.add(function)
            for spelling in (f"{name}_", f"__i{name.strip('_')}__"):
                for function in _functions(spelling):
                    IN_PLACE[function] = getattr(Tensor, name, None) or getattr(F, name)
        return rule

    return register


# Element by element ---------------------------------------------------------------------------------------


@_rule("add")
def _add(c: Call, a: Any, b: Any, *, alpha: float = 1) -> Expr:
    return c.elementwise("add", a, b) if alpha == 1 else _scaled("add", c, a, b, alpha)


@_rule("sub", "subtract")
def _sub(c: Call, a: Any, b: Any, *, alpha: float = 1) -> Expr:
    return c.elementwise("sub", a, b) if alpha == 1 else _scaled("sub", c, a, b, alpha)


def _scaled(name: str, c: Call, a: Any, b: Any, alpha: float) -> Expr:
    return c.fitted(apply(name, c.operand(a), apply("mul", c.operand(b), const(alpha))), c.shape)


@_rule("__rsub__", "rsub")
def _rsub(c: Call, a: Any, b: Any) -> Expr:
    return c.elementwise("sub", b, a)


@_rule("mul", "multiply", "__rmul__")
def _mul(c: Call, a: Any, b: Any) -> Expr:
    return c.elementwise("mul", a, b)


@_rule("div", "divide", "true_divide")
def _div(c: Call, a: Any, b: Any, *, rounding_mode: str | None = None) -> Expr:
    if rounding_mode is not None:
        raise Untranslatable
    return c.elementwise("div", a, b)


@_rule("__rdiv__", "__rtruediv__")
def _rdiv(c: Call, a: Any, b: Any) -> Expr:
    return c.elementwise("div", b, a)


@_rule("reciprocal")
def _reciprocal(c: Call, a: Any) -> Expr:
    return c.elementwise("div", 1.0, a)


@_rule("square")
def _square(c: Call, a: Any) -> Expr:
    return c.elementwise("mul", a, a)


@_rule("pow", "__pow__")
def _pow(c: Call, a: Any, exponent: Any) -> Expr:
    if exponent == 2:
        return c.elementwise("mul", a, a)
    if exponent == 0.5:
        return c.elementwise("sqrt", a)
    if exponent == -1:
        return c.elementwise("div", 1.0, a)
    if exponent == 1:
        return c.operand(a)
    raise Untranslatable


@_rule("rsqrt")
def _rsqrt(c: Call, a: Any) -> Expr:
    return apply("div", const(1.0), c.elementwise("sqrt", a))


def _unary(name: str, *spellings: str) -> None:
    @_rule(*spellings)
    def _(c: Call, a: Any) -> Expr:
        return c.elementwise(name, a)


for _name in ("exp", "log", "sqrt", "erf", "tanh", "sigmoid"):
    _unary(_name, _name)
_unary("abs", "abs", "absolute")
_unary("neg", "neg", "negative")


@_rule("relu")
def _relu(c: Call, a: Any, inplace: bool = False) -> Expr:
    return c.elementwise("relu", a)


@_rule("leaky_relu")
def _leaky_relu(c: Call, a: Any, negative_slope: float = 0.01, inplace: bool = False) -> Expr:
    return c.elementwise("leakyrelu", a, negative_slope)


@_rule("elu")
def _elu(c: Call, a: Any, alpha: float = 1.0, inplace: bool = False) -> Expr:
    return c.elementwise("elu", a, alpha)


@_rule("gelu")
def _gelu(c: Call, a: Any, approximate: str = "none") -> Expr:
    if approximate != "none":
        raise Untranslatable
    return c.elementwise("gelu", a)


@_rule("silu")
def _silu(c: Call, a: Any, inplace: bool = False) -> Expr:
    x = c.operand(a)
    return apply("mul", x, apply("sigmoid", x))


@_rule("softplus")
def _softplus(c: Call, a: Any, beta: float = 1, threshold: float = 20) -> Expr:
    if beta != 1 or threshold < 20:
        raise Untranslatable
    x = c.operand(a)
    tail = apply("log", apply("add", const(1.0), apply("exp", apply("neg", apply("abs", x)))))
    return apply("add", apply("max", x, const(0.0)), tail)


@_rule("clamp", "clip")
def _clamp(c: Call, a: Any, min: float | None = None, max: float | None = None) -> Expr:
    x = c.operand(a)
    if min is not None:
        x = apply("clamp_min", x, _constant(min))
    return x if max is None else apply("clamp_max", x, _constant(max))


def _constant(argument: Any) -> Expr:
    if not isinstance(argument, int | float):
        raise Untranslatable
    return const(argument)


@_rule("maximum")
def _maximum(c: Call, a: Any, b: Any) -> Expr:
    return c.elementwise("max", a, b)


@_rule("minimum")
def _minimum(c: Call, a: Any, b: Any) -> Expr:
    return c.elementwise("min", a, b)


@_rule("clamp_min")
def _clamp_min(c: Call, a: Any, min: float) -> Expr:
    return _clamp(c, a, min)


@_rule("dropout")
def _dropout(c: Call, a: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Expr:
    x = c.operand(a)
    if not training or p == 0:
        return x
    # The same random numbers as torch draws for a tensor of this shape.
    mask = torch.nn.functional.dropout(torch.ones(c.shape, dtype=c.dtype), p)
    return apply("mul", x, c.trace.leaf(mask, "row", mask.shape))


@_rule("detach")
def _detach(c: Call, a: Any) -> Expr:
    x = c.operand(a)
    return x if x.uniform or x.op == "detach" else Expr("detach", (x,), (), x.shape)


@_rule("contiguous", "clone", "float", "double", "to", "type_as")
def _same(c: Call, a: Any, *_: Any, **__: Any) -> Expr:
    return c.operand(a)  # another element type has been refused by then


# Products -------------------------------------------------------------------------------------------------


@_rule("linear")
def _linear(c: Call, x: Any, weight: Any, bias: Any = None) -> Expr:
    product = _product(c, x, weight, transposed=True)
    return product if bias is None else c.fitted(apply("add", product, c.operand(bias)), c.shape)


@_rule("matmul", "__matmul__", "mm")
def _matmul(c: Call, x: Any, weight: Any) -> Expr:
    if type(x) is not Value or not isinstance(weight, Tensor):
        raise Untranslatable
    if type(weight) is Value and x.dim() == 3 == weight.dim() and x.shape[1] == 1 and 1 < x.shape[2] <= FEW:
        rows, matrices = c.value(x), c.value(weight)  # a matrix for each row
        return _first_axis_sum(apply("mul", rows, matrices), x.shape[2])
    if weight.dim() != 2:
        raise Untranslatable
    return _product(c, x, weight, transposed=False)


def _product(c: Call, x: Any, weight: Any, *, transposed: bool) -> Expr:
    """Rows by one matrix, [out, in] if it is transposed, else [in, out]."""
    rows = c.value(x)
    if type(weight) is Value:
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


# Reductions and shapes ------------------------------------------------------------------------------------


@_rule("sum")
def _sum(c: Call, a: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Expr:
    x, axes = c.value(a), _axes(a, dim)
    own = list(a.shape)
    if (
        len(axes) == 1
        and axes[0] < len(own) - 1
        and 1 < own[axes[0]] <= FEW
        and not any(own[i] != 1 for i in range(1, axes[0]))
    ):
        return _first_axis_sum(x, own[axes[0]])
    wide = [i for i in axes if own[i] != 1]
    rest = [i for i in range(1, len(own)) if own[i] != 1 and i not in wide]
    if not wide:
        return x
    if rest and max(rest) > min(wide):
        raise Untranslatable
    if len(wide) > 1:
        kept = tuple(own[i] for i in rest)
        x = reshaped(x, (*kept, size(x.shape) // size(kept)))
    if x.op == "mul" and len(x.args) == 2:
        return Expr("dot_prd", x.args, (), x.shape[:-1])
    return Expr("sum", (x,), (), x.shape[:-1])


def _first_axis_sum(x: Expr, count: int) -> Expr:
    """Sum over the first of two axes: of as many parts of the row."""
    if len(x.shape) == 1:
        return Expr("sum", (x,), (), ())
    rest = x.shape[1:]
    width = size(rest)
    flat = reshaped(x, (count * width,))
    parts = [Expr("slice", (flat,), (i * width, (i + 1) * width), (width,)) for i in range(count)]
    total = parts[0]
    for part in parts[1:]:
        total = apply("add", total, part)
    return reshaped(total, rest)


@_rule("mean")
def _mean(c: Call, a: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Expr:
    count = math.prod(a.shape[i] for i in _axes(a, dim))
    total = _sum(c, a, dim)
    return total if count == 1 else apply("mul", total, const(1.0 / count))


def _axes(a: Any, dim: Any) -> list[int]:
    """The axes that are reduced, none of them the rows'."""
    if dim is None or type(a) is not Value:
        raise Untranslatable
    axes = [d % a.dim() for d in (dim if isinstance(dim, Sequence) else (dim,))]
    if 0 in axes or not axes:
        raise Untranslatable
    return axes


@_rule("view", "reshape", "unsqueeze", "squeeze", "flatten", "unflatten", "view_as", "reshape_as", view=True)
def _view(c: Call, a: Any, *_: Any, **__: Any) -> Expr:
    x = c.value(a)
    if not c.shape or c.shape[0] != a.shape[0] or math.prod(c.shape[1:]) != math.prod(a.shape[1:]):
        raise Untranslatable
    return reshaped(x, squeezed(c.shape))


@_rule("expand", "expand_as", view=True)
def _expand(c: Call, a: Any, *_: Any, **__: Any) -> Expr:
    return c.fitted(c.operand(a), c.shape)


@_rule("transpose", "permute", "swapaxes", "movedim", view=True)
def _transpose(c: Call, a: Any, *order: Any, **options: Any) -> Expr:
    # Only where axes of size one change their places.
    marked = torch.empty(a.shape, device="meta").as_strided(a.shape, _strides(a.shape))
    moved = marked.permute(*order, **options) if _is_order(a, order) else marked.transpose(*order, **options)
    strides = [s for s, d in zip(moved.stride(), moved.shape, strict=True) if d != 1]
    if moved.shape != c.shape or c.shape[0] != a.shape[0] or strides != sorted(strides, reverse=True):
        raise Untranslatable
    return c.value(a)


def _is_order(a: Any, order: tuple[Any, ...]) -> bool:
    return len(order) == a.dim() != 2 or (len(order) == 1 and isinstance(order[0], Sequence))


def _strides(shape: torch.Size) -> list[int]:
    return [math.prod(shape[i + 1 :]) for i in range(len(shape))]


@_rule("cat", "concat", "concatenate")
def _cat(c: Call, tensors: Any, dim: int = 0) -> Expr:
    dim = dim % len(c.shape)
    if dim == 0:
        raise Untranslatable
    flat = all(d == 1 for d in c.shape[1:dim])  # the parts follow each other in a row
    if not flat and dim != len(c.shape) - 1:
        raise Untranslatable
    parts: list[Expr] = []
    for tensor in tensors:
        own = torch.Size(tensor.shape)
        expr = c.fitted(c.operand(tensor, own), own)
        if expr.uniform and not expr.shape:
            raise Untranslatable
        parts.append(reshaped(expr, (math.prod(own[1:]),) if flat else (*squeezed(own[:-1]), own[-1])))
    return reshaped(concat(parts), squeezed(c.shape))


@_rule("stack")
def _stack(c: Call, tensors: Any, dim: int = 0) -> Expr:
    dim = dim % len(c.shape)
    return _cat(c, [t.unsqueeze(dim) for t in tensors], dim)


@_rule("softmax")
def _softmax(c: Call, a: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Expr:
    x, own = c.value(a), a.shape
    if dim is None or dim % len(own) != len(own) - 1 or len(own) < 2 or not 1 < own[-1] <= FEW:
        raise Untranslatable
    parts = [part_of(c, a, len(own) - 1, i, i + 1) for i in range(own[-1])]
    largest = parts[0]
    for part in parts[1:]:
        largest = apply("max", largest, part)
    grown = apply("exp", apply("sub", x, Expr("detach", (largest,), (), largest.shape)))
    return apply("div", grown, Expr("sum", (grown,), (), x.shape[:-1]))


@_rule("chunk", "split", "tensor_split", "unbind", view=True)
def _parts(c: Call, a: Any, *args: Any, **options: Any) -> tuple[Expr, ...]:
    dim = options.get("dim", args[-1] if len(args) > 1 or (len(c.shape) < a.dim() and args) else 0) % a.dim()
    keeps = len(c.shape) == a.dim()
    starts = [0]
    for shape in c.shapes:
        starts.append(starts[-1] + (shape[dim] if keeps else 1))
    return tuple(part_of(c, a, dim, i, j) for i, j in pairwise(starts))


def part_of(c: Call, a: Value, dim: int, start: int, stop: int) -> Expr:
    """Entries ``start`` to ``stop`` along an axis that is not the rows'; the axis is gone where it is one entry."""
    x, own = c.value(a), a.shape
    if stop - start == own[dim] or (x.uniform and not x.shape):
        return x
    if dim == 0 or stop <= start:
        raise Untranslatable
    before = [d for d in own[1:dim] if d != 1]
    after = [d for d in own[dim + 1 :] if d != 1]
    width = math.prod(after)
    flat = reshaped(x, (*before, own[dim] * width))
    part = Expr("slice", (flat,), (start * width, stop * width), (*before, (stop - start) * width))
    count = [stop - start] if stop - start > 1 else []
    return reshaped(part, (*before, *count, *after))


@_rule("select", "narrow", view=True)
def _select(c: Call, a: Any, dim: int, start: int, length: int = 1) -> Expr:
    start = start % a.shape[dim]
    return part_of(c, a, dim % a.dim(), start, start + length)


@_rule("new_zeros", "zeros_like")
def _zeros(c: Call, *_: Any, **__: Any) -> Expr:
    return const(0.0)


@_rule("new_ones", "ones_like")
def _ones(c: Call, *_: Any, **__: Any) -> Expr:
    return const(1.0)


@_rule("new_full", "full_like")
def _full(c: Call, _: Any, *args: Any, **options: Any) -> Expr:
    number = options.get("fill_value", args[-1] if args else None)
    if not isinstance(number, int | float) or not math.isfinite(number):
        raise Untranslatable
    return const(number)

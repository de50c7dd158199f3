"""Rules for reductions over axes, and for functions that change shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from dacergnn.frontends.symbolic.call import FEW, LayerCall, concat, reshaped
from dacergnn.frontends.symbolic.expr import Expr, Untranslatable, apply, const, squeezed
from dacergnn.frontends.symbolic.joined import join
from dacergnn.frontends.symbolic.table import rule
from dacergnn.frontends.symbolic.value import Value
from dacergnn.library_nodes.form import size


@rule("sum")
def _sum(c: LayerCall, a: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Expr:
    x, axes = c.value(a), _axes(a, dim)
    own = list(a.shape)
    if (
        len(axes) == 1
        and axes[0] < len(own) - 1
        and 1 < own[axes[0]] <= FEW
        and not any(own[i] != 1 for i in range(1, axes[0]))
    ):
        return first_axis_sum(x, own[axes[0]])
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


def first_axis_sum(x: Expr, count: int) -> Expr:
    """Returns the sum of ``x`` over the first axis of its rows, which has ``count`` entries."""
    rows = reshaped(x, (count, *x.shape[1:]))
    return Expr("sum", (rows,), (), ()) if len(x.shape) == 1 else Expr("sum_heads", (rows,), (), x.shape[1:])


@rule("mean")
def _mean(c: LayerCall, a: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Expr:
    count = math.prod(a.shape[i] for i in _axes(a, dim))
    total = _sum(c, a, dim)
    return total if count == 1 else apply("mul", total, const(1.0 / count))


@rule("layer_norm")
def _layer_norm(
    c: LayerCall, a: Any, normalized_shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Expr:
    """Normalizes over the last axis."""
    count = normalized_shape[-1]
    if len(normalized_shape) > 1:
        raise Untranslatable
    return _scaled(c, _normed(c.value(a), count, eps), weight, bias)


def _axes(a: Any, dim: Any) -> list[int]:
    """Returns the axes that ``dim`` names; raises Untranslatable if there is none, or if the rows are among them."""
    if dim is None or type(a) is not Value:
        raise Untranslatable
    axes = [d % a.dim() for d in (dim if isinstance(dim, Sequence) else (dim,))]
    if 0 in axes or not axes:
        raise Untranslatable
    return axes


@rule("view", "reshape", "unsqueeze", "squeeze", "flatten", "unflatten", "view_as", "reshape_as", view=True)
def _view(c: LayerCall, a: Any, *_: Any, **__: Any) -> Expr:
    x = c.value(a)
    if not c.shape or c.shape[0] != a.shape[0] or math.prod(c.shape[1:]) != math.prod(a.shape[1:]):
        raise Untranslatable
    return reshaped(x, squeezed(c.shape))


@rule("expand", "expand_as", view=True)
def _expand(c: LayerCall, a: Any, *_: Any, **__: Any) -> Expr:
    return c.fitted(c.operand(a), c.shape)


@rule("permute", view=True)
def _permute(c: LayerCall, a: Any, *dims: Any) -> Expr:
    return _reordered(c, a, [d % a.dim() for d in (dims[0] if isinstance(dims[0], Sequence) else dims)])


@rule("transpose", "swapaxes", view=True)
def _transpose(c: LayerCall, a: Any, first: int, second: int) -> Expr:
    order = list(range(a.dim()))
    order[first], order[second] = order[second], order[first]
    return _reordered(c, a, order)


def _reordered(c: LayerCall, a: Any, order: list[int]) -> Expr:
    """Returns the rows as they are, since only axes of size one may change places."""
    wide = [d for d in order if a.shape[d] != 1]
    if order[0] != 0 or wide != sorted(wide):
        raise Untranslatable
    return c.value(a)


@rule("cat", "concat", "concatenate")
def _cat(c: LayerCall, tensors: Any, dim: int = 0) -> Expr:
    dim = dim % len(c.shape)
    if dim == 0:
        return join(c, tensors)
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


@rule("stack")
def _stack(c: LayerCall, tensors: Any, dim: int = 0) -> Expr:
    dim = dim % len(c.shape)
    wider = [t.unsqueeze(dim) if isinstance(t, Value) else c.trace.torch(Tensor.unsqueeze, t, dim) for t in tensors]
    return _cat(c, wider, dim)


@rule("softmax")
def _softmax(c: LayerCall, a: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Expr:
    grown = apply("exp", _shifted(c, a, dim))
    return apply("div", grown, _total(a, grown))


@rule("log_softmax")
def _log_softmax(c: LayerCall, a: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Expr:
    shifted = _shifted(c, a, dim)
    return apply("sub", shifted, apply("log", _total(a, apply("exp", shifted))))


def _shifted(c: LayerCall, a: Any, dim: int | None) -> Expr:
    """Subtracts the largest number of each last axis, so that powers do not overflow."""
    x, own = c.value(a), a.shape
    if dim is None or dim % len(own) != len(own) - 1 or len(own) < 2 or not 1 <= own[-1] <= FEW:
        raise Untranslatable
    parts = [part_of(c, a, len(own) - 1, i, i + 1) for i in range(own[-1])]
    largest = parts[0]
    for part in parts[1:]:
        largest = apply("max", largest, part)
    return apply("sub", x, Expr("detach", (largest,), (), largest.shape))


def _total(a: Any, powers: Expr) -> Expr:
    """Returns the sums over each last axis, which a row lacks if its size is one."""
    return powers if a.shape[-1] == 1 else Expr("sum", (powers,), (), powers.shape[:-1])


@rule("glu")
def _glu(c: LayerCall, a: Any, dim: int = -1) -> Expr:
    dim = dim % a.dim()
    half = a.shape[dim] // 2
    return apply("mul", part_of(c, a, dim, 0, half), apply("sigmoid", part_of(c, a, dim, half, 2 * half)))


@rule("norm", "vector_norm")
def _norm(c: LayerCall, a: Any, p: Any = 2, dim: Any = None, keepdim: bool = False, **options: Any) -> Expr:
    """Returns the lengths of vectors along the last axis, with no slope where they are 0, as torch has it."""
    p = options.pop("ord", p)
    if p not in (2, "fro", None) or any(v is not None for v in options.values()) or _axes(a, dim) != [a.dim() - 1]:
        raise Untranslatable
    squares = _squares(c.value(a), a.shape[-1])
    absent = apply("ge", const(0.0), squares)
    return apply("where", absent, const(0.0), apply("sqrt", apply("where", absent, const(1.0), squares)))


@rule("normalize")
def _normalize(c: LayerCall, a: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Any = None) -> Expr:
    return apply("div", c.value(a), apply("clamp_min", _norm(c, a, p, dim), const(eps)))


def _squares(x: Expr, count: int) -> Expr:
    """Returns the sums of squares along the last axis of rows, which has ``count`` entries."""
    return apply("mul", x, x) if count == 1 else Expr("dot_prd", (x, x), (), x.shape[:-1])


@rule("group_norm")
def _group_norm(c: LayerCall, a: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Expr:
    x, channels = c.value(a), a.shape[-1]
    if a.dim() != 2:
        raise Untranslatable
    width = channels // num_groups
    groups = reshaped(x, squeezed(torch.Size((1, num_groups, width))))
    return _scaled(c, reshaped(_normed(groups, width, eps), x.shape), weight, bias)


@rule("instance_norm")
def _instance_norm(
    c: LayerCall, a: Any, running_mean: Any = None, running_var: Any = None, weight: Any = None, bias: Any = None,
    use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Expr:  # fmt: skip
    if a.dim() != 3 or 1 in a.shape[1:] or running_mean is not None or not use_input_stats:
        raise Untranslatable
    by_channel = [None if f is None else c.trace.torch(Tensor.unsqueeze, f, -1) for f in (weight, bias)]
    return _scaled(c, _normed(c.value(a), a.shape[-1], eps), *by_channel)


def _normed(x: Expr, count: int, eps: float) -> Expr:
    """Normalizes rows along the last axis, which has ``count`` entries."""
    total = x if count == 1 else Expr("sum", (x,), (), x.shape[:-1])
    centred = apply("sub", x, apply("mul", total, const(1.0 / count)))
    variance = apply("mul", _squares(centred, count), const(1.0 / count))
    return apply("div", centred, apply("sqrt", apply("add", variance, const(eps))))


def _scaled(c: LayerCall, x: Expr, weight: Any, bias: Any) -> Expr:
    scaled = x if weight is None else apply("mul", x, c.operand(weight))
    return scaled if bias is None else apply("add", scaled, c.operand(bias))


@rule("chunk", "split", "split_with_sizes", "tensor_split", "unbind", view=True)
def _parts(c: LayerCall, a: Any, *args: Any, **options: Any) -> tuple[Expr, ...]:
    dim = options.get("dim", args[-1] if len(args) > 1 or (len(c.shape) < a.dim() and args) else 0) % a.dim()
    keeps = len(c.shape) == a.dim()
    starts = [0]
    for shape in c.shapes:
        starts.append(starts[-1] + (shape[dim] if keeps else 1))
    return tuple(part_of(c, a, dim, i, j) for i, j in pairwise(starts))


def part_of(c: LayerCall, a: Value, dim: int, start: int, stop: int) -> Expr:
    """Returns entries ``start`` to ``stop`` along ``dim``, any axis but 0 (the rows); one entry drops the axis."""
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


@rule("select", "narrow", view=True)
def _select(c: LayerCall, a: Any, dim: int, start: int, length: int = 1) -> Expr:
    start = start % a.shape[dim]
    return part_of(c, a, dim % a.dim(), start, start + length)

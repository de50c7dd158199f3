"""Functions that take end points of edges: gathers, and reductions of edges to nodes; and basic indexing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.symbolic.axes import part_of
from dacergnn.frontends.symbolic.call import LayerCall
from dacergnn.frontends.symbolic.edges import TYPES, EdgeIndex, EdgeSet, EndIndex, JoinedIndex, row_of, untracked
from dacergnn.frontends.symbolic.expr import Expr, Untranslatable, apply, const
from dacergnn.frontends.symbolic.joined import joined_ends, split
from dacergnn.frontends.symbolic.shapes import known_sizes, with_rows
from dacergnn.frontends.symbolic.sizes import number
from dacergnn.frontends.symbolic.trace import Trace
from dacergnn.frontends.symbolic.value import Node, Value, held

INDEXING: dict[Any, Callable[..., Any]] = {}
"""Torch function -> the function that records it, which returns None for calls that it does not handle."""


def handles(*functions: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Has a function record these functions of torch."""

    def register(handler: Callable[..., Any]) -> Callable[..., Any]:
        INDEXING.update(dict.fromkeys(functions, handler))
        return handler

    return register


def gather(trace: Trace, x: Any, index: Any) -> Value | None:
    """Records ``x[index]`` for end points of edges; returns None for anything else."""
    if type(index) is not EndIndex or index.dim() != 1 or isinstance(x, EdgeIndex | EndIndex):
        return None
    if type(x) is not Value:
        if not x.is_floating_point():
            return None
        x = trace.value(x)
    if index.side in TYPES:
        return typed(trace, x, index)
    edges = index.edges
    edges.set_rows(index.side, x.shape[0])
    call = (torch.index_select, (x.node, 0, index.plain), {}, None)
    return gathered(trace, x, edges, index.side, call)


def gathered(trace: Trace, x: Value, edges: EdgeSet, side: str, call: tuple[Any, ...] = ()) -> Value:
    """Returns the rows of x at one end of all edges; ``call`` is the call of torch that computes the same."""
    if x.node.expr.on_edges:
        raise Untranslatable
    if x.node.expr.edges not in (None, edges):
        trace.leave_edges(x.node)
    shape = torch.Size((edges.count, *x.shape[1:]))
    return trace.record(_gathered(x.node.expr, edges, side), shape, x.dtype, call)


def typed(trace: Trace, x: Value, index: EndIndex) -> Value | None:
    """Returns the rows of x that the types of edges or nodes choose; None if the graph has other types."""
    if not index.edges.choose_by(index.side, index.plain, x.shape[0]):
        return None
    trace.materialise([x.node])
    shape = torch.Size((trace.shape(index.plain)[0], *x.shape[1:]))
    call = (torch.index_select, (x.node, 0, index.plain), {}, None)
    return trace.record(_gathered(x.node.expr, index.edges, index.side), shape, x.dtype, call)


def _gathered(expr: Expr, edges: EdgeSet, side: str) -> Expr:
    if expr.uniform:
        return expr
    if expr.op == "detach":  # detached after the gather, so that it needs no array of its own
        return Expr("detach", (_gathered(expr.args[0], edges, side),), (), expr.shape)
    end_rows = Expr("gather", (_without_guard(expr, side),), (side,), expr.shape)
    end_rows.edges, end_rows.on_edges = edges, side not in TYPES
    return end_rows


def _without_guard(expr: Expr, side: str) -> Expr:
    """Leaves out the small number that softmax adds to its sums against division by zero, where nodes have edges.

    One of the terms is exp(0) then, so that the number changes no bit of the sum.
    """
    if expr.op != "add" or expr.args[1].op != "const":
        return expr
    total, guard = expr.args[0], float(expr.args[1].data[0])
    grown = total.args[0] if total.op == "aggregate" and total.data == (side, "+=") else expr
    logits, largest = grown.args[0].args if grown.op == "exp" and grown.args[0].op == "sub" else (expr, expr)
    if largest.op == "detach":
        (largest,) = largest.args
    reduced = largest.args[0] if largest.op == "gather" and largest.data == (side,) else expr
    shifted = reduced.op == "aggregate" and reduced.data == (side, "max=") and reduced.args[0] is logits
    return total if shifted and 0.0 <= guard < 2.0**-53 else expr


@handles(torch.nn.functional.embedding)
def _embedding(
    trace: Trace,
    index: Any,
    weight: Any,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    plain = padding_idx is None and max_norm is None and not scale_grad_by_freq and not sparse
    return gather(trace, weight, index) if plain else None


@handles(torch.scatter_add, Tensor.scatter_add)
def _scatter_add(trace: Trace, target: Any, dim: int, index: Any, src: Any) -> Any:
    return _scatter(trace, target, dim, index, src, "+=", (torch.scatter_add,))


@handles(Tensor.scatter_add_)
def _scatter_add_(trace: Trace, target: Any, *args: Any, **options: Any) -> Any:
    return _bound(target, lambda: _scatter_add(trace, target, *args, **options))


@handles(torch.scatter_reduce, Tensor.scatter_reduce)
def _scatter_reduce(
    trace: Trace, target: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True
) -> Any:
    reduction = {"sum": "+=", "amax": "max=", "amin": "min="}.get(reduce)
    if reduction is None or (include_self and reduction != "+="):
        return None
    call = torch.scatter_reduce, reduce, {"include_self": include_self}
    return _scatter(trace, target, dim, index, src, reduction, call)


@handles(Tensor.scatter_reduce_)
def _scatter_reduce_(trace: Trace, target: Any, *args: Any, **options: Any) -> Any:
    return _bound(target, lambda: _scatter_reduce(trace, target, *args, **options))


@handles(torch.index_add, Tensor.index_add)
def _index_add(trace: Trace, target: Any, dim: int, index: Any, source: Any, *, alpha: float = 1) -> Any:
    return _scatter(trace, target, dim, index, source, "+=", (torch.index_add,)) if alpha == 1 else None


@handles(Tensor.index_add_)
def _index_add_(trace: Trace, target: Any, *args: Any, **options: Any) -> Any:
    return _bound(target, lambda: _index_add(trace, target, *args, **options))


def _bound(target: Any, reduced: Callable[[], Value | None]) -> Value | None:
    """Makes the target stand for the result from now on, and returns it; None where that is impossible."""
    if type(target) is not Value or held(target) is not None or not target.alone():
        return None
    value = reduced()
    if value is None:
        return None
    target.node = value.node
    return target


def _scatter(
    trace: Trace, target: Any, dim: int, index: Any, src: Any, reduction: str, call: tuple[Any, ...]
) -> Value | None:
    """Reduces rows of edges to the nodes at one end, and adds the target's rows; returns None for other calls.

    Args:
        call: The function of torch that returns the same, and what it takes besides.
    """
    if not isinstance(index, EndIndex) or not isinstance(src, Tensor) or not _is_rows(src, dim) or index.axis != 0:
        return None
    if index.side in TYPES:
        return None
    edges = index.edges
    target, src = (v if type(v) is Value else trace.value(v) for v in (target, src))
    function, *more = call
    options = more.pop() if more else {}
    in_torch = function, (target.node, dim, index.plain, src.node, *more), options, None
    start, expr = target.node.expr, src.node.expr
    empty = start.data == (0.0,)
    if target.shape[1:] != src.shape[1:] or not (empty or reduction == "+="):
        raise Untranslatable
    if index.dim() > 1 and [*index.plain.shape[1:]] != [number(size) for size in src.shape[1:]]:
        raise Untranslatable  # some columns alone
    if type(index) is JoinedIndex:
        if reduction != "+=" or not len(index) == src.shape[0] or index.nodes != target.shape[0]:
            raise Untranslatable
        expr, joined = split(expr, number(edges.count))
        start = joined if empty else apply("add", start, joined)
        empty = False
    elif src.shape[0] != edges.count:
        raise Untranslatable
    others = start.edges not in (None, edges)
    if start.on_edges or expr.edges not in (None, edges) or (others and not trace.joins_relations):
        raise Untranslatable
    edges.set_rows(index.side, target.shape[0])
    expr = reduced(expr, edges, index.side, reduction, target.dtype)
    if others:  # a sum over several sets of edges, whose parts torch can add
        zeros = trace.record(const(0.0), target.shape, target.dtype, (torch.zeros_like, (target.node,), {}, None))
        added = (function, (zeros.node, *in_torch[1][1:]), options, None)
        part = trace.record(expr, target.shape, target.dtype, added)
        in_torch = torch.add, (target.node, part.node), {}, None
    if not empty:
        expr = apply("add", start, expr)
    return trace.record(expr, target.shape, target.dtype, in_torch)


def reduced(expr: Expr, edges: EdgeSet, side: str, reduction: str, dtype: torch.dtype) -> Expr:
    """Reduces rows of edges to the nodes at one end."""
    if expr.uniform:
        if reduction != "+=":
            raise Untranslatable
        degree = Expr("degree", (), (side, dtype))
        degree.edges = edges
        return degree if expr.data == (1.0,) else apply("mul", degree, expr)
    if expr.op == "detach":
        return Expr("detach", (reduced(expr.args[0], edges, side, reduction, dtype),), (), expr.shape)
    aggregate = Expr("aggregate", (expr,), (side, reduction), expr.shape)
    aggregate.edges, aggregate.on_edges = edges, False
    return aggregate


def _is_rows(x: Any, dim: int) -> bool:
    return isinstance(x, Tensor) and x.dim() > 0 and dim % x.dim() == 0


# Other functions of end points, and parts of values -------------------------------------------------------


def _view(func: Any) -> None:
    """Registers a function that spreads the ids at one end of the edges over the shape of a value."""

    def handler(trace: Trace, x: Any, *args: Any, **options: Any) -> Any:
        if not isinstance(x, EndIndex):
            return None
        with untracked():
            if func is Tensor.expand_as:
                like = args[0]
                shape = like.shape if isinstance(like, Value) else trace.shape(like)
                view = trace.torch(Tensor.expand, x.plain, shape)
            else:
                view = trace.torch(func, x.plain, *args, **options)
        axis = _axis(x, view, args)
        trace.same_size(view, axis, x.plain, x.axis)
        index = view.as_subclass(type(x))
        vars(index).update(vars(x), plain=view, axis=axis)
        return index

    INDEXING[func] = handler


def _axis(index: EndIndex, view: Tensor, args: tuple[Any, ...]) -> int:
    """Returns the axis of the view along which the ids run."""
    own = index.shape[index.axis]
    from_end = index.axis - index.dim()
    if view.dim() == 1 or own == 1:
        return 0
    own = number(own)
    if view.dim() >= index.dim() and view.stride(from_end) and view.shape[from_end] == own and index.dim() > 1:
        return from_end + view.dim()
    axes = [i for i, d in enumerate(view.shape) if d == own]
    strided = [i for i in axes if view.stride(i)]
    if not strided and len(axes) > 1:
        raise UnsupportedCallError("ids of stride 0 do not tell along which axis the edges run; pass contiguous edges.")
    return (strided or axes)[0]


for _function in (Tensor.view, Tensor.reshape, torch.reshape, Tensor.unsqueeze, torch.unsqueeze, Tensor.expand,
                  Tensor.expand_as, Tensor.long, Tensor.to, Tensor.contiguous):  # fmt: skip
    _view(_function)


@handles(torch.cat, torch.concat, torch.concatenate)
def _cat(trace: Trace, tensors: Any, dim: int = 0) -> Any:
    return joined_ends(trace, *tensors) if dim == 0 and len(tensors) == 2 else None


@handles(Tensor.unbind, torch.unbind)
def _unbind(trace: Trace, x: Any, dim: int = 0) -> Any:
    return (row_of(x, 0), row_of(x, 1)) if isinstance(x, EdgeIndex) and dim == 0 else None


@handles(Tensor.__getitem__)
def _getitem(trace: Trace, x: Any, index: Any) -> Any:
    if isinstance(x, EdgeIndex):
        return row_of(x, index) if type(index) is int else None
    if isinstance(index, EndIndex):
        return gather(trace, x, index)
    if type(x) is not Value:
        return None
    return None if isinstance(index, Tensor) else _part(trace, x, index if type(index) is tuple else (index,))


def _part(trace: Trace, x: Value, index: tuple[Any, ...]) -> Value:
    """Records basic indexing that keeps the rows and takes ranges along other axes."""
    if any(i is not None and i is not Ellipsis and type(i) not in (int, slice) for i in index):
        raise Untranslatable
    shape = with_rows(torch.empty(x.shape, device="meta")[index].shape, known_sizes((), {}, [x]))
    full = [i for i in index if i is not None]
    if Ellipsis in full:
        at = full.index(Ellipsis)
        full[at : at + 1] = [slice(None)] * (x.dim() - len(full) + 1)
    ranges = {d: i for d, i in enumerate(full) if i != slice(None)}
    if not shape or shape[0] != x.shape[0] or 0 in ranges:
        raise Untranslatable
    part, call = x, LayerCall(trace, [(shape, x.dtype)], x.dtype)
    for dim, item in ranges.items():
        item = item if type(item) is slice else slice(item % x.shape[dim], item % x.shape[dim] + 1)
        start, stop, step = item.indices(x.shape[dim])
        if step != 1:
            raise Untranslatable
        own = torch.Size((*part.shape[:dim], stop - start, *part.shape[dim + 1 :]))
        part = Value(trace, Node(part_of(call, part, dim, start, stop), own, x.dtype))
    return trace.record(part.node.expr, shape, x.dtype, (Tensor.__getitem__, (x.node, index), {}, None), x)

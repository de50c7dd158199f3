"""Records traced calls on static graphs, whose nodes have features [..., N, F], as one graph of equal parts.

A `Static` value stands for [..., N, F] and holds the rows of all parts, one part after the other. Functions of single
rows are applied to these rows; gathers and sums along the axis of the nodes run along the edges of all parts. Other
functions may mix the parts, so that torch runs them, after the values have been computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.symbolic import Trace, activations, elementwise
from dacergnn.frontends.symbolic.call import Untranslatable
from dacergnn.frontends.symbolic.edges import EdgeSet, EndIndex, PartedEdges, end_index
from dacergnn.frontends.symbolic.record import ABOUT, BACKWARDS, HOOKS, check_modes, spelled, writes
from dacergnn.frontends.symbolic.table import RULES
from dacergnn.frontends.symbolic.value import Node, Value

_NEW = ("new_zeros", "new_ones", "new_full")
_LINEAR = (torch.nn.functional.linear,)
_PRODUCTS = (torch.matmul, Tensor.matmul, Tensor.__matmul__)
_JOINS = (torch.cat, torch.concat)
_ALONG = (Tensor.sum, Tensor.mean, Tensor.softmax, torch.sum, torch.mean, torch.softmax, torch.nn.functional.softmax)
_CUTS = (Tensor.split, Tensor.chunk, torch.split, torch.chunk)
_ADDITIONS = (torch.scatter_add, Tensor.scatter_add, Tensor.scatter_add_)
_REDUCTIONS = (torch.scatter_reduce, Tensor.scatter_reduce, Tensor.scatter_reduce_)


class Static(Value):
    """Represents a value made of the rows of all parts; torch dispatches to it before all other values.

    Attributes:
        batch: The leading axes; each of their elements is a part.
        rows: The rows of the parts.
    """

    batch: tuple[int, ...]
    rows: Value

    @classmethod
    def of(cls, rows: Value, batch: tuple[int, ...]) -> Static:
        """Returns the value whose parts have these rows, one part after the other."""
        shape = torch.Size((*batch, rows.shape[0] // prod(batch), *rows.shape[1:]))
        value: Any = cls(rows.owner, Node(rows.node.expr, shape, rows.dtype))
        value.batch, value.rows = batch, rows
        return value

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in ABOUT or func.__name__ == "__get__":
            return super().__torch_function__(func, types, args, kwargs)
        handler = next((handler for functions, handler in _HANDLERS if func in functions), None)
        rule = RULES.get(func)
        try:
            if handler is not None:
                return handler(func, *args, **kwargs)
            if rule is not None and rule.__module__ in (activations.__name__, elementwise.__name__):
                return _row_by_row(func, args, kwargs)
        except Untranslatable:
            pass
        return _in_torch(func, args, kwargs)

    @property
    def parts(self) -> int:
        """Returns the number of parts."""
        return prod(self.batch)

    def row_axis(self, dim: int) -> int:
        """Returns the axis of the rows that an axis is: 0 for that of the nodes, negative for those of the batch."""
        return dim % self.dim() - len(self.batch)

    def alike(self, other: Tensor) -> bool:
        """Returns whether another value is static, with as many axes and the same nodes."""
        axes = len(self.batch) + 1
        return type(other) is Static and other.shape[:axes] == self.shape[:axes] and other.dim() == self.dim()


def static(trace: Trace, tensor: Tensor) -> Static:
    """Records features [..., N, F] as a static value."""
    trace.once("features [..., N, F] are given another shape")
    return Static.of(trace.value(tensor.flatten(0, -2)), tuple(tensor.shape[:-2]))


def together(trace: Trace, tree: Any) -> Any:
    """Returns a structure with tensors [..., N, F] in place of static values."""
    if type(tree) is Static:
        return trace.results(tree.rows).view(tree.shape)
    if type(tree) in (tuple, list):
        return type(tree)([together(trace, v) for v in tree])
    if type(tree) is dict:
        return {k: together(trace, v) for k, v in tree.items()}
    return tree


def _in_torch(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs a function that only reads the numbers of values of nodes in torch."""
    given = pytree.tree_leaves((args, kwargs))
    first = next(v for v in given if type(v) is Static)
    about_edges = any(isinstance(v, EndIndex) or (type(v) is Static and v.rows.node.expr.on_edges) for v in given)
    if about_edges or func in HOOKS or func in BACKWARDS or writes(func, kwargs):
        raise UnsupportedCallError(f"{spelled(func)} of features [..., N, F] may mix the graphs of a batch.")
    trace = first.owner
    assert isinstance(trace, Trace)
    check_modes(trace)
    result = trace.torch(func, *together(trace, args), **together(trace, kwargs))
    for value in given:
        if type(value) is Static:
            trace.exposes(value.rows, result)
    return result


def _row_by_row(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Applies a function to every row."""
    first = next((v for v in (*args, *kwargs.values()) if type(v) is Static), None)
    if first is None or func.__name__ in _NEW or kwargs.get("out") is not None or kwargs.get("inplace"):
        raise Untranslatable
    rows = func(*[_rows(func, v, first) for v in args], **{k: _rows(func, v, first) for k, v in kwargs.items()})
    return Static.of(rows, first.batch)


def _rows(func: Any, value: Any, like: Static) -> Any:
    """Returns an operand that fits the rows of ``like``: rows of nodes or edges are repeated for every part."""
    if type(value) is Static:
        if not like.alike(value):
            raise Untranslatable
        return value.rows
    axes = len(like.batch)
    leading = value.dim() - (like.dim() - axes) if isinstance(value, Tensor) else -1  # axes that meet the batch
    if leading < 0 or (leading == 0 and value.shape[0] == 1):
        return value
    nodes, sizes = like.shape[axes], zip(value.shape[:leading], like.batch[axes - leading :], strict=False)
    if leading > axes or value.shape[leading] not in (1, nodes) or any(own not in (1, size) for own, size in sizes):
        raise Untranslatable
    trace = like.owner
    assert isinstance(trace, Trace)
    (real,) = trace.results((value,))
    return trace.value(real.expand(*like.batch, nodes, *real.shape[leading + 1 :]).flatten(0, axes))


def _new(func: Any, like: Static, size: Any, *args: Any, **kwargs: Any) -> Any:
    if type(size) is int:  # one number for each node, such as a count of edges
        return func(like.rows, size, *args, **kwargs)
    axes = len(like.batch)
    if not isinstance(size, tuple | list) or len(size) < axes + 2 or tuple(size[:axes]) != like.batch:
        raise Untranslatable
    return Static.of(func(like.rows, (like.parts * size[axes], *size[axes + 1 :]), *args, **kwargs), like.batch)


def _expanded(func: Any, x: Any, like: Any) -> Any:
    if type(x) is Static or type(like) is not Static:
        raise Untranslatable
    return like.owner.results((x,))[0].expand(like.shape)


def _along(func: Any, x: Any, dim: Any = None, *args: Any, **kwargs: Any) -> Static:
    """Applies a function along one axis, which must not be one of the batch or that of the nodes."""
    if type(x) is not Static or type(dim) is not int or x.row_axis(dim) < 1:
        raise Untranslatable
    rows = func(x.rows, x.row_axis(dim), *args, **kwargs)
    if rows.dim() < 2:  # a single number for each row has no axis of its own
        raise Untranslatable
    return Static.of(rows, x.batch)


def _cut(func: Any, x: Any, size: Any, dim: int = 0) -> tuple[Static, ...]:
    if type(x) is not Static or x.row_axis(dim) < 1:
        raise Untranslatable
    return tuple([Static.of(part, x.batch) for part in func(x.rows, size, x.row_axis(dim))])


def _linear(func: Any, x: Any, weight: Any, bias: Any = None) -> Static:
    if type(x) is not Static or type(weight) is Static or type(bias) is Static:
        raise Untranslatable
    return Static.of(func(x.rows, weight, bias), x.batch)


def _product(func: Any, x: Any, weight: Any) -> Static:
    if type(x) is not Static or x.rows.dim() != 2 or type(weight) is Static or weight.dim() != 2:
        raise Untranslatable
    return Static.of(func(x.rows, weight), x.batch)


def _joined(func: Any, tensors: Any, dim: int = 0) -> Static:
    first = tensors[0]
    if type(first) is not Static or not all(map(first.alike, tensors)) or first.row_axis(dim) < 1:
        raise Untranslatable
    return Static.of(func([t.rows for t in tensors], first.row_axis(dim)), first.batch)


def _gathered(func: Any, x: Any, dim: int, index: Any) -> Static:
    if type(x) is not Static or type(index) is not EndIndex or index.dim() != 1 or x.row_axis(dim) != 0:
        raise Untranslatable
    rows = x.rows.index_select(0, _end(index, x.parts))
    if type(rows) is not Value:
        raise Untranslatable
    return Static.of(rows, x.batch)


def _added(func: Any, target: Any, dim: int, index: Any, src: Any) -> Static:
    return _scattered(func, target, dim, index, src, "sum", include_self=True)


def _scattered(
    func: Any, target: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True
) -> Static:
    if type(target) is not Static or type(src) is not Static or type(index) is not EndIndex:
        raise Untranslatable
    writes = func.__name__.endswith("_")
    if target.row_axis(dim) != 0 or index.axis != len(target.batch) or target.batch != src.batch:
        raise Untranslatable
    if writes and target.rows.node.expr.op != "const":  # others may share its memory
        raise Untranslatable
    ends = _end(index, src.parts).view(-1, *[1] * (src.rows.dim() - 1)).expand_as(src.rows)
    rows = target.rows.scatter_reduce(0, ends, src.rows, reduce, include_self=include_self)
    if type(rows) is not Value:
        raise Untranslatable
    made = Static.of(rows, target.batch)
    if not writes:
        return made
    target.rows, target.node = made.rows, made.node
    return target


def _end(index: EndIndex, parts: int) -> EndIndex:
    """Returns an end of the edges of all parts."""
    edges = PartedEdges.of(index.edges, parts)
    return end_index(edges, index.side, _ids(index.edges, index.side).repeat(parts))


def _ids(edges: EdgeSet, side: str) -> Tensor:
    return edges.edge_index[next(row for row in (0, 1) if edges.side(row) == side)]


_HANDLERS: Sequence[tuple[Sequence[Any], Callable[..., Any]]] = (
    ([getattr(Tensor, name) for name in _NEW], _new),
    (_LINEAR, _linear),
    (_PRODUCTS, _product),
    (_JOINS, _joined),
    ((Tensor.expand_as,), _expanded),
    (_ALONG, _along),
    (_CUTS, _cut),
    ((torch.index_select, Tensor.index_select), _gathered),
    (_ADDITIONS, _added),
    (_REDUCTIONS, _scattered),
)

"""Records functions of values [..., N, F], of several graphs with the same edges, as those of one graph of equal parts.

A `Parted` value stands for [..., N, F] and holds the rows of all parts, one part after the other. Functions of single
rows are applied to these rows; gathers and sums along the axis of the nodes run along the edges of all parts. Other
functions may mix the parts; torch runs them when the values have been computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.symbolic import activations, elementwise
from dacergnn.frontends.symbolic.edges import SIDES, EndIndex, PartedEdges
from dacergnn.frontends.symbolic.expr import Untranslatable, apply, const, version
from dacergnn.frontends.symbolic.indexing import gather, gathered, handles, reduced
from dacergnn.frontends.symbolic.table import OWN, RULES
from dacergnn.frontends.symbolic.trace import Trace
from dacergnn.frontends.symbolic.value import Value

_NEW = ("new_zeros", "new_ones", "new_full")
_LINEAR = (torch.nn.functional.linear,)
_PRODUCTS = (torch.matmul, Tensor.matmul, Tensor.__matmul__)
_JOINS = (torch.cat, torch.concat)
_ALONG = (Tensor.sum, Tensor.mean, Tensor.softmax, torch.sum, torch.mean, torch.softmax, torch.nn.functional.softmax)
_CUTS = (Tensor.split, Tensor.chunk, torch.split, torch.chunk)
_ADDITIONS = (
    torch.scatter_add, Tensor.scatter_add, Tensor.scatter_add_, torch.index_add, Tensor.index_add, Tensor.index_add_,
)  # fmt: skip
_REDUCTIONS = (torch.scatter_reduce, Tensor.scatter_reduce, Tensor.scatter_reduce_)


class Parted(Value):
    """Represents a value made of the rows of all parts; torch dispatches to it before all other values.

    Attributes:
        batch: The leading axes; each of their elements is a part.
        nodes: The number of rows of a part.
        rows: The rows of the parts.
    """

    batch: tuple[int, ...]
    nodes: int
    rows: Value

    @classmethod
    def of(cls, rows: Value, batch: tuple[int, ...], nodes: int) -> Parted:
        """Returns the value whose parts have these rows, one part after the other."""
        value: Any = cls(rows.owner, rows.node)
        value.batch, value.nodes, value.rows = batch, nodes, rows
        return value

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        handler = next((handler for functions, handler in _HANDLERS if func in functions), None)
        rule = RULES.get(func)
        try:
            if handler is not None:
                return handler(func, *args, **kwargs)
            if rule is not None and rule.__module__ in (activations.__name__, elementwise.__name__):
                return _row_by_row(func, args, kwargs)
        except Untranslatable:
            pass
        raise UnsupportedCallError(f"{func.__name__} of values [..., N, F] may mix the graphs of a batch.")

    def of_rows(self, rows: Value) -> Parted:
        """Returns a value of as many parts and nodes, with other rows."""
        return Parted.of(rows, self.batch, self.nodes)

    @property
    def shape(self) -> torch.Size:  # pyright: ignore[reportIncompatibleMethodOverride, reportIncompatibleVariableOverride]
        return torch.Size((*self.batch, self.nodes, *self.rows.shape[1:]))

    def dim(self) -> int:
        return len(self.batch) + self.rows.dim()

    def size(self, dim: int | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.shape if dim is None else self.shape[dim]

    def tensor(self) -> Any:
        real = super().tensor()
        return None if real is None else _view(self.call, self.shape, Tensor.view, real, self.shape)

    @property
    def call(self) -> Trace:
        """Returns the call that records the value."""
        assert isinstance(self.owner, Trace)
        return self.owner

    @property
    def parts(self) -> int:
        """Returns the number of parts."""
        return reduce(self.call.times, self.batch)

    def row_axis(self, dim: int) -> int:
        """Returns the axis of the rows that an axis is: 0 for that of the nodes, negative for those of the batch."""
        return dim % self.dim() - len(self.batch)

    def alike(self, other: Tensor) -> bool:
        """Returns whether another value is static, with as many axes and the same nodes."""
        axes = len(self.batch) + 1
        return type(other) is Parted and other.shape[:axes] == self.shape[:axes] and other.dim() == self.dim()


@handles(torch.index_select, OWN.index_select, Tensor.index_select)
def _index_select(trace: Trace, x: Any, dim: int, index: Any) -> Any:
    if type(index) is not EndIndex or x.dim() < 3 or dim % x.dim() != x.dim() - 2 or not x.is_floating_point():
        return gather(trace, x, index) if dim % x.dim() == 0 else None
    if not all(x.shape[:-2]):
        return None
    shape, (real,) = x.shape, trace.results((x,))
    key = id(real), version(real)
    known = trace.parted.get(key)
    if known is None:  # the tensor is held, so that the id stays its own
        known = trace.parted[key] = real, _flat(trace, real, shape, x.dim() - 2)
    return known[1].index_select(-2, index)


def _flat(trace: Trace, tensor: Tensor, shape: torch.Size, axis: int) -> Parted:
    """Returns the value of a tensor of a shape, whose nodes stand along an axis."""
    batch, nodes = shape[:axis], shape[axis]
    rows = trace.times(reduce(trace.times, batch), nodes)
    flat = _view(trace, torch.Size((rows, *shape[axis + 1 :])), Tensor.flatten, tensor, 0, axis)
    return Parted.of(trace.value(flat), batch, nodes)


def _view(trace: Trace, shape: torch.Size, function: Any, *args: Any) -> Tensor:
    """Returns a tensor in another shape, whose sizes are known."""
    view = trace.torch(function, *args)
    if trace.tape is not None:
        trace.tape.tie(view, dict(enumerate(shape)))
    return view


def _row_by_row(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Applies a function to every row."""
    first = next((v for v in (*args, *kwargs.values()) if type(v) is Parted), None)
    if first is None or func.__name__ in _NEW or kwargs.get("out") is not None or kwargs.get("inplace"):
        raise Untranslatable
    rows = func(*[_rows(func, v, first) for v in args], **{k: _rows(func, v, first) for k, v in kwargs.items()})
    return first.of_rows(rows)


def _rows(func: Any, value: Any, like: Parted) -> Any:
    """Returns an operand that fits the rows of ``like``: rows of nodes or edges are repeated for every part."""
    if type(value) is Parted:
        if not like.alike(value):
            raise Untranslatable
        return value.rows
    axes = len(like.batch)
    leading = value.dim() - (like.dim() - axes) if isinstance(value, Tensor) else -1  # axes that meet the batch
    if leading < 0 or (leading == 0 and value.shape[0] == 1):
        return value
    own = value.shape if isinstance(value, Value) else like.call.shape(value)
    sizes = zip(own[:leading], like.batch[axes - leading :], strict=False)
    if leading > axes or own[leading] not in (1, like.nodes) or any(size not in (1, other) for size, other in sizes):
        raise Untranslatable
    (real,) = like.call.results((value,))
    shape = torch.Size((*like.batch, like.nodes, *own[leading + 1 :]))
    return _flat(like.call, _view(like.call, shape, Tensor.expand, real, shape), shape, axes).rows


def _new(func: Any, like: Parted, size: Any, *args: Any, **kwargs: Any) -> Any:
    if isinstance(size, int):  # one number for each node, such as a count of edges
        value = {"new_zeros": 0.0, "new_ones": 1.0}.get(func.__name__)
        if value is None or args or kwargs:
            raise Untranslatable
        call = func, (like.rows.node, size), {}, None
        return like.call.record(const(value), torch.Size((size,)), like.dtype, call)
    axes = len(like.batch)
    if not isinstance(size, tuple | list) or len(size) < axes + 2 or tuple(size[:axes]) != like.batch:
        raise Untranslatable
    nodes, *row = size[axes:]
    rows = func(like.rows, (like.call.times(like.parts, nodes), *row), *args, **kwargs)
    return Parted.of(rows, like.batch, nodes)


def _expanded(func: Any, x: Any, like: Any) -> Any:
    if type(x) is Parted or type(like) is not Parted:
        raise Untranslatable
    return _view(like.call, like.shape, Tensor.expand, *like.call.results((x,)), like.shape)


def _along(func: Any, x: Any, dim: Any = None, *args: Any, **kwargs: Any) -> Parted:
    """Applies a function along one axis, which must not be one of the batch or that of the nodes."""
    if type(x) is not Parted or type(dim) is not int or x.row_axis(dim) < 1:
        raise Untranslatable
    rows = func(x.rows, x.row_axis(dim), *args, **kwargs)
    if rows.dim() < 2:  # a single number for each row has no axis of its own
        raise Untranslatable
    return x.of_rows(rows)


def _cut(func: Any, x: Any, size: Any, dim: int = 0) -> tuple[Parted, ...]:
    if type(x) is not Parted or x.row_axis(dim) < 1:
        raise Untranslatable
    return tuple([x.of_rows(part) for part in func(x.rows, size, x.row_axis(dim))])


def _linear(func: Any, x: Any, weight: Any, bias: Any = None) -> Parted:
    if type(x) is not Parted or type(weight) is Parted or type(bias) is Parted:
        raise Untranslatable
    return x.of_rows(func(x.rows, weight, bias))


def _product(func: Any, x: Any, weight: Any) -> Parted:
    if type(x) is not Parted or x.rows.dim() != 2 or type(weight) is Parted or weight.dim() != 2:
        raise Untranslatable
    return x.of_rows(func(x.rows, weight))


def _joined(func: Any, tensors: Any, dim: int = 0) -> Parted:
    first = tensors[0]
    if type(first) is not Parted or not all(map(first.alike, tensors)) or first.row_axis(dim) < 1:
        raise Untranslatable
    return first.of_rows(func([t.rows for t in tensors], first.row_axis(dim)))


def _gathered(func: Any, x: Any, dim: int, index: Any) -> Parted:
    if type(x) is not Parted or type(index) is not EndIndex or index.dim() != 1 or x.row_axis(dim) != 0:
        raise Untranslatable
    edges = PartedEdges.of(index.edges, x.parts)
    edges.set_rows(index.side, x.nodes)
    return Parted.of(gathered(x.call, x.rows, edges, index.side), x.batch, index.edges.count)


def _added(func: Any, target: Any, dim: int, index: Any, src: Any) -> Parted:
    return _scattered(func, target, dim, index, src, "sum", include_self=True)


def _scattered(
    func: Any, target: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True
) -> Parted:
    reduction = {"sum": "+=", "amax": "max=", "amin": "min="}.get(reduce)
    if type(target) is not Parted or type(src) is not Parted or type(index) is not EndIndex or reduction is None:
        raise Untranslatable
    axes, start, edges = len(target.batch), target.rows.node.expr, PartedEdges.of(index.edges, src.parts)
    if target.row_axis(dim) != 0 or target.batch != src.batch or target.rows.shape[1:] != src.rows.shape[1:]:
        raise Untranslatable
    if index.axis != (axes if index.dim() > 1 else 0) or index.side not in SIDES or src.nodes != edges.one.count:
        raise Untranslatable
    empty, expr = start.data == (0.0,), src.rows.node.expr
    if start.on_edges or any(e.edges not in (None, edges) for e in (start, expr)):
        raise Untranslatable
    if reduction != "+=" and (include_self or not empty):
        raise Untranslatable
    writes = func.__name__.endswith("_")
    if writes and start.op != "const":  # others may share its memory
        raise Untranslatable
    edges.set_rows(index.side, target.nodes)
    expr = reduced(expr, edges, index.side, reduction, target.dtype)
    rows = target.call.record(expr if empty else apply("add", start, expr), target.rows.shape, target.dtype)
    if not writes:
        return target.of_rows(rows)
    target.rows, target.node = rows, rows.node
    return target


_HANDLERS: Sequence[tuple[Sequence[Any], Callable[..., Any]]] = (
    ([getattr(Tensor, name) for name in _NEW], _new),
    ((Tensor.size,), lambda func, x, dim=None: x.size(dim)),
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

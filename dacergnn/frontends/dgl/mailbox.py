"""The mailbox of a reduce function: the messages of every node along axis 1, however many there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dacergnn.frontends.dgl.edges import GraphEdges
from dacergnn.frontends.dgl.operators import aggregate, end_values, in_degrees, softmax, unsupported
from dacergnn.frontends.dgl.recorder import Recorder
from dacergnn.frontends.symbolic.expr import Expr
from dacergnn.frontends.symbolic.value import Value
from dacergnn.library_nodes.operators import OPERATORS

_REDUCTIONS = {"sum": "sum", "mean": "mean", "max": "max", "amax": "max", "min": "min", "amin": "min"}
_ROWWISE = frozenset((
    *[name for operator in OPERATORS.values() for name in operator.torch.functions],
    "rsub", "reciprocal", "square", "pow", "clamp", "clip", "dropout", "linear", "matmul", "detach", "clone",
    "contiguous", "float", "double", "__rsub__", "__rtruediv__", "__rdiv__", "__rmul__", "__matmul__",
))  # fmt: skip
_AXES = frozenset(("unsqueeze", "squeeze"))
_OPERATORS = ("add", "sub", "mul", "truediv", "radd", "rsub", "rmul", "rtruediv", "neg", "pow", "matmul")
_FINITE = frozenset((
    *[name for name, operator in OPERATORS.items() if operator.finite],
    "leaf", "const", "gather", "aggregate", "degree", "reshape", "expand", "concat", "slice", "sum", "dot_prd",
    "linear",
))  # fmt: skip
"""Operators with finite values and slopes wherever their operands are finite."""


class Extremes(NamedTuple):
    """Holds the results of `max` and `min` of messages, whose positions are unknown."""

    values: Value
    indices: Unknown


class Unknown:
    """Stands for a result that depends on the number of messages; any use of it raises an error."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __getattr__(self, name: str) -> Any:
        raise unsupported(self._what)


class Mailbox:
    """Represents messages [N, D, ...], where D is the in-degree, by values [E, ...]."""

    def __init__(self, recorder: Recorder, edges: GraphEdges, messages: Value) -> None:
        self._recorder, self._edges, self._messages = recorder, edges, messages

    def dim(self) -> int:
        """Returns the number of axes, including the axis of the messages."""
        return self._messages.dim() + 1

    ndim = property(dim)
    dtype = property(lambda self: self._messages.dtype)
    device = property(lambda self: self._messages.device)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        function = getattr(Tensor, name, None)
        if not callable(function):
            raise unsupported(f"{name} of nodes.mailbox")
        return lambda *args, **kwargs: self._call(function, (self, *args), kwargs)  # pyright: ignore[reportUnknownLambdaType]

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        mailboxes = [a for a in args if isinstance(a, cls)]
        if not mailboxes:
            raise unsupported(f"{func.__name__} of nodes.mailbox")
        return mailboxes[0]._call(func, args, kwargs or {})

    def _call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name: str = func.__name__
        if name in _REDUCTIONS or name in ("softmax", *_AXES):
            if args[0] is not self:
                raise unsupported(f"{name} of nodes.mailbox")
            return self._along_axis(func, name, *args[1:], **kwargs)
        if name not in _ROWWISE:
            raise unsupported(f"{name} of nodes.mailbox")
        return self._of(func(*[self._operand(a) for a in args], **{k: self._operand(v) for k, v in kwargs.items()}))

    def _along_axis(self, func: Any, name: str, dim: Any = None, *args: Any, **kwargs: Any) -> Any:
        axes: tuple[int, ...] = tuple(dim) if isinstance(dim, Sequence) else () if dim is None else (dim,)
        total = self.dim() + (name == "unsqueeze")
        axes = tuple(d % total for d in axes)
        if len(axes) == 1 and axes[0] > 1:
            return self._of(func(self._messages, axes[0] - 1, *args, **kwargs))
        if axes != (1,) or name in _AXES:
            raise unsupported(f"{name} of nodes.mailbox along dim={dim}")
        if name == "softmax":
            return self._of(softmax(self._recorder, self._edges, self._messages))
        keepdim = bool(kwargs.pop("keepdim", args[0] if args else False))
        if kwargs or len(args) > 1:
            raise unsupported(f"{name} of nodes.mailbox with {', '.join(kwargs) or 'these arguments'}")
        rows = self._reduced(_REDUCTIONS[name])
        rows = rows.unsqueeze(1) if keepdim else rows
        return Extremes(rows, Unknown(f"{name} of nodes.mailbox with positions")) if name in ("max", "min") else rows

    def _reduced(self, reduction: str) -> Any:
        if reduction != "mean":
            return aggregate(self._recorder, self._edges, self._messages, reduction)
        total = aggregate(self._recorder, self._edges, self._messages, "sum")
        counts = in_degrees(self._recorder, self._edges, total.dtype)
        return total / counts.view(-1, *[1] * (total.dim() - 1))

    def _of(self, messages: Any) -> Mailbox:
        return Mailbox(self._recorder, self._edges, messages)

    def _operand(self, value: Any) -> Any:
        """Returns an operand as a value for every edge."""
        if isinstance(value, Mailbox):
            if value._edges is self._edges and value.dim() == self.dim():
                return value._messages
        elif not isinstance(value, Tensor) or (type(value) is not Value and value.dim() <= max(self.dim() - 2, 0)):
            return value
        elif type(value) is not Value and value.dim() == 2 and value.shape[0] != self._edges.rows["dst"]:
            return value  # a matrix
        elif value.dim() == self.dim() and value.shape[1] == 1:
            return end_values(self._recorder, self._edges, "dst", value.squeeze(1))
        raise unsupported("an operand of nodes.mailbox that is neither messages nor [N, 1, ...]")


def _operator(name: str) -> Callable[..., Any]:
    function = getattr(Tensor, f"__{name}__")
    plain = {"__truediv__": torch.div, "__rtruediv__": Tensor.__rdiv__, "__radd__": torch.add}.get(function.__name__)
    named = getattr(torch, name, plain or function)
    return lambda self, *args: self._call(named, (self, *args), {})


for _name in _OPERATORS:
    setattr(Mailbox, f"__{_name}__", _operator(_name))


def at_reached(recorder: Recorder, edges: GraphEdges, result: Any) -> Any:
    """Returns results of a reduce function, with zeros at nodes without edges, for which DGL does not call it."""
    if not isinstance(result, Tensor):
        raise unsupported(f"a reduce function that returns {type(result).__name__}")
    if type(result) is Value and _vanishes(result.node.expr):
        return result
    reached = edges.reached
    if edges.all_reached:
        return result
    if type(result) is Value and not _finite(result.node.expr):
        raise unsupported("a quotient of messages at nodes without edges")
    return torch.where(reached.view(-1, *[1] * (result.dim() - 1)), result, 0.0)


def _vanishes(expr: Expr) -> bool:
    """Returns whether a value is zero at nodes that no edge leads to."""
    if expr.op == "aggregate":
        return True
    if expr.op == "div":
        return _vanishes(expr.args[0]) and _at_least_one(expr.args[1])
    return expr.op in ("reshape", "slice", "sum", "neg", "expand") and _vanishes(expr.args[0])


def _at_least_one(expr: Expr) -> bool:
    while expr.op in ("reshape", "expand"):
        expr = expr.args[0]
    return expr.op == "clamp_min" and expr.args[1].data == (1.0,)


def _finite(expr: Expr) -> bool:
    """Returns whether values and gradients stay finite at nodes that no edge leads to."""
    if expr.op == "gather":
        return True
    if expr.op == "div":
        safe = expr.args[1].op == "const" or _at_least_one(expr.args[1])
        return safe and all(_finite(a) for a in expr.args)
    return expr.op in _FINITE and all(_finite(a) for a in expr.args)

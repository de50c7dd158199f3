"""The mailbox of a reduce function: the messages of every node along axis 1, however many there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dacergnn.frontends.dgl.ends import Ends
from dacergnn.frontends.dgl.messages import reduced, softmax
from dacergnn.frontends.dgl.refusals import unsupported
from dacergnn.library_nodes.operators import OPERATORS

_REDUCTIONS = {"sum": "sum", "mean": "mean", "max": "max", "amax": "max", "min": "min", "amin": "min"}
_ROWWISE = frozenset((
    *[name for operator in OPERATORS.values() for name in operator.torch.functions],
    "rsub", "reciprocal", "square", "pow", "clamp", "clip", "dropout", "linear", "matmul", "detach", "clone",
    "contiguous", "float", "double", "__rsub__", "__rtruediv__", "__rdiv__", "__rmul__", "__matmul__",
))  # fmt: skip
_PRODUCTS = frozenset(("linear", "matmul", "__matmul__"))
_AXES = frozenset(("unsqueeze", "squeeze"))
_OPERATORS = ("add", "sub", "mul", "truediv", "radd", "rsub", "rmul", "rtruediv", "neg", "pow", "matmul")


class Extremes(NamedTuple):
    """Holds the results of `max` and `min` of messages, whose positions are unknown."""

    values: Tensor
    indices: Unknown


class Unknown:
    """Stands for a result that depends on the number of messages; any use of it raises an error."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __getattr__(self, name: str) -> Any:
        raise unsupported(self._what)


class Mailbox:
    """Represents messages [N, D, ...], where D is the in-degree, by values [E, ...].

    N counts the nodes that edges lead to.
    """

    def __init__(self, ends: Ends, messages: Tensor, sums: list[tuple[Tensor, Tensor]] | None = None) -> None:
        self._ends, self._messages = ends, messages
        self.sums: list[tuple[Tensor, Tensor]] = [] if sums is None else sums
        """Reduced messages: of the nodes that edges lead to, and of all."""

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
        return lambda *args, **kwargs: self._call(function, name, (self, *args), kwargs)  # pyright: ignore[reportUnknownLambdaType]

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        for arg in args:
            if isinstance(arg, cls):
                return arg._call(func, func.__name__, args, kwargs or {})
        raise unsupported(f"{func.__name__} of nodes.mailbox")

    def _call(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name in _REDUCTIONS or name in ("softmax", *_AXES):
            if args[0] is not self:
                raise unsupported(f"{name} of nodes.mailbox")
            return self._along_axis(func, name, *args[1:], **kwargs)
        if name not in _ROWWISE:
            raise unsupported(f"{name} of nodes.mailbox")
        if name in _PRODUCTS:
            return self._product(func, name, args, kwargs)
        return self._of(func(*[self._operand(a) for a in args], **{k: self._operand(v) for k, v in kwargs.items()}))

    def _product(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Mailbox:
        """Multiplies each message with a matrix."""
        others = [*args[1:], *kwargs.values()]
        if (
            args[0] is not self
            or self.dim() != 3
            or any(isinstance(v, Mailbox) or (isinstance(v, Tensor) and v.dim() > 2) for v in others)
        ):
            raise unsupported(f"{name} of nodes.mailbox with more than a matrix")
        return self._of(func(self._messages, *args[1:], **kwargs))

    def _along_axis(self, func: Any, name: str, dim: Any = None, *args: Any, **kwargs: Any) -> Any:
        axes: tuple[int, ...] = tuple(dim) if isinstance(dim, tuple | list) else () if dim is None else (dim,)
        total = self.dim() + (name == "unsqueeze")
        axes = tuple([d % total for d in axes])
        if len(axes) == 1 and axes[0] > 1:
            return self._of(func(self._messages, axes[0] - 1, *args, **kwargs))
        if axes != (1,) or name in _AXES:
            raise unsupported(f"{name} of nodes.mailbox along dim={dim}")
        if name == "softmax":
            return self._of(softmax(self._messages, self._ends.dst, self._ends.destinations))
        keepdim = bool(kwargs.pop("keepdim", args[0] if args else False))
        if kwargs or len(args) > 1:
            raise unsupported(f"{name} of nodes.mailbox with {', '.join(kwargs) or 'these arguments'}")
        rows = self._reduced(_REDUCTIONS[name])
        rows = rows.unsqueeze(1) if keepdim else rows
        return Extremes(rows, Unknown(f"{name} of nodes.mailbox with positions")) if name in ("max", "min") else rows

    def _reduced(self, reduction: str) -> Tensor:
        of_all = reduced(self._ends, self._messages, reduction)
        if self._ends.rows is None:
            return of_all
        rows = of_all[self._ends.rows]
        self.sums.append((rows, of_all))
        return rows

    def _of(self, messages: Tensor) -> Mailbox:
        return Mailbox(self._ends, messages, self.sums)

    def _operand(self, value: Any) -> Any:
        """Returns an operand as a value for every edge."""
        if isinstance(value, Mailbox):
            if value._ends is self._ends and value.dim() == self.dim():
                return value._messages
        elif not isinstance(value, Tensor) or value.dim() <= max(self.dim() - 2, 0):
            return value
        elif value.dim() == self.dim() and value.shape[1] == 1:
            return self._at_edges(value.squeeze(1))
        raise unsupported("an operand of nodes.mailbox that is neither messages nor [N, 1, ...]")

    def _at_edges(self, value: Tensor) -> Tensor:
        ends = self._ends
        if ends.rows is not None:
            zeros = torch.zeros((ends.destinations, *value.shape[1:]), dtype=value.dtype, device=value.device)
            value = zeros.index_copy(0, ends.rows, value)
        return value[ends.dst]


def _operator(name: str) -> Callable[..., Any]:
    function = getattr(Tensor, f"__{name}__")
    plain = {"__truediv__": torch.div, "__rtruediv__": Tensor.__rdiv__, "__radd__": torch.add}.get(function.__name__)
    named = getattr(torch, name, plain or function)
    return lambda self, *args: self._call(named, named.__name__, (self, *args), {})


for _name in _OPERATORS:
    setattr(Mailbox, f"__{_name}__", _operator(_name))

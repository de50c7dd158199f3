"""Recorded values: tensors that know how they are computed instead of holding numbers."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.symbolic.dispatch import dispatch
from dacergnn.frontends.symbolic.expr import Expr, has_gradient, version
from dacergnn.frontends.symbolic.notes import Notes

_wrap: Callable[..., Any] = Tensor._make_wrapper_subclass  # pyright: ignore[reportAttributeAccessIssue]

_T = TypeVar("_T")


class Node:
    """Holds one recorded value: its expression, and the torch call that computes it eagerly if it needs no edges.

    ``elements`` is the type of the numbers that a program computes: that of the value, or the zeros and ones of a mask.
    ``read`` are the tensors that the call reads, with their versions: it may run after the user has written to them.
    """

    __slots__ = ("call", "dtype", "elements", "expr", "read", "real", "shape")

    def __init__(
        self, expr: Expr, shape: torch.Size, dtype: torch.dtype, call: tuple[Any, ...] = (), real: Tensor | None = None
    ) -> None:
        self.expr, self.shape, self.dtype, self.call, self.real = expr, shape, dtype, call, real
        self.elements = dtype
        self.read = [(tensor, version(tensor)) for tensor in held_in(call, Tensor)]


def held_in(tree: Any, kind: type[_T]) -> Iterator[_T]:
    """Yields the objects of a kind in tuples, lists and dictionaries."""
    if isinstance(tree, kind):
        yield tree
    elif type(tree) in (tuple, list, dict):
        for item in tree.values() if type(tree) is dict else tree:
            yield from held_in(item, kind)


class Aliases(list["weakref.ref[Value]"]):
    """Lists all values that would share memory with one of them; ``exposed`` if a tensor of torch does, too."""

    exposed = False


class Value(Tensor):
    """Stands for a tensor whose first axis has one row for each node or edge."""

    node: Node
    owner: Notes
    aliases: Aliases

    @staticmethod
    def __new__(cls: type[Value], trace: Notes, node: Node, aliases: Aliases | None = None) -> Value:
        value = _wrap(cls, node.shape, dtype=node.dtype, device=trace.device)
        value.owner, value.node = trace, node
        value.aliases = Aliases() if aliases is None else aliases
        reference = weakref.ref(value)
        value.aliases.append(reference)
        trace.values.append(reference)
        return value

    def __init__(self, trace: Notes, node: Node, aliases: Aliases | None = None) -> None:
        super().__init__()

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return dispatch(func, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        raise UnsupportedCallError(f"{func} asks for the numbers of a value that is recorded.")

    @property
    def shape(self) -> torch.Size:  # pyright: ignore[reportIncompatibleMethodOverride, reportIncompatibleVariableOverride]
        return self.node.shape

    @property
    def dtype(self) -> torch.dtype:  # pyright: ignore[reportIncompatibleMethodOverride, reportIncompatibleVariableOverride]
        return self.node.dtype

    layout = property(lambda self: torch.strided)  # pyright: ignore[reportAssignmentType]
    is_cuda = property(lambda self: self.owner.device.type == "cuda")  # pyright: ignore[reportAssignmentType]

    @property
    def requires_grad(self) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride, reportIncompatibleVariableOverride]
        return self.owner.grad and self.dtype.is_floating_point and has_gradient(self.node.expr)

    def dim(self) -> int:
        return len(self.node.shape)

    def size(self, dim: int | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.node.shape if dim is None else self.node.shape[dim]

    def tensor(self) -> Tensor | None:
        """Returns the tensor of a value that has been computed."""
        return self.node.real

    def alone(self) -> bool:
        """Returns whether no other value that is still in use shares this one's memory."""
        return not self.aliases.exposed and all(other() is None or other() is self for other in self.aliases)

    def expose(self) -> None:
        """Notes that a tensor of torch shares this one's memory: no value that does may be written to from now on."""
        self.aliases.exposed = True


CLONES = (torch.clone, Tensor.clone)


def held(value: Value) -> Tensor | None:
    """Returns the tensor that a value is, or is a view of, if one exists; a copy that is not made yet is of its own."""
    node = value.node
    if node.real is None and node.call and node.call[0] in CLONES:
        return None
    expr = node.expr
    while expr.op in ("reshape", "slice", "expand", "detach"):
        expr = expr.args[0]
    return expr.tensor


def values_in(tree: Any) -> list[Value]:
    """Returns the values in tuples, lists and dictionaries."""
    if isinstance(tree, Value):
        return [tree]
    if isinstance(tree, tuple | list):
        return [v for item in tree for v in values_in(item)]
    if type(tree) is dict:
        return [v for item in tree.values() for v in values_in(item)]
    return []


def replaced(tree: Any) -> Any:
    """Returns a structure with the tensors of values that have been computed."""
    if isinstance(tree, Value):
        return tree.tensor()
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*[replaced(v) for v in tree])
    if type(tree) in (tuple, list):
        return type(tree)([replaced(v) for v in tree])
    if type(tree) is dict:
        return {k: replaced(v) for k, v in tree.items()}
    return tree

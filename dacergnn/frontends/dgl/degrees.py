"""Degrees of nodes that tell without a look at their numbers whether some are zero.

Many forwards ask ``(g.in_degrees() == 0).any()``. torch's capture ends where a branch depends on numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dacergnn.frontends.dgl.ends import Ends

_EQUAL = (Tensor.eq, Tensor.__eq__, torch.eq)
_ANY = (Tensor.any, torch.any)
_WRITES = frozenset((
    Tensor.__setitem__,
    *[getattr(Tensor, name) for name in dir(Tensor) if name.endswith("_") and not name.endswith("__")],
))  # fmt: skip


class Degrees(Tensor):
    """Represents degrees; functions of them return plain tensors."""

    ends: Ends
    side: str

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Sequence[Any], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = _plain(func, args, kwargs)
        if func in _EQUAL and len(args) == 2 and type(args[1]) is int and args[1] == 0:
            result = result.as_subclass(_Zeros)
            result.ends, result.side = args[0].ends, args[0].side
        return result


class _Zeros(Degrees):
    """Tells which degrees are zero."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Sequence[Any], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _ANY and len(args) == 1 and not kwargs:
            ends = args[0].ends
            return not (ends.all_leave if args[0].side == "src" else ends.all_reached)
        return _plain(func, args, kwargs)


def marked(degrees: Tensor, ends: Ends, side: str) -> Tensor:
    """Returns degrees at one end of some edges that know these."""
    result = degrees.as_subclass(Degrees)
    result.ends, result.side = ends, side
    return result


def unmarked(value: Any) -> Any:
    """Returns a plain tensor in place of marked degrees, and anything else as it is."""
    return value.as_subclass(Tensor) if isinstance(value, Degrees) else value


def _plain(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
    """Calls a function that may not write, since the mark would be wrong then."""
    if func in _WRITES:
        raise TypeError("A function writes to degrees of a graph.")
    with torch._C.DisableTorchFunctionSubclass():  # pyright: ignore[reportPrivateUsage]
        return func(*args, **(kwargs or {}))

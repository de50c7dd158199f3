"""Sizes in a recorded call that may differ in other calls, and notes of what Python learns about them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

Role = tuple[int, Any]
"""The place of a tensor on the tape and the axis that has the size."""
Guard = tuple[Callable[[Any, Any], bool], Role, "Role | int", bool]
"""A comparison of a size with another one, or with a number, and its result."""


class Size(int):
    """Represents the size of an axis of a tensor; behaves like a plain number.

    Comparisons are noted with their results. Any other operation is noted as a comparison with the plain number. Only
    torch reads the number of an argument without a note.
    """

    role: Role
    guards: dict[Guard, None]

    @staticmethod
    def of(number: int, role: Role, guards: dict[Guard, None]) -> Size:
        """Returns a size that notes its guards in ``guards``."""
        size = Size(number)
        size.role, size.guards = role, guards
        return size

    def is_known(self) -> None:
        """Notes that the call depends on the number itself."""
        self.guards[operator.eq, self.role, number(self), True] = None

    def __reduce__(self) -> tuple[Any, ...]:
        return int, (number(self),)


class Number:
    """Holds a number of a call that is no size of a tensor, in the form of one."""

    def __init__(self, number: int) -> None:
        self.shape = (number,)


def number(size: int) -> int:
    """Returns a size as a plain number, which is not noted."""
    return int.__int__(size)


def _compared(compare: Callable[[Any, Any], bool]) -> Callable[[Size, Any], Any]:
    plain = getattr(int, f"__{compare.__name__}__")

    def method(self: Size, other: Any) -> Any:
        outcome = plain(self, other)
        if outcome is NotImplemented:
            if other is not None:  # no number equals None
                self.is_known()
        elif type(other) is not Size:
            self.guards[compare, self.role, int(other), outcome] = None
        elif other.role != self.role:
            self.guards[compare, self.role, other.role, outcome] = None
        return outcome

    return method


def _read(name: str) -> Callable[..., Any]:
    plain = getattr(int, name)

    def method(self: Size, *others: Any) -> Any:
        self.is_known()
        for other in others:
            if type(other) is Size:
                other.is_known()
        return plain(self, *others)

    return method


def _truth(self: Size) -> bool:
    return self != 0


_ARITHMETIC = (
    "add",
    "sub",
    "mul",
    "floordiv",
    "truediv",
    "mod",
    "divmod",
    "pow",
    "lshift",
    "rshift",
    "and",
    "or",
    "xor",
)
_OTHERS = ("neg", "pos", "abs", "invert", "int", "float", "index", "trunc", "ceil", "floor", "round", "hash", "repr",
           "str", "format")  # fmt: skip
for _compare in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge):
    setattr(Size, f"__{_compare.__name__}__", _compared(_compare))
for _name in (*_ARITHMETIC, *(f"r{name}" for name in _ARITHMETIC), *_OTHERS):
    setattr(Size, f"__{_name}__", _read(f"__{_name}__"))
for _name in ("bit_length", "bit_count", "to_bytes", "conjugate", "as_integer_ratio"):
    setattr(Size, _name, _read(_name))
Size.__bool__ = _truth  # pyright: ignore[reportAttributeAccessIssue]

"""Names of types that the user has not named: the numbers of the types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload


class NumberNames(Sequence[str]):
    """Holds the names "0", "1", ... of types without names of the user, and makes each on request.

    It equals a tuple or list of the same names. There may be millions of types, of which few have edges.
    """

    def __init__(self, count: int) -> None:
        self._numbers = range(count)

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        selected = self._numbers[index]
        return tuple(map(str, selected)) if isinstance(selected, range) else str(selected)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, NumberNames):
            return self._numbers == other._numbers
        if not isinstance(other, tuple | list):
            return NotImplemented
        return len(other) == len(self) and all(a == b for a, b in zip(self, other, strict=True))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"NumberNames({len(self)})"

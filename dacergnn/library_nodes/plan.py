"""Describes kernels before their code is written: the encodings that they read, and the memory that they need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dacergnn.library_nodes.form import Ref, Shape
from dacergnn.library_nodes.parse import view_shape

ALIGNMENT = 256
"""Bytes to which arrays in scratch memory of a device are aligned (``take`` of ``launch.cuh``)."""


class Rows(NamedTuple):
    """Describes the rows of an array: their row space, and the shape of each."""

    space: str
    shape: Shape


@dataclass(frozen=True)
class Arrays:
    """Describes the arrays that a kernel touches, by name, and the size of their elements in bytes.

    Elements of the ``wide`` ones are those of float32, in programs of 16 bits.
    """

    rows: tuple[tuple[str, Rows], ...]
    item: int
    wide: frozenset[str] = frozenset()
    by_name: Mapping[str, Rows] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", dict(self.rows))

    def __getitem__(self, name: str) -> Rows:
        return self.by_name[name]

    def __contains__(self, name: str) -> bool:
        return name in self.by_name

    def rounds(self, name: str) -> bool:
        """Tells whether an array has fewer digits than the sums that are computed for it."""
        return self.item < 4 and name not in self.wide

    def converts(self, name: str) -> int:
        """Returns the width of the rows of an array whose elements are converted together; 0 for other arrays."""
        width = self.width(name) if self.rounds(name) else 0
        return width if 8 <= width <= 256 else 0

    def width(self, name: str) -> int:
        """Returns the number of elements of a row."""
        elements = 1
        for extent in self.by_name[name].shape:
            elements *= extent
        return elements

    def shapes(self, ref: Ref) -> Shape:
        """Returns the shape of the row that a reference sees."""
        return view_shape(ref, self.by_name[ref.name].shape)

    def with_rows(self, more: Mapping[str, Rows]) -> Arrays:
        """Returns these arrays and more."""
        return Arrays((*self.rows, *more.items()), self.item, self.wide)


@dataclass(frozen=True, eq=False, kw_only=True)
class OperatorPlan:
    """Describes what a kernel of an operator will do, for passes that need to know it before there is code.

    Args:
        encodings: Graph encodings that it reads.
        scratch: Bytes of scratch memory per row of each row space; those of "ONE" are needed once.
        in_place: Pairs of an array that is read and another that may be written over it, if nothing else reads the
            first.
        launches: Number of launches on a device, each of which waits for the one before.
        questions: Properties of the operator that its code or its calls depend on (`select_schedule`).
    """

    encodings: tuple[str, ...]
    scratch: Mapping[str, int] = field(default_factory=dict[str, int])
    in_place: frozenset[tuple[str, str]] = frozenset()
    launches: int = 1
    questions: tuple[str, ...] = ()


def in_order(encodings: Mapping[str, None]) -> tuple[str, ...]:
    """Returns encodings in the order in which kernels list them: lengths and pointers, orders, indices."""
    kinds = ("len", "reg", "ptr", "ids", "idx", "via", "ell", "hyb")
    return tuple(sorted(encodings, key=lambda name: kinds.index(name[:3])))

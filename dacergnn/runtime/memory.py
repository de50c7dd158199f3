"""Plans memory: offsets of intermediate arrays in one workspace, which they share if their lifetimes do not overlap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from dacergnn.runtime.lower import Buffer

ALIGNMENT = 64


@dataclass(frozen=True)
class MemoryPlan:
    """Holds byte offsets by array name, and the size of the workspace."""

    offsets: dict[str, int]
    size: int


@dataclass(frozen=True)
class _Place:
    """Describes bytes ``start`` to ``end``, which an array takes from operator ``first`` to operator ``last``."""

    start: int
    end: int
    name: str
    first: int
    last: int

    def leaves(self, start: int, end: int, buffer: Buffer) -> bool:
        """Tells whether this array leaves the bytes from ``start`` to ``end`` to a buffer."""
        apart = end <= self.start or self.end <= start
        if apart or self.last < buffer.first or buffer.last < self.first:
            return True
        in_place = self.name in buffer.over and self.last == buffer.first
        return in_place and (start, end) == (self.start, self.end)


def aligned(size: int) -> int:
    """Returns ``size`` in bytes, rounded up to whole cache lines."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def plan_memory(
    buffers: Sequence[Buffer],
    sizes: Mapping[str, int],
    item: int,
    occupied: Mapping[str, tuple[int, int, int]] | None = None,
    room: int = 0,
) -> MemoryPlan:
    """Places buffers first-fit, the largest first, so that no two that live at the same time overlap.

    A buffer may take the place of an array that its operator is the last to read, if that can write it in place.

    Args:
        sizes: Number of rows by row space.
        item: Bytes of an element.
        occupied: Arrays that lie in the first ``room`` bytes already: start, end, last operator that reads them.
        room: No buffer crosses this offset; the workspace starts there.
    """
    placed = [_Place(start, end, name, -1, last) for name, (start, end, last) in (occupied or {}).items()]
    offsets: dict[str, int] = {}
    for buffer in sorted(buffers, key=lambda b: (-sizes[b.rows] * b.elements, b.first)):
        length = aligned(sizes[buffer.rows] * buffer.elements * item)
        # It can begin in place of an array, else after one.
        starts = [p.start for p in placed if p.name in buffer.over and p.end - p.start == length]
        starts += sorted({0, room, *(p.end for p in placed)})
        start = next(
            s
            for s in starts
            if (s >= room or s + length <= room) and all(p.leaves(s, s + length, buffer) for p in placed)
        )
        placed.append(_Place(start, start + length, buffer.name, buffer.first, buffer.last))
        offsets[buffer.name] = start
    return MemoryPlan(offsets, max([room, *(p.end for p in placed)]) - room)


class Shared(NamedTuple):
    """Describes memory that arrays of one size have one after the other: the positions of their arguments, their row
    space, and bytes of a row."""

    positions: tuple[int, ...]
    space: str
    width: int


def shared(buffers: Sequence[Buffer], positions: Mapping[str, int], item: int) -> list[Shared]:
    """Divides buffers by what memory they have, whatever the sizes are; buffers of another space or width share none.

    As in `plan_memory`, a buffer may take the place of one that its operator is the last to read.

    Args:
        positions: Positions of arguments by name.
        item: Bytes of an element.
    """
    groups: list[list[Buffer]] = []
    for buffer in sorted(buffers, key=lambda b: b.first):
        alike = [g for g in groups if (g[0].rows, g[0].elements) == (buffer.rows, buffer.elements)]
        in_place = [g for g in alike if g[-1].name in buffer.over and g[-1].last == buffer.first]
        free = in_place + [g for g in alike if g[-1].last < buffer.first]
        if free:
            free[0].append(buffer)
        else:
            groups.append([buffer])
    return [Shared(tuple([positions[b.name] for b in g]), g[0].rows, g[0].elements * item) for g in groups]


def lined_up(memory: Sequence[Shared], sizes: Mapping[str, int]) -> tuple[list[tuple[int, int]], int]:
    """Returns the offsets of arrays by position, and how many bytes they take, if nothing else is shared.

    Args:
        sizes: Number of rows by row space.
    """
    starts = [*accumulate([aligned(sizes[space] * width) for _, space, width in memory], initial=0)]
    pairs = zip(memory, starts, strict=False)
    return [(position, start) for own, start in pairs for position in own.positions], starts[-1]


def hosted(buffers: Sequence[Buffer], results: Sequence[Buffer]) -> dict[str, str]:
    """Returns the results that buffers share memory with, by the buffer's name; one buffer for each result."""
    hosts: dict[str, str] = {}
    for result in results:
        fitting = [
            b.name
            for b in buffers
            if b.name in result.over
            and (b.last, b.rows, b.elements) == (result.first, result.rows, result.elements)
            and b.name not in hosts
        ]
        hosts |= dict.fromkeys(fitting[:1], result.name)
    return hosts

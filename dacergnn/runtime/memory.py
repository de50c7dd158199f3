"""The memory plan: offsets of intermediate arrays in one workspace, shared where lifetimes do not overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dacergnn.runtime.lower import Buffer

ALIGNMENT = 64


@dataclass(frozen=True)
class MemoryPlan:
    """Byte offsets by array name, and the size of the workspace that holds them."""

    offsets: dict[str, int]
    size: int


def aligned(size: int) -> int:
    """``size`` in bytes, rounded up to whole cache lines."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def plan_memory(buffers: Sequence[Buffer], sizes: dict[str, int], item: int) -> MemoryPlan:
    """Place buffers first-fit, the largest first, so that no two that live at the same time overlap.

    Args:
        sizes: Number of rows by row space.
        item: Bytes of an element.
    """
    placed: list[tuple[int, int, Buffer]] = []
    offsets: dict[str, int] = {}
    total = 0
    for buffer in sorted(buffers, key=lambda b: -sizes[b.rows] * b.elements):
        length = aligned(sizes[buffer.rows] * buffer.elements * item)
        offset = 0
        for start, end, other in sorted(placed, key=lambda p: p[0]):
            alive = other.first <= buffer.last and buffer.first <= other.last
            if alive and start < offset + length and offset < end:
                offset = end
        placed.append((offset, offset + length, buffer))
        offsets[buffer.name] = offset
        total = max(total, offset + length)
    return MemoryPlan(offsets, total)

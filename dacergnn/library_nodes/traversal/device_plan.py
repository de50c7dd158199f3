"""Describes plans of loop nests on devices: a crew of threads has a group, and its teams of lanes share the rows.

Every lane of a team computes a whole row of fewer than `WIDE` elements, and has a copy of it. Lanes share the
elements of wider rows, and each lane reads its own elements. Values that a lane reads otherwise, or in another loop,
go through memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dacergnn.library_nodes.form import Statement
from dacergnn.library_nodes.plan import Arrays, OperatorPlan
from dacergnn.library_nodes.traversal.lanes import Lanes
from dacergnn.library_nodes.traversal.nest import Levels
from dacergnn.library_nodes.traversal.places import Number, Place, Pointers
from dacergnn.library_nodes.traversal.storage import WIDE, Home

CREWS = {False: 8, True: 4}
"""Threads that share a group of narrow rows; fewer where a schedule goes by edges, because groups are short."""
STRIP = 8
"""Elements of a wide row that a thread sums up: at least two runs, so that several reads are under way at once."""
MOST_BATCH = 4
"""The most rows that a team loads before it computes with them; a power of two."""
MOST_WORDS, MANY_HELD = {False: 52, True: 64}, 16
"""The most words of 4 bytes of these rows, their addresses and all else in a thread; more if it holds many elements.

Threads that hold many elements leave room for fewer blocks in any case (``kLeastCrewBlocks`` of ``traversal.cuh``).
"""
ROOM_OF_BATCH = 8
"""The fewest elements that a thread has registers for if it loads several rows ahead."""
MOST_AHEAD = 4
"""The most elements of a row that every lane of a team loads as a whole."""
MOST_PARTS = 2048
"""The most partial results of hubs (``kMostChunks`` of ``hubs.cuh``)."""


@dataclass(frozen=True)
class Read:
    """Describes where a row is read: in ``registers``, if a thread holds the elements that it needs, else in memory."""

    registers: bool
    memory: Place


@dataclass(frozen=True, eq=False)
class DeviceStep:
    """Describes a statement at a row, or what happens to a reduced row when its loop has ended.

    Args:
        reads: Place of each row that it reads, by array and path.
        registers: Whether the result goes into registers.
        memory: Place of the result in memory, if it goes there.
        waits: Whether other threads read it there.
    """

    statement: Statement
    reads: Mapping[tuple[str, str], Read]
    registers: bool
    memory: Place | None
    waits: bool


@dataclass(frozen=True, eq=False)
class DeviceLoop:
    """Describes a loop of a nest on a device.

    Args:
        leaf: Whether the teams of a crew share its rows; the whole crew is at each row of others.
        lanes: How the lanes of a team share a row.
        row: Number of the row at a place, if it is needed.
        span: Pointers to its rows, if they belong to an outermost row.
        run: Pointers to the part of the innermost rows that belongs to a row in the middle of three levels.
        first_run: Pointers to the start of the first of these parts.
        stacked: Statements whose targets have registers in this loop.
        results: Reductions that are finished when the loop has ended, and the loop that each runs in.
        syncs: Whether the crew has to wait for its rows.
        batch: The number of rows that a team loads from memory before it computes with them.
        ahead: The arrays and paths whose rows are among these loads: nothing writes to them in the loop.
    """

    space: str
    items: tuple[DeviceStep | DeviceLoop, ...]
    leaf: bool
    lanes: Lanes
    row: Number | None
    span: Pointers | None
    run: Pointers | None
    first_run: Pointers | None
    stacked: tuple[Statement, ...]
    syncs: bool
    results: tuple[tuple[DeviceStep, DeviceLoop], ...] = ()
    batch: int = 1
    ahead: frozenset[tuple[str, str]] = frozenset()

    def inside(self) -> Iterator[DeviceLoop]:
        """Yields the loop and all loops inside it."""
        yield self
        for item in self.items:
            if isinstance(item, DeviceLoop):
                yield from item.inside()

    def everything(self) -> Iterator[DeviceStep]:
        """Yields all steps inside, and the results of the loops inside."""
        for loop in self.inside():
            yield from (item for item in loop.items if isinstance(item, DeviceStep))
            yield from (step for step, _ in loop.results)

    def numbers(self) -> Iterator[Number]:
        """Yields the numbers of rows that it needs, in the order of its code."""
        for item in self.items:
            if isinstance(item, DeviceLoop):
                yield from item.numbers()
            for step in [item] if isinstance(item, DeviceStep) else [result for result, _ in item.results]:
                places = [*([step.memory] if step.memory else []), *(r.memory for r in step.reads.values())]
                yield from (p.row for p in places if p.row is not None)
        if self.row is not None:
            yield self.row


@dataclass(frozen=True, eq=False)
class HubPart:
    """Describes what a block does in one launch at its part of a hub.

    ``items`` are steps, the loop whose rows it shares, and reductions of loops of earlier launches, whose parts it
    combines. In the last launch, the first block alone stores the results of the group.
    """

    items: tuple[DeviceStep | DeviceLoop | tuple[DeviceStep], ...]
    last: bool
    used: frozenset[str]
    """Arrays whose registers it needs."""


@dataclass(frozen=True, eq=False, kw_only=True)
class DevicePlan(OperatorPlan):
    """Describes the plan of a loop nest on a device.

    Args:
        lanes: How the lanes of a team share wide rows.
        crew: Threads that share a group, or more if they share a row.
        held: Elements that a thread has in registers; the room for blocks depends on it.
        sums: Arrays that lanes add up together.
        kept: Arrays of the nest in scratch memory.
        in_runs: Arrays whose elements are read or written several at a time.
        groups: Pointers to the innermost rows of an outermost row.
        parts: Work of blocks at hubs, launch by launch; empty if each group has a single block.
        partial: Rows of hubs that blocks leave in scratch memory: ("part" or "copy", array).
        chunks: For a lone sum into types, the most parts into which all its rows are cut; else None.
    """

    levels: Levels
    arrays: Arrays
    loop: DeviceLoop
    homes: Mapping[str, Home]
    lanes: Lanes
    crew: int
    held: int
    sums: frozenset[str]
    kept: tuple[str, ...]
    in_runs: tuple[str, ...]
    groups: Pointers | None
    parts: tuple[HubPart, ...] = ()
    partial: tuple[tuple[str, str], ...] = ()
    chunks: int | None = None

    def is_local(self, name: str) -> bool:
        """Returns whether only the nest touches an array."""
        return name in self.homes and not self.homes[name].stored

    @property
    def requested(self) -> int:
        """Returns the most bytes of rows that a thread has requested from memory before it waits for them."""
        return max((loop.batch * self._loaded(loop) for loop in self.loop.inside()), default=0) * self.arrays.item

    def _loaded(self, loop: DeviceLoop) -> int:
        """Returns the elements that a lane loads of each row ahead of the arithmetic."""
        widths = [self.arrays.width(name) for name, _ in loop.ahead]
        return sum(loop.lanes.held(width) if width >= WIDE else width for width in widths)

    def held_by(self, name: str) -> Lanes:
        """Returns how lanes hold the rows of an array."""
        return self.lanes if self.arrays.width(name) >= WIDE else Lanes()

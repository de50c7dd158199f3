"""Plans of loop nests in which teams of lanes share rows: a crew of threads has a group, and its teams share the rows.

A row of fewer than `WIDE` elements is computed by every lane of a team alike, and each has a copy. The elements of
other rows are shared by the lanes, each reading its own; what is read otherwise, or in another loop, goes through
memory.
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
"""Elements of a wide row that a thread sums up; two runs at least, so that it has more than one read under way."""
MOST_PARTS = 2048
"""Partial results of hubs that there may be (``kMostChunks`` of ``hubs.cuh``)."""


@dataclass(frozen=True)
class Read:
    """Describes where a row is read: from ``registers``, as far as a thread has what it needs, else in memory."""

    registers: bool
    memory: Place


@dataclass(frozen=True, eq=False)
class DeviceStep:
    """A statement at a row, or what becomes of a reduced row when its loop has ended.

    Args:
        reads: Where each row that it reads is, by array and path.
        registers: Whether the result goes into registers.
        memory: Where it goes in memory, if it does.
        waits: Whether other threads read it there.
    """

    statement: Statement
    reads: Mapping[tuple[str, str], Read]
    registers: bool
    memory: Place | None
    waits: bool


@dataclass(frozen=True, eq=False)
class DeviceLoop:
    """A loop of a nest on a device.

    Args:
        leaf: Whether the teams of a crew share its rows; the whole crew is at each row of others.
        lanes: How the lanes of a team share a row.
        row: What row is at a place, where that is asked for.
        span: How its rows are found, where they are those of an outermost row.
        run: Pointers to the part of the innermost rows that belongs to a row in the middle of three levels.
        first_run: Pointers to where the first of these parts starts.
        stacked: Statements whose targets have registers in this loop.
        results: Reductions that are finished when the loop has ended, and the loop that each runs in.
        syncs: Whether the crew has to wait for its rows.
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

    def inside(self) -> Iterator[DeviceLoop]:
        """The loop and those inside of it."""
        yield self
        for item in self.items:
            if isinstance(item, DeviceLoop):
                yield from item.inside()

    def everything(self) -> Iterator[DeviceStep]:
        """All steps inside, and the results of the loops inside."""
        for loop in self.inside():
            yield from (item for item in loop.items if isinstance(item, DeviceStep))
            yield from (step for step, _ in loop.results)

    def numbers(self) -> Iterator[Number]:
        """Returns the numbers of rows that it asks for, in the order of its code."""
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

    ``items`` are steps, the loop whose rows it shares, and reductions of loops of earlier launches, which it puts
    together. The last launch stores what there is for the group, by the first block alone.
    """

    items: tuple[DeviceStep | DeviceLoop | tuple[DeviceStep], ...]
    last: bool
    used: frozenset[str]
    """Arrays whose registers it needs."""


@dataclass(frozen=True, eq=False, kw_only=True)
class DevicePlan(OperatorPlan):
    """The plan of a loop nest on a device.

    Args:
        lanes: How the lanes of a team share wide rows.
        crew: Threads that share a group, or more if they share a row.
        held: Elements that a thread has in registers, by which blocks get room.
        sums: Arrays that lanes add up together.
        kept: Arrays of the nest in scratch memory.
        in_runs: Arrays whose elements are read or written several at a time.
        groups: How the innermost rows of an outermost one are found.
        parts: What blocks do at hubs, launch by launch; none where a block has a group alone.
        partial: What blocks leave of hubs in scratch memory: ("part" or "copy", array).
        chunks: For a lone sum into types, the parts at most into which all its rows are cut; else None.
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
        """Returns whether an array is of the nest alone."""
        return name in self.homes and not self.homes[name].stored

    def held_by(self, name: str) -> Lanes:
        """Returns how lanes hold the rows of an array."""
        return self.lanes if self.arrays.width(name) >= WIDE else Lanes()

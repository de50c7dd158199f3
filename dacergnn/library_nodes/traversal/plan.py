"""Describes plans of loop nests whose threads compute whole rows: loops, places, encodings, scratch, streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dacergnn.library_nodes.form import Statement
from dacergnn.library_nodes.plan import Arrays, OperatorPlan
from dacergnn.library_nodes.traversal.formats import Format
from dacergnn.library_nodes.traversal.nest import Levels
from dacergnn.library_nodes.traversal.places import Number, Place, Pointers
from dacergnn.library_nodes.traversal.storage import Home

RUN_TIME = ("tile_rows", "hub_rows", "chunks")
"""Properties of a schedule that are arguments of the code: every call of a build may have other values."""
PREFETCH_DISTANCE = 16


@dataclass(frozen=True)
class Body:
    """Holds statements under a mapping, the arrays that they touch, and the names of those that only they touch."""

    mapping: str
    statements: tuple[Statement, ...]
    arrays: Arrays
    local_arrays: tuple[str, ...] = ()


@dataclass(frozen=True)
class Schedule:
    """Describes how threads walk the groups of a nest, as far as its code depends on that (`select_schedule`)."""

    by_edges: bool = False
    split_hubs: bool = False
    adjacency: str = "csr"


USUAL = Schedule()


@dataclass(frozen=True, eq=False)
class Step:
    """Describes a statement at a row, with the place of each row that it reads, by array and path, and of its result.

    If it ``streams``, its row is written as a whole, past the caches if the array is large.
    """

    statement: Statement
    reads: Mapping[tuple[str, str], Place]
    goals: tuple[Place, ...]
    streams: bool = False


@dataclass(frozen=True)
class Prefetch:
    """Describes a row that a later round of a loop will read or write."""

    array: str
    row: Number
    writes: bool = False


@dataclass(frozen=True, eq=False)
class NestLoop:
    """Describes a loop of a nest, with all that its rows need.

    Args:
        variable: Its counter: "row_E" for rows, or "at_E" for places of rows.
        row: Number of the row at a place, if it is needed.
        span: Pointers to its rows, if it runs over those of one outer row or of a tile.
        of_tile: Whether it runs over all rows of a tile at once.
        group: For sums over all rows of a tile, the outermost row that a row belongs to.
        vectorizes: Whether it computes a few elements for each of many rows at a time.
        stacked: Statements whose targets have a row on the stack of this loop.
        run: Pointers to the part of the innermost rows that belongs to a row in the middle of three levels.
        first_run: Pointers to the start of the first of these parts, which is read before the loop.
        prefetches: Rows that a later round will touch.
        results: Reductions that are finished when the loop has ended, with their goals.
    """

    space: str
    items: tuple[Step | NestLoop, ...]
    variable: str
    row: Number | None
    span: Pointers | None
    of_tile: bool
    group: Number | None
    vectorizes: bool
    stacked: tuple[Statement, ...]
    run: Pointers | None
    first_run: Pointers | None
    prefetches: tuple[Prefetch, ...]
    results: tuple[Step, ...] = ()

    def steps(self) -> Iterator[Step]:
        """Yields all steps inside, in order."""
        for item in self.items:
            yield from [item] if isinstance(item, Step) else item.steps()

    def everything(self) -> Iterator[Step]:
        """Yields all steps inside, and the results of the loops inside."""
        for loop in self.inside():
            yield from (item for item in loop.items if isinstance(item, Step))
            yield from loop.results

    def inside(self) -> Iterator[NestLoop]:
        """Yields the loop and all loops inside it."""
        yield self
        for item in self.items:
            if isinstance(item, NestLoop):
                yield from item.inside()

    def numbers(self) -> Iterator[Number]:
        """Yields the numbers of rows that it needs, in the order of its code."""
        yield from (fetch.row for fetch in self.prefetches)
        if self.group is not None:
            yield self.group
        for item in self.items:
            if isinstance(item, NestLoop):
                yield from item.numbers()
            for step in [item] if isinstance(item, Step) else item.results:
                yield from (p.row for p in (*step.goals, *step.reads.values()) if p.row is not None)
        if self.row is not None:
            yield self.row

    @property
    def is_leaf(self) -> bool:
        return not any(isinstance(item, NestLoop) for item in self.items)


@dataclass(frozen=True, eq=False, kw_only=True)
class NestPlan(OperatorPlan):
    """Describes the plan of a loop nest.

    Args:
        levels: Row spaces of the nest, from the outside in.
        loops: Loops over a tile, one after the other; with a single level, the only loop.
        homes: Storage of each array that it writes.
        owners: Middle row spaces whose row a tile looks up for each innermost row, and the number of that row.
        streamed: Arrays that are written past the caches if they are large.
        work: Elements that a row touches, by which threads share out rows.
        pointers: Pointers from the outermost rows to the rows of each inner level.
        groups_of_edges: Encoding with the group of each edge, in formats whose drivers need it.
        hubs: The plan for groups of very many rows, which all threads share.
        columns: In compressed columns, the levels of the first loop, which runs over all edges by their other end.
        target: In compressed columns, the group of an edge.
    """

    levels: Levels
    arrays: Arrays
    form: Format
    adjacency: str
    loops: tuple[NestLoop, ...]
    homes: Mapping[str, Home]
    owners: tuple[tuple[str, Number], ...]
    streamed: frozenset[str]
    work: int
    pointers: Mapping[str, Pointers]
    groups_of_edges: str | None = None
    hubs: NestPlan | None = None
    columns: Levels | None = None
    target: Number | None = None

    def kept_width(self, space: str) -> int:
        """Returns the number of elements of a row of a space in the tile's scratch."""
        return sum(h.width for h in self.homes.values() if h.offset is not None and h.space == space)

    @property
    def kept_elements(self) -> int:
        """Returns the number of elements of an innermost row in the tile's scratch."""
        return self.kept_width(self.levels.spaces[-1])


@dataclass(frozen=True, eq=False, kw_only=True)
class SharedSumPlan(OperatorPlan):
    """Describes the plan of a sum over types: few groups, whose rows several threads share."""

    statement: Statement
    reads: Mapping[tuple[str, str], Place]
    arrays: Arrays
    work: int

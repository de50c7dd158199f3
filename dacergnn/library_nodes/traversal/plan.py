"""Plans of loop nests whose threads compute whole rows: loops, places of values, encodings, scratch, what streams."""

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
"""Choices of a schedule that are arguments of the code: every call of a build may have others."""
PREFETCH_DISTANCE = 16


@dataclass(frozen=True)
class Body:
    """Statements under a mapping, the arrays that they touch, and those of them that nothing else does."""

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
    """A statement at a row: where each row that it reads is, by array and path, and where its result goes.

    A row that ``streams`` is written as a whole, past the caches if the array is large.
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
    """A loop of a nest, with all that its rows need.

    Args:
        variable: What it counts: "row_E", or "at_E", the places of rows.
        row: What row is at a place, where that is asked for.
        span: How its rows are found, where it runs over those of one outer row or of a tile.
        of_tile: Whether it runs over all rows of a tile at once.
        group: For sums over all rows of a tile, the outermost row that a row belongs to.
        vectorizes: Whether it computes a few elements for each of many rows at a time.
        stacked: Statements whose targets have a row on the stack of this loop.
        run: Pointers to the part of the innermost rows that belongs to a row in the middle of three levels.
        first_run: Pointers to where the first of these parts starts, before the loop.
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
        """All steps inside, in order."""
        for item in self.items:
            yield from [item] if isinstance(item, Step) else item.steps()

    def everything(self) -> Iterator[Step]:
        """All steps inside, and the results of the loops inside."""
        for loop in self.inside():
            yield from (item for item in loop.items if isinstance(item, Step))
            yield from loop.results

    def inside(self) -> Iterator[NestLoop]:
        """The loop and those inside of it."""
        yield self
        for item in self.items:
            if isinstance(item, NestLoop):
                yield from item.inside()

    def numbers(self) -> Iterator[Number]:
        """Returns the numbers of rows that it asks for, in the order of its code."""
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
    """The plan of a loop nest.

    Args:
        levels: Row spaces of the nest, from the outside in.
        loops: Loops over a tile, one after the other; with a single level, the only loop.
        homes: Storage of each array that it writes.
        owners: Row spaces of which a tile looks up the row of each innermost row, and how it is found.
        streamed: Arrays of which large ones pass by the caches.
        work: Elements that a row touches, by which threads share out rows.
        pointers: How rows of inner levels are found from the outermost ones.
        groups_of_edges: Encoding with the group of each edge, in formats whose drivers ask for it.
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
        """Elements of a row of a space in the tile's scratch."""
        return sum(h.width for h in self.homes.values() if h.offset is not None and h.space == space)

    @property
    def kept_elements(self) -> int:
        """Elements of an innermost row in the tile's scratch."""
        return self.kept_width(self.levels.spaces[-1])


@dataclass(frozen=True, eq=False, kw_only=True)
class SharedSumPlan(OperatorPlan):
    """The plan of a sum over types: few groups, whose rows several threads share."""

    statement: Statement
    reads: Mapping[tuple[str, str], Place]
    arrays: Arrays
    work: int

"""Plans of loop nests whose threads compute whole rows: loops, places of values, encodings, scratch, what streams."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from dacergnn.graph.spaces import MAPS, encoding_name
from dacergnn.library_nodes.access import (
    index_name,
    is_few,
    ordered_index_name,
    shares_groups,
    statement_encodings,
)
from dacergnn.library_nodes.form import Ref, Statement, size
from dacergnn.library_nodes.plan import Arrays, OperatorPlan, Rows, in_order
from dacergnn.library_nodes.shapes import row_elements
from dacergnn.library_nodes.traversal.formats import FORMATS, OTHER_END, Format
from dacergnn.library_nodes.traversal.in_place import in_place
from dacergnn.library_nodes.traversal.nest import Levels, Loop, loops, reached, simplest
from dacergnn.library_nodes.traversal.places import Finder, Number, Place, Pointers
from dacergnn.library_nodes.traversal.storage import WIDE, Home, homes_of, is_narrow, narrow_maps

RUN_TIME = ("tile_rows", "hub_rows", "chunks")
"""Choices of a schedule that are arguments of the code: every call of a build may have others."""
PREFETCH_DISTANCE = 16
LEAST_PREFETCHED = 4
"""Elements from which on a row that lies apart from its neighbors is worth a prefetch."""


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


@lru_cache(maxsize=4096)
def plan_nest(body: Body, schedule: Schedule = USUAL) -> NestPlan | SharedSumPlan:
    """The plan of a body under a schedule, for threads that compute whole rows."""
    if len(body.statements) == 1 and shares_groups(body.statements[0]):
        return _shared_sum(body)
    if schedule.adjacency == "csc":
        return _by_columns(body)
    form = FORMATS[schedule.adjacency]
    hubs = None
    if form.shares_rows or (schedule.adjacency == "csr" and schedule.split_hubs):
        hubs = _nest(body, schedule.adjacency)
    return _nest(body, schedule.adjacency, hubs, by_edges=schedule.by_edges and form.flattens)


def _shared_sum(body: Body) -> SharedSumPlan:
    (statement,) = body.statements
    reads = {
        (ref.name, ref.path): Place("memory", ref.name, _indexed(statement.space, ref.path)) for ref in statement.reads
    }
    return SharedSumPlan(
        encodings=tuple(statement_encodings(statement)),
        statement=statement,
        reads=reads,
        arrays=body.arrays,
        work=row_elements(body.arrays.shapes, [statement.expr, statement.target]),
    )


def _indexed(space: str, path: str) -> Number:
    name = index_name(space, path)
    return Number("i" if name or path == "" else "0", name)


# The structure of a nest ---------------------------------------------------------------------------------------


def _nest(body: Body, adjacency: str, hubs: NestPlan | None = None, *, by_edges: bool = False) -> NestPlan:
    form = FORMATS[adjacency]
    body = replace(body, statements=tuple(simplest(body.mapping, body.statements)))
    levels = Levels.of(body.mapping, body.statements)
    statements, arrays, terms = _divided(body, levels, form, by_edges)
    flat = narrow_maps(levels, statements, arrays.shapes) if form.flattens else []
    summed = _sums(levels, statements, arrays, flat) if by_edges else ()
    found = loops(levels, statements, flat, summed)
    homes = homes_of(found, statements, arrays.shapes, [*body.local_arrays, *terms])
    return _planned(body, adjacency, levels, statements, arrays, found, homes, hubs)


def _divided(
    body: Body, levels: Levels, form: Format, by_edges: bool
) -> tuple[tuple[Statement, ...], Arrays, list[str]]:
    """The statements, and the arrays with those that stand for reductions that are divided.

    A reduction of computed narrow values becomes a map, which vectorizes, and a reduction of its result.
    """
    statements, arrays = body.statements, body.arrays
    if not (by_edges or (form.flattens and len(statements) > 1)):
        return statements, arrays, []
    maps = [replace(s, target=Ref(s.target.name), op="=") if s.target.path else s for s in statements]
    narrow = narrow_maps(levels, maps, arrays.shapes)
    parts: list[Statement] = []
    terms: dict[str, Rows] = {}
    for statement in statements:
        name, term = statement.target.name, f"{statement.target.name}_term"
        if term not in arrays and statement.target.path and name in narrow and not isinstance(statement.expr, Ref):
            terms[term] = arrays[name]  # for its row shape
            parts += [
                Statement(statement.space, Ref(term), "=", statement.expr),
                replace(statement, expr=Ref(term)),
            ]
        else:
            parts.append(statement)
    return tuple(parts), arrays.with_rows(terms), [*terms]


def _sums(levels: Levels, statements: Sequence[Statement], arrays: Arrays, flat: Collection[str]) -> list[str]:
    """Targets of the reductions of values that are there for all rows of a tile into its outermost rows."""
    written = {s.target.name for s in statements}
    return [
        s.target.name
        for s in statements
        if s.space == levels.spaces[-1]
        and levels.up(s.space, levels.spaces[0]) == s.target.path != ""
        and isinstance(s.expr, Ref)
        and (s.expr.name in flat or (s.expr.path == "" and s.expr.name not in written))
        and size(arrays.shapes(s.expr)) == size(arrays.shapes(s.target))  # no broadcast
        and is_narrow(s, arrays.shapes)
    ]


def _by_columns(body: Body) -> NestPlan:
    """One loop over all edges in compressed columns, then one over the rows of the targets.

    Each thread passes over all edges and takes those that lead to its range of targets: nothing is written by two
    threads, and every sum has the order of the columns.
    """
    statements = simplest(body.mapping, body.statements)
    levels = Levels.of(body.mapping, statements)
    targets, inner = levels.spaces
    path = levels.up(inner, targets) or ""
    columns = Levels((MAPS[inner, OTHER_END[path]], inner))
    edges = Loop(inner, tuple(s for s in statements if s.space == inner))
    rows = Loop(targets, tuple(s for s in statements if s.space != inner))
    homes: dict[str, Home] = {}
    for statement in statements:
        name, summed = statement.target.name, statement.target.path != ""
        loop = rows if summed or statement.space == targets else edges
        width = size(body.arrays.shapes(statement.target))
        homes[name] = Home(loop.space, width, loop, None, name not in body.local_arrays, summed)
    found = [Loop(columns.spaces[0], (edges,)), *([rows] if rows.items else [])]
    return _planned(body, "csc", levels, statements, body.arrays, found, homes, None, columns)


# What its loops do ---------------------------------------------------------------------------------------------


def _planned(
    body: Body,
    adjacency: str,
    levels: Levels,
    statements: Sequence[Statement],
    arrays: Arrays,
    found: Sequence[Loop],
    homes: Mapping[str, Home],
    hubs: NestPlan | None,
    columns: Levels | None = None,
) -> NestPlan:
    form = FORMATS[adjacency]
    planner = _Planner(Finder(levels, homes, form), statements, arrays, columns)
    planned = tuple(
        replace(planner, find=replace(planner.find, levels=columns)).outermost(loop)
        if columns is not None and number == 0
        else planner.outermost(loop)
        for number, loop in enumerate(found)
    )
    outer, inner = levels.spaces[0], levels.spaces[-1]
    groups = None
    pointers: dict[str, Pointers] = {}
    if len(levels.spaces) > 1 and columns is None:
        pointers = {space: planner.find.pointers(outer, space) for space in levels.spaces[1:]}
        path = levels.up(inner, outer) or ""
        if form.pointers == "starts":
            groups = ordered_index_name(inner, path, path)
        elif form.splits:
            groups = encoding_name("hyb", inner, path, path)
    owners = tuple(
        (space, planner.find.number_at(inner, f"base_{inner} + p", levels.up(inner, space) or ""))
        for space in dict.fromkeys(n.owner for loop in planned for n in loop.numbers() if n.owner)
    )
    streamed = frozenset(s.statement.target.name for loop in planned for s in loop.everything() if s.streams)
    names = [n.encoding for loop in planned for n in loop.numbers()]
    spans = [p for top in planned for loop in top.inside() for p in (loop.span, loop.run, loop.first_run) if p]
    names += [p.encoding for p in spans]
    names += [number.encoding for _, number in owners]
    names += [pointers[space].encoding for space in _spans(levels, homes, owners)]
    names += [pointers[inner].encoding if pointers else None, groups]
    targets = None
    if columns is not None:
        targets = replace(planner.find, levels=columns).number_at(inner, f"at_{inner}", levels.up(inner, outer) or "")
        names.append(targets.encoding)
    encodings = dict.fromkeys(n for n in names if n is not None)
    pairs = in_place(arrays, levels, statements, found, homes) if adjacency == "csr" else frozenset[tuple[str, str]]()
    if hubs is not None:
        encodings |= dict.fromkeys(hubs.encodings)
        streamed |= hubs.streamed
        pairs &= hubs.in_place
    questions = form.questions if len(levels.spaces) > 1 else ("chunks",)
    return NestPlan(
        encodings=in_order(encodings),
        in_place=pairs,
        questions=(*questions, "hub_rows") if hubs is not None and not form.shares_rows else questions,
        levels=levels,
        arrays=arrays,
        form=form,
        adjacency=adjacency,
        loops=planned,
        homes=homes,
        owners=owners,
        streamed=streamed,
        work=row_elements(arrays.shapes, [e for s in statements for e in (s.expr, s.target)]),
        pointers=pointers,
        groups_of_edges=groups,
        hubs=hubs,
        columns=columns,
        target=targets,
    )


def _spans(levels: Levels, homes: Mapping[str, Home], owners: Sequence[tuple[str, Number]]) -> list[str]:
    """Inner row spaces of which a tile has to know its first row and their number."""
    kept = {home.space for home in homes.values() if home.offset is not None}
    return [space for space in levels.spaces[1:] if space in kept or owners]


@dataclass(frozen=True)
class _Planner:
    """Turns the loops of a nest into those of its plan."""

    find: Finder
    statements: Sequence[Statement]
    arrays: Arrays
    columns: Levels | None

    @property
    def top(self) -> str:
        return self.find.levels.spaces[0]

    @property
    def inner(self) -> str:
        return self.find.levels.spaces[-1]

    def outermost(self, loop: Loop) -> NestLoop:
        """A loop over a tile: over its groups, or over all their rows."""
        several = len(self.find.levels.spaces) > 1
        of_tile = loop.flat and several
        span = self.find.pointers(self.top, loop.space) if of_tile else None
        group = self.find.group(loop.space) if of_tile and loop.statements()[0].target.path else None
        return self._loop(loop, {}, f"{'at' if of_tile else 'row'}_{loop.space}", span, of_tile=of_tile, group=group)

    def _loop(
        self,
        loop: Loop,
        around: Mapping[str, Loop],
        variable: str,
        span: Pointers | None,
        first_run: Pointers | None = None,
        *,
        of_tile: bool = False,
        group: Number | None = None,
    ) -> NestLoop:
        space = loop.space
        if group is None:  # sums over all rows of a tile have no row of their own loop on the stack
            around = {**around, space: loop}
        items = tuple(
            self._step(item, around, group) if isinstance(item, Statement) else self._inside(item, loop, around)
            for item in loop.items
        )
        vectorizes = loop.flat and group is None and all(is_narrow(s, self.arrays.shapes) for s in loop.statements())
        middle = len(self.find.levels.spaces) == 3 and space == self.find.levels.spaces[1]
        run = middle and any(s.space == self.inner for s in loop.statements())
        asks = not (vectorizes or group is not None or self.columns is not None)
        planned = NestLoop(
            space=space,
            items=items,
            variable=variable,
            row=None,
            span=span,
            of_tile=of_tile,
            group=group,
            vectorizes=vectorizes,
            stacked=() if group is not None else self._stacked(loop),
            run=self.find.pointers(space, self.inner) if run else None,
            first_run=first_run,
            prefetches=self._prefetches(loop, variable) if asks else (),
        )
        return replace(planned, row=self._row(planned))

    def _row(self, loop: NestLoop) -> Number | None:
        """Returns what row is at a place of a loop, where anything inside asks for that."""
        if loop.variable != f"at_{loop.space}":
            return None
        name = f"row_{loop.space}"
        asked = loop.run is not None or any(n.variable == name for n in loop.numbers())
        return self.find.number_at(loop.space, loop.variable) if asked else None

    def _inside(self, loop: Loop, outer: Loop, around: Mapping[str, Loop]) -> NestLoop:
        """A loop inside of another, with the results of its reductions."""
        span = first_run = None
        if outer.space == self.top:
            span = self.find.pointers(self.top, loop.space)
            if loop.space != self.inner and any(s.space == self.inner for s in loop.statements()):
                first_run = self.find.pointers(self.top, self.inner)
        planned = self._loop(loop, around, f"at_{loop.space}", span, first_run)
        results = tuple(
            self._result(s, around)
            for s in loop.statements()
            if s.target.path and reached(s.space, s.target.path) == outer.space
        )
        return replace(planned, results=results)

    def _stacked(self, loop: Loop) -> tuple[Statement, ...]:
        """Statements whose targets have a row on the stack of a loop."""
        inside = loop.statements()
        found: list[Statement] = []
        for statement in self.statements:
            home = self.find.homes[statement.target.name]
            if home.space != loop.space or statement not in inside:
                continue
            if home.reduced or (home.loop is loop and not self._direct(statement)):
                found.append(statement)
        return tuple(found)

    def _direct(self, statement: Statement) -> bool:
        """Returns whether an own row goes to memory only, because nothing here reads it."""
        name = statement.target.name
        return self.find.homes[name].stored and not any(r.name == name for s in self.statements for r in s.reads)

    # Statements

    def _step(self, statement: Statement, around: Mapping[str, Loop], group: Number | None) -> Step:
        reads = {(r.name, r.path): self._source(statement, r, around) for r in statement.reads}
        if group is not None:
            return Step(statement, reads, (self._sum(statement),))
        name = statement.target.name
        home = self.find.homes[name]
        memory = Place("memory", name, Number(f"row_{statement.space}"))
        if statement.target.path:
            return Step(statement, reads, (Place("stack", name),))
        goals: list[Place] = []
        if home.loop is not None and not self._direct(statement):
            goals.append(Place("stack", name))
        elif home.offset is not None:
            goals.append(self.find.kept(name, statement.space, around))
        streams = home.stored and not goals and home.width >= WIDE
        return Step(statement, reads, (*goals, *([memory] if home.stored else [])), streams)

    def _sum(self, statement: Statement) -> Place:
        """Where the sums of a tile are: in scratch, or in memory."""
        name = statement.target.name
        kept = self.find.homes[name].offset is not None
        return Place("scratch" if kept else "memory", name, Number("first"), "first" if kept else "")

    def _result(self, statement: Statement, around: Mapping[str, Loop]) -> Step:
        """Returns what becomes of a reduced row when its loop has ended."""
        name = statement.target.name
        home = self.find.homes[name]
        goals: list[Place] = []
        if home.offset is not None:
            goals.append(self.find.kept(name, home.space, around))
        if home.stored:
            goals.append(Place("memory", name, Number(f"row_{home.space}")))
        streams = home.stored and home.loop is not None and home.width >= WIDE
        return Step(statement, {}, tuple(goals), streams)

    def _source(self, statement: Statement, ref: Ref, around: Mapping[str, Loop]) -> Place:
        """Where the row is that a reference reads."""
        home = self.find.homes.get(ref.name)
        if home is not None and home.space in around and (home.loop is not None or self._reducing(ref.name, around)):
            return Place("stack", ref.name)
        if home is not None and home.offset is not None:
            return self.find.kept(ref.name, statement.space, around)
        return Place("memory", ref.name, self.find.number(statement, ref, around))

    def _reducing(self, name: str, around: Mapping[str, Loop]) -> bool:
        """Returns whether a loop around is the one that reduces into an array."""
        home = self.find.homes[name]
        return home.reduced and any(s.target.name == name for s in around[home.space].statements())

    def _prefetches(self, loop: Loop, variable: str) -> tuple[Prefetch, ...]:
        """The wide rows that a later row of the loop gathers, and those that it writes apart from each other."""
        space, find = loop.space, self.find
        at, places = f"{variable} + {PREFETCH_DISTANCE}", variable == f"at_{loop.space}"
        order = find.levels.up(space, self.top) or "one"
        own_order = places and find.list_of(space, order, "") is not None
        own = [s for s in loop.statements() if s.space == space]
        found: dict[Prefetch, None] = {}
        for statement in own:
            for ref in dict.fromkeys(statement.reads):
                inside = ref.name in find.homes or find.enclosing(statement, ref) is not None
                narrow = self.arrays.width(ref.name) < LEAST_PREFETCHED
                if not (inside or is_few(ref.path) or narrow or (ref.path == "" and not own_order)):
                    found[Prefetch(ref.name, find.number_at(space, at, ref.path))] = None
        for statement in own:
            name = statement.target.name
            if not statement.target.path and find.homes[name].stored and own_order:
                found[Prefetch(name, find.number_at(space, at), writes=True)] = None
        return tuple(found)

"""Makes the plans of loop nests whose threads compute whole rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from dacergnn.graph.spaces import encoding_name
from dacergnn.library_nodes.access import (
    index_name,
    is_few,
    ordered_index_name,
    shares_groups,
    statement_encodings,
)
from dacergnn.library_nodes.form import Ref, Statement
from dacergnn.library_nodes.plan import in_order
from dacergnn.library_nodes.shapes import row_elements
from dacergnn.library_nodes.traversal.formats import FORMATS, Format
from dacergnn.library_nodes.traversal.in_place import in_place
from dacergnn.library_nodes.traversal.nest import Loop, reached
from dacergnn.library_nodes.traversal.places import Finder, Number, Place, Pointers
from dacergnn.library_nodes.traversal.plan import (
    PREFETCH_DISTANCE,
    USUAL,
    Body,
    NestLoop,
    NestPlan,
    Prefetch,
    Schedule,
    SharedSumPlan,
    Step,
)
from dacergnn.library_nodes.traversal.storage import WIDE, is_narrow
from dacergnn.library_nodes.traversal.structure import Structure, by_columns, structure_of

LEAST_PREFETCHED = 4
"""The fewest elements of a row that is worth a prefetch, if it lies apart from its neighbors."""


@lru_cache(maxsize=512)
def plan_nest(body: Body, schedule: Schedule = USUAL) -> NestPlan | SharedSumPlan:
    """Returns the plan of a body under a schedule, for threads that compute whole rows."""
    if len(body.statements) == 1 and shares_groups(body.statements[0]):
        return _shared_sum(body)
    if schedule.adjacency == "csc":
        return _planned(by_columns(body))
    form = FORMATS[schedule.adjacency]
    hubs = None
    if form.shares_rows or (schedule.adjacency == "csr" and schedule.split_hubs):
        hubs = _planned(structure_of(body, schedule.adjacency))
    return _planned(structure_of(body, schedule.adjacency, by_edges=schedule.by_edges and form.flattens), hubs)


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


def _planned(nest: Structure, hubs: NestPlan | None = None) -> NestPlan:
    levels, form = nest.levels, FORMATS[nest.adjacency]
    planner = _Planner(nest, Finder(levels, nest.homes, form))
    outer, inner = levels.spaces[0], levels.spaces[-1]
    first = planner
    pointers: dict[str, Pointers] = {}
    if nest.columns is not None:
        first = replace(planner, find=replace(planner.find, levels=nest.columns))
    else:
        pointers = {space: planner.find.pointers(outer, space) for space in levels.spaces[1:]}
    planned = (first.outermost(nest.loops[0]), *(planner.outermost(loop) for loop in nest.loops[1:]))
    path = levels.up(inner, outer) or ""
    target = first.find.number_at(inner, f"at_{inner}", path) if nest.columns is not None else None
    groups = _groups_of_edges(form, inner, path) if pointers else None
    owners = tuple(
        (space, planner.find.number_at(inner, f"base_{inner} + p", levels.up(inner, space) or ""))
        for space in dict.fromkeys(n.owner for loop in planned for n in loop.numbers() if n.owner)
    )
    numbers = [*(n for loop in planned for n in loop.numbers()), *(number for _, number in owners)]
    numbers += [target] if target is not None else []
    spans = [p for top in planned for loop in top.inside() for p in (loop.span, loop.run, loop.first_run) if p]
    spans += [pointers[space] for space in _spans(nest, owners)] if pointers else []
    names = [*(n.encoding for n in numbers), *(p.encoding for p in spans), groups]
    encodings = dict.fromkeys(name for name in names if name is not None)
    streamed = frozenset(s.statement.target.name for loop in planned for s in loop.everything() if s.streams)
    pairs = frozenset[tuple[str, str]]()
    if nest.adjacency == "csr":
        pairs = in_place(nest.arrays, levels, nest.statements, nest.loops, nest.homes)
    questions = form.questions if len(levels.spaces) > 1 else ("chunks",)
    if hubs is not None:
        encodings |= dict.fromkeys(hubs.encodings)
        pairs &= hubs.in_place
        questions = questions if form.shares_rows else (*questions, "hub_rows")
    return NestPlan(
        encodings=in_order(encodings),
        in_place=pairs,
        questions=questions,
        levels=levels,
        arrays=nest.arrays,
        form=form,
        adjacency=nest.adjacency,
        loops=planned,
        homes=nest.homes,
        owners=owners,
        streamed=streamed,
        work=row_elements(nest.arrays.shapes, [e for s in nest.statements for e in (s.expr, s.target)]),
        pointers=pointers,
        groups_of_edges=groups,
        hubs=hubs,
        columns=nest.columns,
        target=target,
    )


def _groups_of_edges(form: Format, inner: str, path: str) -> str | None:
    """Returns the encoding with the group of each edge, for drivers that need it."""
    if form.pointers == "starts":
        return ordered_index_name(inner, path, path)
    return encoding_name("hyb", inner, path, path) if form.splits else None


def _spans(nest: Structure, owners: Sequence[tuple[str, Number]]) -> list[str]:
    """Returns the inner row spaces for which the driver, or a tile, needs pointers from the outermost rows."""
    kept = {home.space for home in nest.homes.values() if home.offset is not None}
    *between, inner = nest.levels.spaces[1:]
    return [*(space for space in between if space in kept or owners), inner]


@dataclass(frozen=True)
class _Planner:
    """Turns the loops of a nest into those of its plan."""

    nest: Structure
    find: Finder

    @property
    def top(self) -> str:
        return self.find.levels.spaces[0]

    @property
    def inner(self) -> str:
        return self.find.levels.spaces[-1]

    def outermost(self, loop: Loop) -> NestLoop:
        """Returns the plan of a loop over a tile: over its groups, or over all their rows."""
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
        if group is None:  # sums over all rows of a tile have no row on the stack of their loop
            around = {**around, space: loop}
        items = tuple(
            self._step(item, around, group) if isinstance(item, Statement) else self._inside(item, loop, around)
            for item in loop.items
        )
        vectorizes = (
            loop.flat and group is None and all(is_narrow(s, self.nest.arrays.shapes) for s in loop.statements())
        )
        middle = len(self.find.levels.spaces) == 3 and space == self.find.levels.spaces[1]
        run = middle and any(s.space == self.inner for s in loop.statements())
        asks = not (vectorizes or group is not None or self.nest.columns is not None)
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
        """Returns the number of the row at a place of a loop, if anything inside needs it."""
        if loop.variable != f"at_{loop.space}":
            return None
        name = f"row_{loop.space}"
        asked = loop.run is not None or any(n.variable == name for n in loop.numbers())
        return self.find.number_at(loop.space, loop.variable) if asked else None

    def _inside(self, loop: Loop, outer: Loop, around: Mapping[str, Loop]) -> NestLoop:
        """Returns the plan of a loop inside another one, with the results of its reductions."""
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
        """Returns the statements whose targets have a row on the stack of a loop."""
        inside = loop.statements()
        stacked: list[Statement] = []
        for statement in self.nest.statements:
            home = self.find.homes[statement.target.name]
            if home.space != loop.space or statement not in inside:
                continue
            if home.reduced or (home.loop is loop and not self._direct(statement)):
                stacked.append(statement)
        return tuple(stacked)

    def _direct(self, statement: Statement) -> bool:
        """Returns whether a row goes to memory only, because no statement of the nest reads it."""
        name = statement.target.name
        return self.find.homes[name].stored and not any(r.name == name for s in self.nest.statements for r in s.reads)

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
        """Returns the place of the sums of a tile: in scratch, or in memory."""
        name = statement.target.name
        kept = self.find.homes[name].offset is not None
        return Place("scratch" if kept else "memory", name, Number("first"), "first" if kept else "")

    def _result(self, statement: Statement, around: Mapping[str, Loop]) -> Step:
        """Returns the step that stores a reduced row when its loop has ended."""
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
        """Returns the place of the row that a reference reads."""
        home = self.find.homes.get(ref.name)
        if home is not None and home.space in around and (home.loop is not None or self._reducing(ref.name, around)):
            return Place("stack", ref.name)
        if home is not None and home.offset is not None:
            return self.find.kept(ref.name, statement.space, around)
        return Place("memory", ref.name, self.find.number(statement, ref, around))

    def _reducing(self, name: str, around: Mapping[str, Loop]) -> bool:
        """Returns whether one of the loops around reduces into an array."""
        home = self.find.homes[name]
        return home.reduced and any(s.target.name == name for s in around[home.space].statements())

    def _prefetches(self, loop: Loop, variable: str) -> tuple[Prefetch, ...]:
        """Returns prefetches of wide rows that a later round of the loop gathers, or writes apart from each other."""
        space, find = loop.space, self.find
        at, places = f"{variable} + {PREFETCH_DISTANCE}", variable == f"at_{loop.space}"
        order = find.levels.up(space, self.top) or "one"
        own_order = places and find.list_of(space, order, "") is not None
        own = [s for s in loop.statements() if s.space == space]
        prefetches: dict[Prefetch, None] = {}
        for statement in own:
            for ref in dict.fromkeys(statement.reads):
                inside = ref.name in find.homes or find.enclosing(statement, ref) is not None
                narrow = self.nest.arrays.width(ref.name) < LEAST_PREFETCHED
                if not (inside or is_few(ref.path) or narrow or (ref.path == "" and not own_order)):
                    prefetches[Prefetch(ref.name, find.number_at(space, at, ref.path))] = None
        for statement in own:
            name = statement.target.name
            if not statement.target.path and find.homes[name].stored and own_order:
                prefetches[Prefetch(name, find.number_at(space, at), writes=True)] = None
        return tuple(prefetches)

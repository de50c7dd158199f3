"""Plans of loop nests in which teams of lanes share rows: a crew of threads has a group, and its teams share the rows.

A row of fewer than `WIDE` elements is computed by every lane of a team alike, and each has a copy. The elements of
other rows are shared by the lanes, each reading its own; what is read otherwise, or in another loop, goes through
memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import count

from dacergnn.library_nodes.access import is_few
from dacergnn.library_nodes.form import Op, Ref, Shape, Statement, size
from dacergnn.library_nodes.plan import ALIGNMENT, Arrays, OperatorPlan, Rows, in_order
from dacergnn.library_nodes.shapes import shape_of
from dacergnn.library_nodes.traversal.formats import FORMATS
from dacergnn.library_nodes.traversal.lanes import Lanes, own_elements, sums_first
from dacergnn.library_nodes.traversal.nest import Levels, Loop, apart, loops, reached, simplest
from dacergnn.library_nodes.traversal.places import Finder, Number, Place, Pointers
from dacergnn.library_nodes.traversal.plan import USUAL, Body, Schedule
from dacergnn.library_nodes.traversal.storage import WIDE, Home, homes_of

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
    """What a block does in one launch at its part of a hub.

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


@lru_cache(maxsize=4096)
def plan_device_nest(body: Body, schedule: Schedule = USUAL) -> DevicePlan:
    """The plan of a body under a schedule, for teams of lanes."""
    statements = tuple(simplest(body.mapping, body.statements))
    lone_sum = len(statements) == 1 and is_few(statements[0].target.path)
    levels = Levels.of(body.mapping, statements)
    inner = levels.spaces[-1]
    if all(s.space == inner and not s.target.path for s in statements):
        levels = Levels((inner,))  # maps of rows that need not know of each other
    widths = [size(body.arrays.shapes(e)) for s in statements for e in (s.target, *s.reads)]
    lanes = Lanes.of(widths, body.arrays.item)
    if lone_sum:
        lanes = replace(lanes, strip=max(STRIP, 2 * lanes.vector))
    between = levels.spaces[1:-1]
    nested = not between or any(s.target.path and reached(s.space, s.target.path) in between for s in statements)
    (top,) = (loops if nested else apart)(levels, statements)
    top, arrays, sums = _with_sums(top, levels, body.arrays, lanes)
    written = top.statements()
    homes = homes_of([top], written, arrays.shapes, [*body.local_arrays, *sums])
    planner = _Planner(Finder(levels, homes, FORMATS["csr"]), arrays, lanes, frozenset(sums), top)
    planner.look()
    plan = planner.plan(CREWS[schedule.by_edges])
    if lone_sum:
        return _of_lone_sum(plan, statements[0].target.name)
    return _with_parts(plan, planner) if schedule.split_hubs and len(levels.spaces) > 1 else plan


def is_leaf(loop: Loop, levels: Levels) -> bool:
    """Returns whether the teams of a crew share the rows of a loop; the whole crew is at each row of others."""
    inner = any(isinstance(item, Loop) for item in loop.items)
    return not inner and (len(levels.spaces) == 1 or loop.space != levels.spaces[0])


def _lanes_of(loop: Loop, levels: Levels, arrays: Arrays, lanes: Lanes) -> Lanes:
    """One lane a row where a loop touches few elements of it."""
    wide = any(size(arrays.shapes(r)) >= WIDE for s in loop.statements() for r in (*s.reads, s.target))
    return Lanes() if is_leaf(loop, levels) and not wide else lanes


def _with_sums(top: Loop, levels: Levels, arrays: Arrays, lanes: Lanes) -> tuple[Loop, Arrays, list[str]]:
    """The loops in which sums that lanes add up together have statements of their own, the arrays with these."""
    known, names = arrays, list[str]()

    def name(shape: Shape) -> str:
        nonlocal known
        found = next(n for n in (f"sum{k}" for k in count()) if n not in known)
        known = known.with_rows({found: Rows("ONE", shape)})
        names.append(found)
        return found

    def divided(loop: Loop) -> Loop:
        apart = _lanes_of(loop, levels, arrays, lanes).lanes > 1
        items: list[Statement | Loop] = []
        for each in loop.items:
            if isinstance(each, Loop):
                items.append(divided(each))
            else:
                items += sums_first(each, lambda ref: known.shapes(ref), name) if apart else [each]
        return replace(loop, items=tuple(items))

    return divided(top), known, names


@dataclass
class _Planner:
    """Turns the loops of a nest into those of its plan, once it has looked at what they read."""

    find: Finder
    arrays: Arrays
    lanes: Lanes
    sums: frozenset[str]
    top: Loop
    made_in: dict[str, Loop] = field(default_factory=dict[str, Loop])
    """The loop over the rows of an array in which it is written."""
    in_memory: dict[str, None] = field(default_factory=dict[str, None])
    """Arrays of the nest that are read from memory in it."""
    in_registers: set[str] = field(default_factory=set[str])
    in_runs: dict[str, None] = field(default_factory=dict[str, None])
    shared: bool = False
    """Whether the group is a hub of which the block has a part that others have to finish."""
    copied: frozenset[str] = frozenset()
    """Arrays whose row of the group such a part reads from memory."""

    @property
    def levels(self) -> Levels:
        return self.find.levels

    @property
    def homes(self) -> Mapping[str, Home]:
        return self.find.homes

    def is_local(self, name: str) -> bool:
        return name in self.homes and not self.homes[name].stored

    def lanes_of(self, loop: Loop) -> Lanes:
        return _lanes_of(loop, self.levels, self.arrays, self.lanes)

    # What goes through memory

    def look(self) -> None:
        """Finds out which arrays are read from memory, from registers, and several elements at a time."""
        for loop in self.top.inside():
            for statement in loop.statements():
                if self.homes[statement.target.name].space == loop.space:
                    self.made_in[statement.target.name] = loop
        self._look(self.top, {})
        stored = (s for s in self.top.statements() if not s.target.path and s.target.name not in self.sums)
        for statement in stored:
            name = statement.target.name
            if self._goes_to_memory(name) and size(self.arrays.shapes(statement.target)) >= WIDE:
                self.in_runs[name] = None
        for name, home in self.homes.items():
            if home.reduced and self._goes_to_memory(name):
                self.in_runs[name] = None

    def _look(self, loop: Loop, around: Mapping[str, Loop]) -> None:
        around = {**around, loop.space: loop}
        for item in loop.items:
            if isinstance(item, Loop):
                self._look(item, around)
                continue
            vector = self.lanes_of(loop).vector
            for ref, own in self._reads(item):
                if self._from_registers(ref, own, around):
                    self.in_registers.add(ref.name)
                    continue
                if ref.name in self.homes:
                    self.in_memory[ref.name] = None
                if own and vector > 1:
                    self.in_runs[ref.name] = None

    def _from_registers(self, ref: Ref, own: bool, around: Mapping[str, Loop]) -> bool:
        """Returns whether a thread has what a reference reads; ``own`` are the elements that it computes."""
        return (
            ref.name in self.homes and self._at_hand(ref.name, around) and (own or self.arrays.width(ref.name) < WIDE)
        )

    def read_from_memory(self, item: Statement | Loop, around: Mapping[str, Loop]) -> list[str]:
        """Arrays of the nest that a statement or a loop reads from memory."""
        if isinstance(item, Loop):
            around = {**around, item.space: item}
            return [name for inner in item.items for name in self.read_from_memory(inner, around)]
        reads = [ref for ref, own in self._reads(item) if not self._from_registers(ref, own, around)]
        return [ref.name for ref in reads if ref.name in self.homes]

    def _reads(self, statement: Statement) -> Iterable[tuple[Ref, bool]]:
        """The references of a statement, and whether a lane reads those of its elements that it computes."""
        shape, expr = self.arrays.shapes(statement.target), statement.expr
        if statement.target.name in self.sums:
            assert isinstance(expr, Op)
            expr = expr.args[0]
            shape = shape_of(expr, self.arrays.shapes)
        elif size(shape) < WIDE:
            return [(ref, False) for ref in statement.reads]
        return own_elements(expr, shape, self.arrays.shapes)

    def _at_hand(self, name: str, around: Mapping[str, Loop]) -> bool:
        """Returns whether the current row of an array has been computed in a loop around."""
        return around.get(self.homes[name].space) is self.made_in[name]

    def _at_part(self, name: str) -> bool:
        """Returns whether the row of an array is that of a group, of which others have parts as well."""
        return self.shared and self.homes[name].space == self.levels.spaces[0]

    def _goes_to_memory(self, name: str) -> bool:
        return name in self.copied if self._at_part(name) else self.homes[name].stored or name in self.in_memory

    # Places

    def _place(self, name: str, row: Number) -> Place:
        return Place("scratch" if self.is_local(name) else "memory", name, row)

    def _own_place(self, name: str) -> Place:
        """The current row of an array that the nest writes: in scratch, innermost rows lie in its order.

        Every part of a hub has a copy of the row of the group, since all of them compute it.
        """
        if self._at_part(name):
            return Place("copy", name)
        space, levels = self.homes[name].space, self.levels.spaces
        ordered = self.is_local(name) and space == levels[-1] != levels[0]
        return self._place(name, Number(f"{'at' if ordered else 'row'}_{space}"))

    # Steps

    def step(self, statement: Statement, around: Mapping[str, Loop]) -> DeviceStep:
        """A statement at a row of the loops around."""
        reads: dict[tuple[str, str], Read] = {}
        for ref in statement.reads:
            inside = ref.name in self.homes and self.homes[ref.name].space in around
            memory = (
                self._own_place(ref.name) if inside else self._place(ref.name, self.find.number(statement, ref, around))
            )
            reads[ref.name, ref.path] = Read(ref.name in self.homes and self._at_hand(ref.name, around), memory)
        name, reduces = statement.target.name, statement.target.path != ""
        stored = not reduces and name not in self.sums and self._goes_to_memory(name)
        return DeviceStep(
            statement,
            reads,
            registers=reduces or name in self.in_registers,
            memory=self._own_place(name) if stored else None,
            waits=stored and name in self.in_memory,
        )

    def result(self, statement: Statement) -> DeviceStep:
        """Returns what becomes of a reduced row when its loop has ended."""
        name = statement.target.name
        stored = self._goes_to_memory(name)
        return DeviceStep(
            statement, {}, False, self._own_place(name) if stored else None, stored and name in self.in_memory
        )

    # Loops

    def loop(self, loop: Loop, around: Mapping[str, Loop], outer: str = "") -> DeviceLoop:
        """A loop inside of one over the rows of ``outer``."""
        space, inner, top = loop.space, self.levels.spaces[-1], self.levels.spaces[0]
        around = {**around, space: loop}
        items = tuple(
            self.step(item, around) if isinstance(item, Statement) else self.loop(item, around, space)
            for item in loop.items
        )
        innermost = any(s.space == inner for s in loop.statements())
        middle = len(self.levels.spaces) == 3 and space == self.levels.spaces[1]
        leaf, of_group = is_leaf(loop, self.levels), outer == top
        written = [s.target.name for s in loop.statements() if not s.target.path]
        planned = DeviceLoop(
            space=space,
            items=items,
            leaf=leaf,
            lanes=self.lanes_of(loop),
            row=None,
            span=self.find.pointers(top, space) if of_group else None,
            run=self.find.pointers(space, inner) if middle and innermost else None,
            first_run=self.find.pointers(top, inner) if of_group and space != inner and innermost else None,
            stacked=self.stacked(loop),
            syncs=leaf and any(name in self.in_memory for name in written),
        )
        own = [(s, k) for k in planned.inside() for s in k.items if isinstance(s, DeviceStep)]
        results = tuple(
            (self.result(s.statement), k)
            for s, k in own
            if s.statement.target.path and reached(s.statement.space, s.statement.target.path) == outer
        )
        asked = planned.run is not None or any(n.variable == f"row_{space}" for n in planned.numbers())
        row = self.find.number_at(space, f"at_{space}") if outer and asked else None
        return replace(planned, row=row, results=results)

    def stacked(self, loop: Loop) -> tuple[Statement, ...]:
        """Statements whose targets have registers in a loop."""
        return tuple(
            s
            for s in loop.statements()
            if self.homes[s.target.name].space == loop.space
            and (self.homes[s.target.name].reduced or s.target.name in self.in_registers)
        )

    def plan(self, smallest_crew: int) -> DevicePlan:
        """The plan of a nest whose groups are not divided."""
        spaces = self.levels.spaces
        loop = self.loop(self.top, {})
        several = len(spaces) > 1
        groups = self.find.pointers(spaces[0], spaces[-1]) if several else None
        kept = tuple(name for name in self.in_memory if self.is_local(name))
        return DevicePlan(
            encodings=_encodings(loop, groups),
            scratch=_bytes(((self.homes[n].space, self.homes[n].width) for n in kept), self.arrays),
            levels=self.levels,
            arrays=self.arrays,
            loop=loop,
            homes=self.homes,
            lanes=self.lanes,
            crew=max(self.lanes.lanes, smallest_crew),
            held=self._held,
            sums=self.sums,
            kept=kept,
            questions=("schedule_by", "split_hubs") if several else (),
            in_runs=tuple(n for n in self.in_runs if self.lanes.vector > 1 and not self.is_local(n)),
            groups=groups,
        )

    @property
    def _held(self) -> int:
        """Elements that a thread has in registers.

        Lanes that read element by element keep an address for each; they have room as for 8 elements at least. A lone
        lane reads whole rows that way, and several rows ahead: it has room for twice what it holds.
        """
        names = [n for n, home in self.homes.items() if home.reduced or n in self.in_registers]
        layouts = [Lanes() if self.arrays.width(n) < WIDE else self.lanes for n in names]
        found = sum(lanes.held(self.homes[n].width) for n, lanes in zip(names, layouts, strict=True))
        if self.lanes.lanes == 1:
            return 2 * found
        return max(found, 8) if self.lanes.vector == 1 else found


def _encodings(loop: DeviceLoop, groups: Pointers | None) -> tuple[str, ...]:
    spans = [p for inside in loop.inside() for p in (inside.span, inside.run, inside.first_run, groups) if p]
    names = [*(n.encoding for n in loop.numbers()), *(p.encoding for p in spans)]
    return in_order(dict.fromkeys(name for name in names if name is not None))


def _bytes(needs: Iterable[tuple[str, int]], arrays: Arrays) -> dict[str, int]:
    """Bytes per row of each row space for arrays of so many elements a row; each starts at an aligned place."""
    item = max(arrays.item, 4)  # sums have 32 bits at least
    found: dict[str, int] = {}
    for space, elements in needs:
        found[space] = found.get(space, 0) + elements * item
        found["ONE"] = found.get("ONE", 0) + ALIGNMENT
    return found


def _of_lone_sum(plan: DevicePlan, target: str) -> DevicePlan:
    """A sum into types: few groups, which all threads share; fewer parts where the sums of each are large."""
    width = plan.homes[target].width
    chunks = min(1024, max(64, (1 << 22) // width))
    needs = [("ONE", chunks * width), (plan.levels.spaces[0], width)]
    return replace(plan, chunks=chunks, launches=2, questions=(), scratch=_bytes(needs, plan.arrays))


# Hubs ----------------------------------------------------------------------------------------------------------


def _with_parts(plan: DevicePlan, planner: _Planner) -> DevicePlan:
    """The plan with its hubs divided among blocks, unless a loop of theirs has another one inside.

    Every loop of a group becomes a launch of its own for hubs: in each, a block does its part of the rows, and leaves
    what it has summed up in scratch memory, where the blocks of the next launch put it together in a fixed order.
    Statements between the loops are run anew by each of them, in scratch of its own where their rows are needed in
    memory; what is stored for the group, the first block of the last launch stores. The first launch is also that over
    all other groups.
    """
    top = planner.top
    inner = [item for item in top.items if isinstance(item, Loop)]
    if not all(is_leaf(loop, planner.levels) for loop in inner):
        return plan
    stored = any(home.stored and home.space == top.space for home in planner.homes.values())
    parts = replace(planner, shared=True)
    before = top.items[: top.items.index(inner[-1]) + 1]
    parts.copied = frozenset(
        name
        for item in before
        for name in planner.read_from_memory(item, {top.space: top})
        if planner.homes[name].space == top.space
    )
    whole = tuple(_part(planner if number == len(inner) else parts, number) for number in range(len(inner) + stored))
    reduced = [("part", name) for name, home in planner.homes.items() if home.reduced and home.space == top.space]
    partial = (*reduced, *(("copy", name) for name in planner.in_memory if name in parts.copied))
    needs = [(planner.homes[n].space, planner.homes[n].width) for n in plan.kept]
    needs += [("ONE", MOST_PARTS * planner.homes[name].width) for _, name in partial]
    return replace(plan, parts=whole, partial=partial, launches=max(len(whole), 1), scratch=_bytes(needs, plan.arrays))


def _part(planner: _Planner, number: int) -> HubPart:
    """The part of a loop over rows of the group, given its number; behind the last, all that is left to do."""
    top = planner.top
    around = {top.space: top}
    inner = [item for item in top.items if isinstance(item, Loop)]
    last = number == len(inner)
    items: list[DeviceStep | DeviceLoop | tuple[DeviceStep]] = []
    for item in top.items:
        if isinstance(item, Statement):
            items.append(planner.step(item, around))
        elif inner.index(item) == number:
            items.append(planner.loop(item, around, top.space))
            break
        else:
            items += [(planner.result(s),) for s in item.statements() if s.target.path]
    kept: list[DeviceStep | DeviceLoop | tuple[DeviceStep]] = []
    read: set[str] = set()
    used: set[str] = set()
    for item in reversed(items):
        steps = [*item.everything()] if isinstance(item, DeviceLoop) else [item[0] if isinstance(item, tuple) else item]
        name = steps[0].statement.target.name
        if isinstance(item, DeviceLoop) or (last and planner.homes[name].stored) or name in read:
            kept.insert(0, item)
            read |= {name for step in steps for name, _ in step.reads}
            used |= {step.statement.target.name for step in steps}
    return HubPart(tuple(kept), last, frozenset(used))

"""Turns the loops of a nest into those of its plan on a device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count

from dacergnn.library_nodes.form import Op, Ref, Shape, Statement, size
from dacergnn.library_nodes.plan import ALIGNMENT, Arrays, Rows, in_order
from dacergnn.library_nodes.shapes import shape_of
from dacergnn.library_nodes.traversal.device_plan import (
    MANY_HELD,
    MOST_AHEAD,
    MOST_BATCH,
    MOST_WORDS,
    ROOM_OF_BATCH,
    DeviceLoop,
    DevicePlan,
    DeviceStep,
    Read,
)
from dacergnn.library_nodes.traversal.lanes import Lanes, own_elements, sums_first
from dacergnn.library_nodes.traversal.nest import Levels, Loop, reached
from dacergnn.library_nodes.traversal.places import Finder, Number, Place, Pointers
from dacergnn.library_nodes.traversal.storage import WIDE, Home


def is_leaf(loop: Loop, levels: Levels) -> bool:
    """Returns whether the teams of a crew share the rows of a loop; in other loops, the whole crew is at each row."""
    inner = any(isinstance(item, Loop) for item in loop.items)
    return not inner and (len(levels.spaces) == 1 or loop.space != levels.spaces[0])


def _lanes_of(loop: Loop, levels: Levels, arrays: Arrays, lanes: Lanes) -> Lanes:
    """Returns the lanes of a loop: one lane a row if teams share the rows and they have few elements."""
    wide = any(size(arrays.shapes(r)) >= WIDE for s in loop.statements() for r in (*s.reads, s.target))
    return Lanes() if is_leaf(loop, levels) and not wide else lanes


def with_sums(top: Loop, levels: Levels, arrays: Arrays, lanes: Lanes) -> tuple[Loop, Arrays, list[str]]:
    """Returns the loops with statements for sums that lanes add up together, the arrays with these, their names."""
    known, names = arrays, list[str]()

    def name(shape: Shape) -> str:
        nonlocal known
        array = next(n for n in (f"sum{k}" for k in count()) if n not in known)
        known = known.with_rows({array: Rows("ONE", shape)})
        names.append(array)
        return array

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
class Planner:
    """Turns the loops of a nest into those of its plan; before that, `look` finds out what they read."""

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
    """Tells whether the group is a hub of which the block has a part, which later launches finish."""
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

    # Rows that go through memory

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
        """Returns whether a thread holds what a reference reads; ``own``: it reads the elements that it computes."""
        return (
            ref.name in self.homes and self._at_hand(ref.name, around) and (own or self.arrays.width(ref.name) < WIDE)
        )

    def read_from_memory(self, item: Statement | Loop, around: Mapping[str, Loop]) -> list[str]:
        """Returns the arrays of the nest that a statement or a loop reads from memory."""
        if isinstance(item, Loop):
            around = {**around, item.space: item}
            return [name for inner in item.items for name in self.read_from_memory(inner, around)]
        reads = [ref for ref, own in self._reads(item) if not self._from_registers(ref, own, around)]
        return [ref.name for ref in reads if ref.name in self.homes]

    def _reads(self, statement: Statement) -> Iterable[tuple[Ref, bool]]:
        """Returns the references of a statement, and whether a lane reads each at the elements that it computes."""
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
        """Returns whether the row of an array belongs to the group, and the group is a hub that blocks share."""
        return self.shared and self.homes[name].space == self.levels.spaces[0]

    def _goes_to_memory(self, name: str) -> bool:
        return name in self.copied if self._at_part(name) else self.homes[name].stored or name in self.in_memory

    # Places

    def _place(self, name: str, row: Number) -> Place:
        return Place("scratch" if self.is_local(name) else "memory", name, row)

    def _own_place(self, name: str) -> Place:
        """Returns the current row of an array that the nest writes; in scratch, innermost rows are in the nest's order.

        Every part of a hub has a copy of the row of the group, since all parts compute it.
        """
        if self._at_part(name):
            return Place("copy", name)
        space, levels = self.homes[name].space, self.levels.spaces
        ordered = self.is_local(name) and space == levels[-1] != levels[0]
        return self._place(name, Number(f"{'at' if ordered else 'row'}_{space}"))

    # Steps

    def step(self, statement: Statement, around: Mapping[str, Loop]) -> DeviceStep:
        """Returns the step of a statement at a row of the loops around."""
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
        """Returns the step that stores a reduced row when its loop has ended."""
        name = statement.target.name
        stored = self._goes_to_memory(name)
        return DeviceStep(
            statement, {}, False, self._own_place(name) if stored else None, stored and name in self.in_memory
        )

    # Loops

    def loop(self, loop: Loop, around: Mapping[str, Loop], outer: str = "") -> DeviceLoop:
        """Returns the plan of a loop inside one over the rows of ``outer``."""
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
        if leaf and outer:
            planned = self._batched(planned, loop, around)
        asked = planned.run is not None or any(n.variable == f"row_{space}" for n in planned.numbers())
        row = self.find.number_at(space, f"at_{space}") if outer and asked else None
        return replace(planned, row=row, results=results)

    def _batched(self, planned: DeviceLoop, loop: Loop, around: Mapping[str, Loop]) -> DeviceLoop:
        """Returns the plan of a loop with the rows that teams load ahead: indices first, then rows, then arithmetic."""
        written = {s.target.name for s in loop.statements()}
        elements: dict[tuple[str, str], int] = {}
        apart = set[tuple[str, str]]()
        for statement in loop.statements():
            for ref, own in self._reads(statement):
                width = self.arrays.width(ref.name)
                if ref.name in written or self._from_registers(ref, own, around):
                    continue
                if own:
                    elements[ref.name, ref.path] = planned.lanes.held(width)
                elif width <= MOST_AHEAD and self._is_fixed(width, statement, planned.lanes):
                    elements[ref.name, ref.path] = width
                elif width < WIDE:
                    apart.add((ref.name, ref.path))
        elements = {key: held for key, held in elements.items() if key not in apart}
        words = max(self.arrays.item // 4, 1)
        left = MOST_WORDS[self._held >= MANY_HELD] - words * self._held
        # A run has an address; elements that are read one by one have one each.
        addresses = [1 if planned.lanes.vector > 1 else held for held in elements.values()]
        taken = words * sum(self._registers(s.target.name) for s in planned.stacked)
        taken += sum(words * held + 2 * places for held, places in zip(elements.values(), addresses, strict=True))
        room = max(left, 0) // taken if elements else 0
        batch = min(MOST_BATCH, 1 << (room.bit_length() - 1)) if room else 1
        return replace(planned, batch=batch, ahead=frozenset(elements)) if batch > 1 else planned

    def _is_fixed(self, width: int, statement: Statement, lanes: Lanes) -> bool:
        """Returns whether the compiler knows which elements of a narrow row a lane reads, as registers need it."""
        shape = self.arrays.shapes(statement.target)
        if statement.target.name in self.sums:
            assert isinstance(statement.expr, Op)
            shape = shape_of(statement.expr.args[0], self.arrays.shapes)
        return width == 1 or size(shape) < WIDE or (len(shape) == 2 and shape[-1] % lanes.round == 0)

    def stacked(self, loop: Loop) -> tuple[Statement, ...]:
        """Returns the statements whose targets have registers in a loop."""
        return tuple(
            s
            for s in loop.statements()
            if self.homes[s.target.name].space == loop.space
            and (self.homes[s.target.name].reduced or s.target.name in self.in_registers)
        )

    def plan(self, smallest_crew: int) -> DevicePlan:
        """Returns the plan of a nest whose groups are not divided."""
        spaces = self.levels.spaces
        loop = self.loop(self.top, {})
        several = len(spaces) > 1
        groups = self.find.pointers(spaces[0], spaces[-1]) if several else None
        kept = tuple(name for name in self.in_memory if self.is_local(name))
        return DevicePlan(
            encodings=_encodings(loop, groups),
            scratch=scratch_bytes(((self.homes[n].space, self.homes[n].width) for n in kept), self.arrays),
            levels=self.levels,
            arrays=self.arrays,
            loop=loop,
            homes=self.homes,
            lanes=self.lanes,
            crew=max(self.lanes.lanes, smallest_crew),
            held=max(self._held, ROOM_OF_BATCH) if any(k.batch > 1 for k in loop.inside()) else self._held,
            sums=self.sums,
            kept=kept,
            questions=("schedule_by", "split_hubs") if several else (),
            in_runs=tuple(n for n in self.in_runs if self.lanes.vector > 1 and not self.is_local(n)),
            groups=groups,
        )

    def _registers(self, name: str) -> int:
        """Returns the number of elements of a row that a thread has in registers."""
        lanes = Lanes() if self.arrays.width(name) < WIDE else self.lanes
        return lanes.held(self.homes[name].width)

    @property
    def _held(self) -> int:
        """Returns the number of elements that a thread has in registers.

        Lanes that read element by element keep an address for each, so they get room for at least 8 elements. A lone
        lane reads whole rows that way, and several rows ahead: it gets room for twice the elements that it holds.
        """
        names = [n for n, home in self.homes.items() if home.reduced or n in self.in_registers]
        elements = sum(map(self._registers, names))
        if self.lanes.lanes == 1:
            return 2 * elements
        return max(elements, 8) if self.lanes.vector == 1 else elements


def _encodings(loop: DeviceLoop, groups: Pointers | None) -> tuple[str, ...]:
    spans = [p for inside in loop.inside() for p in (inside.span, inside.run, inside.first_run, groups) if p]
    names = [*(n.encoding for n in loop.numbers()), *(p.encoding for p in spans)]
    return in_order(dict.fromkeys(name for name in names if name is not None))


def scratch_bytes(needs: Iterable[tuple[str, int]], arrays: Arrays) -> dict[str, int]:
    """Returns the bytes per row of each row space for arrays of so many elements a row, each of them aligned."""
    item = max(arrays.item, 4)  # sums have 32 bits at least
    sizes: dict[str, int] = {}
    for space, elements in needs:
        sizes[space] = sizes.get(space, 0) + elements * item
        sizes["ONE"] = sizes.get("ONE", 0) + ALIGNMENT
    return sizes

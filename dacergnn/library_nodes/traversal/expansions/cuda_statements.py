"""C++ of one statement of a nest on a device: where its row is computed, and where that goes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dacergnn.library_nodes.form import Op, Ref, Statement, size
from dacergnn.library_nodes.node import PREFIX, row_shape
from dacergnn.library_nodes.shapes import shape_of
from dacergnn.library_nodes.traversal.expansions.cuda_lanes import UNROLL, LaneEmitter, Layout, lane_sums
from dacergnn.library_nodes.traversal.expansions.places import Places
from dacergnn.library_nodes.traversal.expansions.reductions import COMBINE
from dacergnn.library_nodes.traversal.expansions.storage import WIDE
from dacergnn.library_nodes.traversal.nest import Loop

MERGE = {"+=": "Sum", "max=": "Maximum", "min=": "Minimum"}
IDENTITY = {"+=": "Value(0)", "max=": "-dacergnn::cuda::kInfinity<Value>", "min=": "dacergnn::cuda::kInfinity<Value>"}


class DeviceStatements(Places):
    """Statements of a nest, given its loops.

    A row of fewer than `WIDE` elements is computed by every lane of the team alike, and each has a copy. The elements
    of other rows are shared by the lanes, each reading its own; what is read otherwise, or in another loop, goes
    through memory. Which arrays do turns out while code is written, so it is written twice.
    """

    layout: Layout

    def __init__(self, arrays: dict[str, Any]) -> None:
        super().__init__(arrays)
        self.sums: set[str] = set()  # targets that lanes add up together
        self.made_in: dict[str, Loop] = {}  # the loop over the rows of an array in which it is written
        self.in_memory: dict[str, None] = {}  # arrays of the nest that are read from memory in it
        self.in_registers: set[str] = set()  # those that are read from registers
        self.in_runs: dict[str, None] = {}  # arrays whose elements are read or written several at a time
        self.finishing = True  # not at a part of a hub that others have to finish
        self.at_parts: dict[str, None] = {}  # arrays whose row of the group such a part reads from memory

    def is_leaf(self, loop: Loop) -> bool:
        """Returns whether the teams of a crew share the rows of a loop; the whole crew is at each row of others."""
        inner = any(isinstance(item, Loop) for item in loop.items)
        return not inner and (len(self.levels.spaces) == 1 or loop.space != self.levels.spaces[0])

    def loop_layout(self, loop: Loop) -> Layout:
        """One lane a row where a loop touches few elements of it."""
        wide = any(size(self.shapes(r)) >= WIDE for s in loop.statements() for r in (*s.reads, s.target))
        return Layout() if self.is_leaf(loop) and not wide else self.layout

    def is_local(self, name: str) -> bool:
        return name in self.homes and not self.homes[name].stored

    def _at_part(self, name: str) -> bool:
        """Returns whether the row of an array is that of a group, of which others have parts as well."""
        return not self.finishing and self.homes[name].space == self.levels.spaces[0]

    def _goes_to_memory(self, name: str) -> bool:
        return name in self.at_parts if self._at_part(name) else self.homes[name].stored or name in self.in_memory

    # Places

    def _entry(self, name: str, at: str) -> str:
        return f"__ldg({self._encoding(name)} + {at})"

    def address(self, name: str, row: str) -> str:
        """Pointer to a row of an array, given its number."""
        width = size(row_shape(self.arrays[name]))
        return f"{'kept_' if self.is_local(name) else PREFIX}{name} + {row} * {width}"

    def own_address(self, name: str) -> str:
        """Pointer to the current row of an array that the nest writes: in scratch, innermost rows lie in its order.

        Every part of a hub has a copy of the row of the group, since all of them compute it.
        """
        space = self.homes[name].space
        if self._at_part(name):
            return f"copy_{name} + part.chunk() * {self.homes[name].width}"
        ordered = self.is_local(name) and space == self.levels.spaces[-1] != self.levels.spaces[0]
        return self.address(name, f"{'at' if ordered else 'row'}_{space}")

    def _one_thread(self, loop: Loop, lanes: int) -> str:
        """``if`` this is the first of the threads that have the same elements of a row, which ``lanes`` share."""
        if not self.is_leaf(loop):
            return f"if (dacergnn::cuda::rank<{lanes}>(crew) == 0) "
        own = self.loop_layout(loop).lanes
        return "" if lanes == own else f"if (dacergnn::cuda::lane_of<{own}>() == 0) "

    def _held(self, name: str) -> Layout:
        """Returns how lanes hold the rows of an array."""
        return self.layout if size(row_shape(self.arrays[name])) >= WIDE else Layout()

    def _kind(self, name: str) -> str:
        return "Value" if self.is_local(name) or self._at_part(name) else "Storage"

    def registers(self, name: str) -> str:
        return f"Value own_{name}[{self._held(name).held(size(row_shape(self.arrays[name])))}];"

    # Statements

    def statement(self, statement: Statement, loop: Loop) -> str:
        """Computes one row, for all or for those elements that the lane holds."""
        name, shape, layout = statement.target.name, self.shapes(statement.target), self.loop_layout(loop)
        lines: list[str] = []
        pointers: dict[tuple[str, str], str] = {}

        def read(ref: Ref, at: str, same: bool) -> str:
            home = self.homes.get(ref.name)
            whole = size(row_shape(self.arrays[ref.name])) < WIDE
            if home is not None and self.around.get(home.space) is self.made_in[ref.name] and (whole or same):
                self.in_registers.add(ref.name)
                return f"own_{ref.name}[{at if whole else 'held'}]"
            if home is not None:
                self.in_memory[ref.name] = None
                if self._at_part(ref.name):
                    self.at_parts[ref.name] = None
            key = (ref.name, ref.path)
            if key not in pointers:
                pointers[key] = f"row{len(pointers)}"
                inside = home is not None and home.space in self.around
                source = self.own_address(ref.name) if inside else self.address(ref.name, self._row(statement, ref))
                lines.append(f"const auto* const {pointers[key]} = {source};")
            if same and layout.vector > 1:
                self.in_runs[ref.name] = None
                return emitter.load(pointers[key], home is None)
            return f"Value(__ldg({pointers[key]} + {at}))" if home is None else f"Value({pointers[key]}[{at}])"

        if name in self.sums:  # over all of the row
            layout = replace(layout, strip=None)
        emitter = LaneEmitter(self.shapes, layout, read)
        if name in self.sums:
            assert isinstance(statement.expr, Op)
            body = statement.expr.args[0]
            code = lane_sums(emitter, f"own_{name}", body, shape_of(body, self.shapes))
            return "{\n" + "\n".join([*lines, code]) + "\n}"
        stored = not statement.target.path and self._goes_to_memory(name)
        if stored:
            lines.append(f"{self._kind(name)}* const out = {self.own_address(name)};")
        code = (self._spread if size(shape) >= WIDE else self._whole)(statement, loop, emitter, stored)
        return "{\n" + "\n".join([*lines, code]) + "\n}" + (self._wait(name, loop) if stored else "")

    def _goal(self, statement: Statement, at: str, value: str) -> str:
        """Puts an element into the registers of the row, if they are read."""
        name = statement.target.name
        if statement.target.path or name in self.in_registers:
            return COMBINE[statement.op].format(f"own_{name}[{at}]", value)
        return ""

    def _whole(self, statement: Statement, loop: Loop, emitter: LaneEmitter, stored: bool) -> str:
        one = self._one_thread(loop, 1)

        def store(at: str, value: str) -> str:
            into = f"\n{one}out[{at}] = {self._kind(statement.target.name)}({value});" if stored else ""
            return (self._goal(statement, at, value) + into).strip()

        return emitter.loops(statement.expr, self.shapes(statement.target), store)

    def _spread(self, statement: Statement, loop: Loop, emitter: LaneEmitter, stored: bool) -> str:
        one, vector = self._one_thread(loop, self.layout.lanes), self.layout.vector
        into = before = after = ""
        if stored:
            kind = self._kind(statement.target.name)
            into = f"\nresult[v] = {kind}({{0}});"
            before = f"dacergnn::cuda::Vector<{kind}, {vector}> result;"
            after = f"{one}dacergnn::cuda::store_run(out + start, result);"
            self.in_runs[statement.target.name] = None

        def store(value: str) -> str:
            return (self._goal(statement, "held", value) + into.format(value)).strip()

        return emitter.spread(statement.expr, self.shapes(statement.target), store, before, after)

    def _wait(self, name: str, loop: Loop) -> str:
        """Until other threads see a row in memory, where it is read again."""
        if name not in self.in_memory:
            return ""
        if not self.is_leaf(loop):
            return "\ncrew.sync();"
        return f"\ndacergnn::cuda::sync_team<{self.loop_layout(loop).lanes}>();"

    # Reductions

    def accumulator(self, statement: Statement) -> str:
        """Registers with what a reduction starts from."""
        name = statement.target.name
        loop = f"for (auto& value : own_{name}) value = {IDENTITY[statement.op]};"
        return f"{self.registers(name)}\n{UNROLL}{loop}"

    def merged(self, statement: Statement, loop: Loop) -> str:
        """Puts together what the teams have of a reduced row; where the crew is at each row, all have the same."""
        if not self.is_leaf(loop):
            return ""
        lanes, combine = self.loop_layout(loop).lanes, f"dacergnn::cuda::{MERGE[statement.op]}()"
        return f"dacergnn::cuda::merge<{lanes}>(crew, own_{statement.target.name}, {combine});"

    def result(self, statement: Statement, empty: str | None) -> str:
        """Returns what becomes of a reduced row when its loop, which may have been ``empty``, has ended."""
        name = statement.target.name
        lines: list[str] = []
        if statement.op != "+=" and empty is not None:
            lines.append(f"if ({empty}) {{\n{UNROLL}for (auto& value : own_{name}) value = Value(0);\n}}")
        if self._goes_to_memory(name):
            lines.append(self.stored_row(name, self.own_address(name)))
            if name in self.in_memory:
                lines.append("crew.sync();")
        return "\n".join(lines)

    def stored_row(self, name: str, address: str) -> str:
        """Writes a reduced row, or the block's strip of it, to memory, by one of the teams that have it."""
        held, width = self._held(name), self.homes[name].width
        sizes = f"{held.lanes}, {held.vector}, {width}"
        self.in_runs[name] = None
        strip = f", strip * {held.held(width) * held.lanes}" if held.strips(width) > 1 else ""
        one = f"if (dacergnn::cuda::rank<{held.lanes}>(crew) == 0) "
        return f"{one}dacergnn::cuda::store_row<{sizes}>({address}, own_{name}{strip});"

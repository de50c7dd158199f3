"""CUDA of a loop nest: a crew of threads for every outermost row, or a team for every row of a lone level."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import count
from typing import Any

from dace.data import Array

from dacergnn.library_nodes.access import pointer_name, target_is_prefix
from dacergnn.library_nodes.cpu import extent
from dacergnn.library_nodes.device_code import DeviceCode
from dacergnn.library_nodes.form import Shape, Statement, size
from dacergnn.library_nodes.node import PREFIX, row_space
from dacergnn.library_nodes.traversal.expansions.cuda_lanes import Layout, sums_first
from dacergnn.library_nodes.traversal.expansions.cuda_statements import DeviceStatements
from dacergnn.library_nodes.traversal.expansions.storage import homes_of
from dacergnn.library_nodes.traversal.nest import Levels, Loop, apart, loops, reached, simplest


class DeviceNest(DeviceStatements):
    """The kernel of a body under a mapping.

    ``code`` is C++ in which Storage, Value and Index are defined (`DeviceCode`), ``encodings`` what it reads of the
    graph, ``scratch`` what it needs besides. A crew has ``smallest_crew`` threads, or more if they share a row.
    """

    def __init__(
        self,
        mapping: str,
        statements: Sequence[Statement],
        arrays: dict[str, Any],
        local_arrays: Collection[str] = (),
        *,
        smallest_crew: int = 8,
    ) -> None:
        super().__init__(arrays)
        self.smallest_crew = smallest_crew
        statements = simplest(mapping, statements)
        self.dtype = self.arrays[statements[0].target.name].dtype
        self.levels = Levels.of(mapping, statements)
        inner = self.levels.spaces[-1]
        if all(s.space == inner and not s.target.path for s in statements):
            self.levels = Levels((inner,))  # maps of rows that need not know of each other
        exprs = [e for s in statements for e in (s.target, *s.reads)]
        self.layout = self._layout([size(self.shapes(e)) for e in exprs])
        between = self.levels.spaces[1:-1]
        nested = not between or any(s.target.path and reached(s.space, s.target.path) in between for s in statements)
        self.loops = (loops if nested else apart)(self.levels, statements)
        for loop in (inner for top in self.loops for inner in _all_loops(top)):
            if self.loop_layout(loop).lanes > 1:
                self._split_sums(loop)
        self.statements = [s for loop in self.loops for s in loop.statements()]
        self.homes = homes_of(self.loops, self.statements, self.shapes, [*local_arrays, *self.sums])
        inside = [loop for top in self.loops for loop in _all_loops(top)]
        spaces = {name: home.space for name, home in self.homes.items()}
        self.made_in = {s.target.name: k for k in inside for s in k.statements() if spaces[s.target.name] == k.space}
        self._body()
        self.code = self._write()  # now that it is known what goes through memory

    def _layout(self, widths: Sequence[int]) -> Layout:
        return Layout.of(widths, self.dtype.bytes)

    def _split_sums(self, loop: Loop) -> None:
        """Give the sums that lanes add up together statements of their own."""

        def name(shape: Shape) -> str:
            found = next(n for n in (f"sum{k}" for k in count()) if n not in self.arrays)
            self.arrays[found] = Array(self.dtype, (1, *shape))
            self.sums.add(found)
            return found

        items: list[Statement | Loop] = []
        for item in loop.items:
            items += sums_first(item, self.shapes, name) if isinstance(item, Statement) else [item]
        loop.items = items

    # The kernel

    def _write(self) -> DeviceCode:
        outer, lanes = self.levels.spaces[0], self.layout.lanes
        row = f"const int64_t row_{outer}"
        if len(self.levels.spaces) == 1:
            head = f"traverse_rows<{lanes}>({extent(outer)}, [=] __device__({row}) {{"
        else:
            groups, crew = f"{self._groups()}, {extent(outer)}", max(lanes, self.smallest_crew)
            head = f"traverse_groups<{crew}, Value, {self.held}>({groups}, [=] __device__(const auto crew, {row}) {{"
        main = f"{head}\n(void)row_{outer};\n{self._body()}\n}}"
        calls = [f"{call})" for call in self._calls(main)]
        return DeviceCode(self._before(), [*calls, *self._tails()], steps=len(calls))

    def _calls(self, main: str) -> list[str]:
        """The launches, given the one over all groups; closing parentheses are left out."""
        return [main]

    def _body(self) -> str:
        """Returns what the threads of an outermost row do."""
        (loop,) = self.loops
        return self._body_of(loop)

    def _groups(self) -> str:
        outer, inner = self.levels.spaces[0], self.levels.spaces[-1]
        name = pointer_name(inner, self.levels.up(inner, outer) or "")
        return f"dacergnn::cuda::Groups<Index>{{{self._encoding(name) if name else 'nullptr'}, {extent(inner)}}}"

    @property
    def held(self) -> int:
        """Elements that a thread has in registers, by which blocks get room.

        Lanes that read element by element keep an address for each; they have room as for 8 elements at least. A lone
        lane reads whole rows that way, and several rows ahead: it has room for twice what it holds.
        """
        names = [n for n, home in self.homes.items() if home.reduced or n in self.in_registers]
        found = sum(self._held(n).held(self.homes[n].width) for n in names)
        if self.layout.lanes == 1:
            return 2 * found
        return max(found, 8) if self.layout.vector == 1 else found

    @property
    def scratch(self) -> list[tuple[str, int]]:
        """Row space and elements a row of every array in scratch memory."""
        return [(self.homes[n].space, self.homes[n].width) for n in self.in_memory if self.is_local(n)]

    def _before(self) -> str:
        """Returns what the host does before the launch."""
        runs = [n for n in self.in_runs if self.layout.vector > 1 and not self.is_local(n)]
        lines = [f"dacergnn::cuda::check_alignment({{{', '.join(PREFIX + n for n in runs)}}});"] if runs else []
        kept = [(n, self.homes[n]) for n in self.in_memory if self.is_local(n)]
        lines += [
            f"Value* const kept_{n} = dacergnn::cuda::take<Value>({extent(h.space)} * {h.width});" for n, h in kept
        ]
        return "\n".join([*lines, ""])

    def _tails(self) -> list[str]:
        """Zeros for the rows of targets that the map does not reach."""
        tails: list[str] = []
        for statement in self.statements:
            name, home = statement.target.name, self.homes[statement.target.name]
            if home.stored and target_is_prefix(statement, row_space(self.arrays[name])):
                owner, start = extent(row_space(self.arrays[name])), f"{extent(home.space)} * {home.width}"
                tails.append(
                    f"traverse_rows<1>({owner} * {home.width} - {start}, "
                    f"[=] __device__(const int64_t i) {{ {PREFIX}{name}[{start} + i] = Storage(0); }})"
                )
        return tails

    # Loops

    def _body_of(self, loop: Loop) -> str:
        """Returns what happens at a row of a loop, whose number or place is known."""
        space = loop.space
        self.around[space] = loop
        lines = [*self._declarations(loop), *self._run(loop)]
        lines += [
            self.statement(item, loop) if isinstance(item, Statement) else self._inner(item, loop)
            for item in loop.items
        ]
        del self.around[space]
        if space != self.levels.spaces[0] and any(f"row_{space}" in line for line in lines):
            lines.insert(0, f"const int64_t row_{space} = {self._row_at(space, f'at_{space}')};")
        return "\n".join(line for line in lines if line)

    def _rows(self, loop: Loop, begin: str, end: str) -> str:
        """A loop over rows by their places ``begin`` to ``end``."""
        at, first, step = f"at_{loop.space}", begin, "1"
        if self.is_leaf(loop):
            lanes = self.loop_layout(loop).lanes
            first, step = f"{begin} + dacergnn::cuda::rank<{lanes}>(crew)", f"dacergnn::cuda::teams<{lanes}>(crew)"
        text = f"for (int64_t {at} = {first}; {at} < {end}; {at} += {step}) {{\n{self._body_of(loop)}\n}}"
        if self.is_leaf(loop) and any(s.target.name in self.in_memory and not s.target.path for s in loop.statements()):
            text += "\ncrew.sync();"
        return text

    def _inner(self, loop: Loop, outer: Loop) -> str:
        """A loop inside of another, with the results of its reductions."""
        space, inner, top = loop.space, self.levels.spaces[-1], self.levels.spaces[0]
        lines: list[str] = []
        begin, end = f"begin_{space}", f"end_{space}"
        if outer.space == top:
            lines += self._range(space, begin, end)
            if space != inner and any(s.space == inner for s in loop.statements()):
                _, edges = self._bounds(top, inner)
                lines.append(f"int64_t run_{inner} = {edges}[row_{top}];")
        lines.append(self._rows(loop, begin, end))
        reductions = [(s, own) for own in _all_loops(loop) for s in own.items if isinstance(s, Statement)]
        for statement, own in reductions:
            if statement.target.path and reached(statement.space, statement.target.path) == outer.space:
                lines += [self.merged(statement, own), self.result(statement, f"{begin} == {end}")]
        return "{\n" + "\n".join(line for line in lines if line) + "\n}"

    def _range(self, space: str, begin: str, end: str) -> list[str]:
        """Declares the places of the rows of the current outermost row."""
        top = self.levels.spaces[0]
        if pointer_name(space, self.levels.up(space, top) or "") is None:  # one group
            return [f"const int64_t {begin} = 0, {end} = {extent(space)};"]
        _, bounds = self._bounds(top, space)
        return [f"const int64_t {begin} = {bounds}[row_{top}], {end} = {bounds}[row_{top} + 1];"]

    def _declarations(self, loop: Loop) -> list[str]:
        """Registers for the rows of a loop."""
        lines: list[str] = []
        for statement in loop.statements():
            name, home = statement.target.name, self.homes[statement.target.name]
            if home.space != loop.space:
                continue
            if home.reduced:
                lines.append(self.accumulator(statement))
            elif name in self.in_registers:
                lines.append(self.registers(name))
        return lines


def _all_loops(loop: Loop) -> list[Loop]:
    """The loop and those inside of it."""
    return [loop, *(inner for item in loop.items if isinstance(item, Loop) for inner in _all_loops(item))]

"""C++ of a loop nest: loops over tiles, groups and rows with the statements of a traversal's body inside.

What the variables are called stands in `places`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from dacergnn.library_nodes.access import is_few, target_is_prefix
from dacergnn.library_nodes.cpu import extent
from dacergnn.library_nodes.emit import Emitter, row_elements
from dacergnn.library_nodes.form import Ref, Statement, size
from dacergnn.library_nodes.node import PREFIX, row_shape, row_space
from dacergnn.library_nodes.traversal.expansions.places import Places
from dacergnn.library_nodes.traversal.expansions.reductions import COMBINE, IDENTITY, accumulator, each
from dacergnn.library_nodes.traversal.expansions.storage import WIDE, homes_of, is_narrow, narrow_maps
from dacergnn.library_nodes.traversal.nest import Levels, Loop, loops, reached, simplest

PREFETCH_DISTANCE = 16
LEAST_PREFETCHED = 4
"""Elements from which on a row that lies apart from its neighbors is worth a prefetch."""


class Sharing(NamedTuple):
    """Describes how threads share out a nest: numbers, or names of arguments that give them to every call of one build.

    No result depends on them, but for the last digits of the sums of hubs on ``hub_rows``. Any number will do.
    """

    tile_rows: object
    hub_rows: object
    chunks: object


USUAL = Sharing(tile_rows=4096, hub_rows=0, chunks=16)


class NestKernel(Places):
    """The kernel of a body under a mapping; ``code`` gives it, ``encodings`` what it reads of the graph.

    Edges stand in compressed rows; `format_kernels` and `csc_kernel` are for other formats.
    """

    parameters = ""
    """Those of the function of a tile, behind the groups."""
    flattens = True
    """Tells whether statements may run over all rows of a tile at once, whatever their group (`nest.loops`)."""

    def __init__(
        self,
        mapping: str,
        statements: Sequence[Statement],
        arrays: dict[str, Any],
        local_arrays: Collection[str] = (),
        *,
        by_edges: bool = False,
        sharing: Sharing = USUAL,
        hubs: NestKernel | None = None,
    ) -> None:
        statements = simplest(mapping, statements)
        super().__init__(arrays)
        self.sharing = sharing
        self.hubs = hubs
        self._streamed: set[str] = set()
        self.levels = Levels.of(mapping, statements)
        by_edges &= self.flattens
        terms = self._terms(statements) if by_edges or (self.flattens and len(statements) > 1) else {}
        self.statements = [part for s in statements for part in terms.get(s.target.name, [s])]
        flat = narrow_maps(self.levels, self.statements, self.shapes) if self.flattens else []
        self.loops = loops(self.levels, self.statements, flat, self._sums(flat) if by_edges else ())
        self.homes = homes_of(self.loops, self.statements, self.shapes, [*local_arrays, *(f"{n}_term" for n in terms)])

    def _terms(self, statements: Sequence[Statement]) -> dict[str, list[Statement]]:
        """Reductions of computed narrow values, divided into a map, which vectorizes, and a reduction of its result."""
        maps = [replace(s, target=Ref(s.target.name), op="=") if s.target.path else s for s in statements]
        narrow, arrays = narrow_maps(self.levels, maps, self.shapes), frozenset(self.arrays)
        found: dict[str, list[Statement]] = {}
        for statement in statements:
            name, term = statement.target.name, f"{statement.target.name}_term"
            if term not in arrays and statement.target.path and name in narrow and not isinstance(statement.expr, Ref):
                self.arrays[term] = self.arrays[name]  # for its row shape
                value = Statement(statement.space, Ref(term), "=", statement.expr)
                found[name] = [value, replace(statement, expr=Ref(term))]
        return found

    def _sums(self, flat: Collection[str]) -> list[str]:
        """Targets of the reductions of values that are there for all rows of a tile into its outermost rows."""
        written = {s.target.name for s in self.statements}
        return [
            s.target.name
            for s in self.statements
            if s.space == self.levels.spaces[-1]
            and self.levels.up(s.space, self.levels.spaces[0]) == s.target.path != ""
            and isinstance(s.expr, Ref)
            and (s.expr.name in flat or (s.expr.path == "" and s.expr.name not in written))
            and size(self.shapes(s.expr)) == size(self.shapes(s.target))  # no broadcast
            and is_narrow(s, self.shapes)
        ]

    @property
    def kept_elements(self) -> int:
        """Elements of an innermost row in the tile's scratch."""
        return self._kept_width(self.levels.spaces[-1])

    def _kept_width(self, space: str) -> int:
        return sum(h.width for h in self.homes.values() if h.offset is not None and h.space == space)

    # The kernel

    def code(self) -> str:
        """The kernel, a block of C++ in which Value and Index are defined."""
        exprs = [e for s in self.statements for e in (s.expr, s.target)]
        work, outer = row_elements(self.shapes, exprs), self.levels.spaces[0]
        if len(self.levels.spaces) == 1:
            text = (
                f"dacergnn::parallel_ranges({extent(outer)}, {work}, {self.sharing.chunks}, "
                "[=](const int64_t first, const int64_t last) {\n"
                f"{self._loop(self.loops[0], f'row_{outer} = first', f'row_{outer} < last')}\n{self._end()}}});"
            )
            return f"{self._streams()}{text}{self._tails()}"
        tiles = [self._tile()]
        if self.hubs is not None:
            tiles.append(self.hubs._tile())
            self._used.update(self.hubs._used)
            self._streamed |= self.hubs._streamed
        return f"{self._streams()}struct Rows;\nstruct Owners;\n{self._call(work, ', '.join(tiles))}{self._tails()}"

    def _call(self, work: int, tiles: str) -> str:
        """The call that runs the function of a tile on all groups."""
        outer, inner = self.levels.spaces[0], self.levels.spaces[-1]
        start, bounds = self._bounds(outer, inner)
        sizes = f"{extent(outer)}, {work}, {self.sharing.tile_rows}, {self.sharing.chunks}"
        if self.hubs is not None:
            sizes += f", {self.sharing.hub_rows}"
        return f"{start}dacergnn::parallel_tiles({bounds}, {sizes}, {tiles});"

    def _tile(self) -> str:
        """The function of C++ that runs the body on a range of groups."""
        body = "\n".join(self._outermost(loop) for loop in self.loops)
        head = f"[=](const int64_t first, const int64_t last{self.parameters}) {{\n"
        return f"{head}{self._scratch()}{body}\n{self._end()}}}"

    def _streams(self) -> str:
        """Declarations of whether rows that are written once, and read by others only, pass by the caches."""
        return "".join(
            f"const bool past_{name} = dacergnn::streams<{self.homes[name].width}>"
            f"({PREFIX}{name}, {extent(self.homes[name].space)});\n"
            for name in sorted(self._streamed)
        )

    def _end(self) -> str:
        """Returns what comes after the last row of a tile."""
        return "dacergnn::end_stream();\n" if self._streamed else ""

    def _scratch(self) -> str:
        """Declarations of the tile's scratch: arrays that several loops touch, and the group of every row."""
        lines: list[str] = []
        kept = {n: h for n, h in self.homes.items() if h.offset is not None}
        total: list[str] = []
        outer = self.levels.spaces[0]
        for space in self.levels.spaces:
            width = self._kept_width(space)
            if not width and not (self.owners and space != outer):
                continue
            if space == outer:
                lines.append(f"const int64_t base_{space} = first, count_{space} = last - first;")
            else:
                base, count = self._span(outer, space)
                lines.append(f"const int64_t base_{space} = {base}, count_{space} = {count};")
            if width:
                total.append(f"count_{space} * {width}")
        if kept:
            lines.append(f"Value* const rows = dacergnn::scratch<Rows, Value>({' + '.join(total)});")
            before: list[str] = []
            for space in self.levels.spaces:
                for name, home in kept.items():
                    if home.space == space:
                        place = " + ".join([*before, f"count_{space} * {home.offset}"])
                        lines.append(f"Value* const kept_{name} = rows + {place};")
                width = self._kept_width(space)
                before += [f"count_{space} * {width}"] if width else []
        inner = self.levels.spaces[-1]
        if self.owners:
            lines.append(
                f"int32_t* const owners = dacergnn::scratch<Owners, int32_t>(count_{inner} * {len(self.owners)});"
            )
        for number, space in enumerate(self.owners):
            lines.append(self._owners(space, f"count_{inner} * {number}"))
        return "\n".join(lines) + "\n" if lines else ""

    def _owners(self, space: str, start: str) -> str:
        """Fills in, for every innermost row of the tile, which row of the level between it belongs to."""
        inner = self.levels.spaces[-1]
        row = f"const int64_t row = {self._row_at(inner, f'base_{inner} + p', self.levels.up(inner, space) or '')};\n"
        return (  # the innermost rows of a row stand together
            f"int32_t* const owner_{space} = owners + {start};\n"
            f"for (int64_t p = 0, place = -1, before = -1; p < count_{inner}; ++p) {{\n"
            f"{row}place += row != before;\nowner_{space}[p] = int32_t(place);\nbefore = row;\n}}"
        )

    # Loops

    def _outermost(self, loop: Loop) -> str:
        """A loop over a tile: over its groups, or over all their rows."""
        space, outer = loop.space, self.levels.spaces[0]
        if not loop.flat:
            return self._loop(loop, f"row_{space} = first", f"row_{space} < last")
        begin, end = self._start(outer, space, "first"), f"int64_t({self._start(outer, space, 'last')})"
        if loop.statements()[0].target.path:
            bounds = self._bounds(outer, space)[1]
            return self._flat_sums(loop, f"at_{space} = {begin}", f"at_{space} < {end}", bounds)
        return self._rows(loop, begin, end)

    def _rows(self, loop: Loop, begin: str, end: str) -> str:
        """A loop over rows by their places ``begin`` to ``end``."""
        return self._loop(loop, f"at_{loop.space} = {begin}", f"at_{loop.space} < {end}")

    def _flat_sums(self, loop: Loop, start: str, condition: str, bounds: str) -> str:
        """A loop over all rows of a tile that adds each to the sum of its group."""
        space = loop.space
        before: list[str] = []
        inside = [f"const int64_t group = {self._group(space)};"]
        after: list[str] = []
        for statement in loop.statements():
            name, home = statement.target.name, self.homes[statement.target.name]
            out, width, count = f"{PREFIX}{name} + first * {home.width}", home.width, f"(last - first) * {home.width}"
            assert isinstance(statement.expr, Ref)
            before.append(f"Value* const sums_{name} = {out if home.offset is None else f'kept_{name}'};")
            before.append(f"std::fill(sums_{name}, sums_{name} + {count}, {IDENTITY[statement.op]});")
            value = f"({self._source(statement, statement.expr)})[f]"
            inside.append(each(width, COMBINE[statement.op].format(f"(sums_{name} + group * {width})[f]", value)))
            if statement.op != "+=":
                after.append(f"for (int64_t g = first; g < last; ++g)\nif ({bounds}[g] == {bounds}[g + 1])")
                after.append(f"std::fill_n(sums_{name} + (g - first) * {width}, {width}, Value(0));")
            if home.offset is not None and home.stored:
                after.append(f"std::copy_n(sums_{name}, {count}, {out});")
        if any(f"row_{space}" in line for line in inside):
            inside.insert(0, f"const int64_t row_{space} = {self._row_at(space, f'at_{space}')};")
        body = "\n".join(inside)
        text = f"for (int64_t {start}; {condition}; ++at_{space}) {{\n{body}\n}}"
        return "{\n" + "\n".join([*before, text, *after]) + "\n}"

    def _loop(self, loop: Loop, start: str, condition: str) -> str:
        space = loop.space
        self.around[space] = loop
        variable = start.split(" = ")[0]
        lines: list[str] = []
        if not self._vectorizes(loop):
            lines.append(self._prefetches(loop, variable))
        lines += [*self._declarations(loop), *self._run(loop)]
        for item in loop.items:
            lines.append(self._statement(item, loop) if isinstance(item, Statement) else self._inner(item, loop))
        del self.around[space]
        if variable == f"at_{space}" and any(f"row_{space}" in line for line in lines):
            lines.insert(0, f"const int64_t row_{space} = {self._row_at(space, f'at_{space}')};")
        pragma = '_Pragma("omp simd")\n' if self._vectorizes(loop) else ""
        body = "\n".join(line for line in lines if line)
        return f"{pragma}for (int64_t {start}; {condition}; ++{variable}) {{\n{body}\n}}"

    def _inner(self, loop: Loop, outer: Loop) -> str:
        """A loop inside of another, with the results of its reductions."""
        space, inner = loop.space, self.levels.spaces[-1]
        top = self.levels.spaces[0]
        before = ""
        if outer.space == top:
            begin, end = self._start(top, space, f"row_{top}"), f"int64_t({self._stop(top, space, f'row_{top}')})"
            if space != inner and any(s.space == inner for s in loop.statements()):
                before += f"int64_t run_{inner} = {self._start(top, inner, f'row_{top}')};\n"
        else:
            begin, end = f"begin_{space}", f"end_{space}"
        text = self._rows(loop, begin, end)
        results = [
            self._result(s, f"{begin} == {end}")
            for s in loop.statements()
            if s.target.path and reached(s.space, s.target.path) == outer.space
        ]
        return "{\n" + "\n".join([before + text, *results]) + "\n}"

    def _prefetches(self, loop: Loop, variable: str) -> str:
        """Prefetches of the wide rows that a later row of the loop gathers."""
        space, lines = loop.space, dict[str, None]()
        at, places = f"{variable} + {PREFETCH_DISTANCE}", variable == f"at_{loop.space}"
        order = self.levels.up(space, self.levels.spaces[0]) or "one"
        own_order = places and self._list_of(space, order, "") is not None
        for statement in (s for s in loop.statements() if s.space == space):
            for ref in dict.fromkeys(statement.reads):
                width = size(row_shape(self.arrays[ref.name]))
                inside = ref.name in self.homes or self._enclosing(statement, ref) is not None
                if inside or is_few(ref.path) or width < LEAST_PREFETCHED or (ref.path == "" and not own_order):
                    continue
                row = self._row_at(space, at, ref.path)
                lines[f"dacergnn::prefetch_row<{width}>({PREFIX}{ref.name} + {row} * {width});"] = None
        for statement in (s for s in loop.statements() if s.space == space and not s.target.path):
            name, home = statement.target.name, self.homes[statement.target.name]
            if home.stored and own_order:
                lines[f"__builtin_prefetch({PREFIX}{name} + {self._row_at(space, at)} * {home.width}, 1);"] = None
        end = self._places(space) if places else extent(space)
        return f"if ({at} < {end}) {{\n" + "\n".join(lines) + "\n}" if lines else ""

    # Statements

    def _declarations(self, loop: Loop) -> list[str]:
        """Rows on the stack of a loop, with what reductions start from."""
        lines: list[str] = []
        for statement in self.statements:
            name, home = statement.target.name, self.homes[statement.target.name]
            if home.space != loop.space or statement not in loop.statements():
                continue
            if home.reduced:
                lines.append(accumulator(statement, home.width))
            elif home.loop is loop and not self._direct(statement):
                lines.append(f"Value own_{name}[{home.width}];")
        return lines

    def _direct(self, statement: Statement) -> bool:
        """Returns whether an own row goes to memory only, because nothing here reads it."""
        name = statement.target.name
        return self.homes[name].stored and not any(r.name == name for s in self.statements for r in s.reads)

    def _statement(self, statement: Statement, loop: Loop) -> str:
        """Loops over the elements of one row."""
        rows: dict[tuple[str, str], str] = {}
        sources: list[str] = []

        def pointer(ref: Ref) -> str:
            key = (ref.name, ref.path)
            if key not in rows:
                rows[key] = f"row{len(rows)}"
                sources.append(f"const Value* const {rows[key]} = {self._source(statement, ref)};")
            return rows[key]

        name, shape = statement.target.name, self.shapes(statement.target)
        home = self.homes[name]
        memory = f"{PREFIX}{name} + row_{statement.space} * {home.width}"
        goals, after = list[str](), list[str]()
        if statement.target.path:
            goals.append(f"own_{name}")
        else:
            if home.loop is not None and not self._direct(statement):
                goals.append(f"own_{name}")
            elif home.offset is not None:
                sources.append(f"Value* const kept = {self._kept(name, statement.space)};")
                goals.append("kept")
            if home.stored and not goals and home.width >= WIDE:
                sources.append(f"Value made[{home.width}];")
                goals.append("made")
                after.append(self._write(name, memory, "made"))
            elif home.stored:
                sources.append(f"Value* const out = {memory};")
                goals.append("out")

        def store(at: str, value: str) -> str:
            combine = COMBINE[statement.op]
            return "\n".join(combine.format(f"{goal}[{at}]", value) for goal in goals)

        emitter = Emitter(self.shapes, pointer, simd=not self._vectorizes(loop))
        body = emitter.loops(statement.expr, shape, store)
        return "{\n" + "\n".join([*sources, body, *after]) + "\n}"

    def _write(self, name: str, place: str, row: str) -> str:
        """Writes a wide row that nothing else here reads from memory."""
        self._streamed.add(name)
        return f"dacergnn::write_row<{self.homes[name].width}>({place}, {row}, past_{name});"

    def _vectorizes(self, loop: Loop) -> bool:
        """Returns whether a loop computes a few elements for each of many rows at a time."""
        return loop.flat and all(is_narrow(s, self.shapes) for s in loop.statements())

    def _result(self, statement: Statement, empty: str) -> str:
        """Returns what becomes of a reduced row when its loop has ended."""
        name, home = statement.target.name, self.homes[statement.target.name]
        lines: list[str] = []
        if statement.op != "+=":
            lines.append(f"if ({empty}) {{\n{each(home.width, f'own_{name}[f] = Value(0);')}\n}}")
        goals: list[str] = []
        if home.offset is not None:
            lines.append(f"Value* const kept = {self._kept(name, home.space)};")
            goals.append("kept")
        memory = f"{PREFIX}{name} + row_{home.space} * {home.width}"
        if home.stored and home.loop is not None and home.width >= WIDE:
            lines.append(self._write(name, memory, f"own_{name}"))
        elif home.stored:
            lines.append(f"Value* const out = {memory};")
            goals.append("out")
        lines += [each(home.width, f"{goal}[f] = own_{name}[f];") for goal in goals]
        return "{\n" + "\n".join(lines) + "\n}" if lines else ""

    def _tails(self) -> str:
        """Zeros for the rows of targets that the map does not reach."""
        text = ""
        for statement in self.statements:
            name, home = statement.target.name, self.homes[statement.target.name]
            owner = row_space(self.arrays[name])
            if home.stored and target_is_prefix(statement, owner):
                start = f"{PREFIX}{name} + {extent(home.space)} * {home.width}"
                text += f"\nstd::fill({start}, {PREFIX}{name} + {extent(owner)} * {home.width}, Value(0));"
        return text

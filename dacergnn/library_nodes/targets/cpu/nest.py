"""Writes the C++ of the plan of a loop nest: loops over tiles, groups and rows, and statements of a body inside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dacergnn.library_nodes.form import Ref
from dacergnn.library_nodes.node import PREFIX
from dacergnn.library_nodes.targets.cpp import extent
from dacergnn.library_nodes.targets.cpu import formats
from dacergnn.library_nodes.targets.cpu.reductions import COMBINE, IDENTITY, accumulator, each
from dacergnn.library_nodes.targets.emit import Emitter, named_rows
from dacergnn.library_nodes.traversal.places import Number, Place, Pointers
from dacergnn.library_nodes.traversal.plan import PREFETCH_DISTANCE, NestLoop, NestPlan, Step

Knobs = Mapping[str, object]
"""Numbers that the schedule leaves to each call, or the names of the arguments that hold them."""


def nest_code(plan: NestPlan, knobs: Knobs) -> str:
    """Returns the kernel, a block of C++ that uses the types Value and Index."""
    text = NestText(plan)
    outer = plan.levels.spaces[0]
    if plan.columns is not None:
        return f"{text.streams()}{_by_columns(text)}{text.tails()}"
    if len(plan.levels.spaces) == 1:
        (loop,) = plan.loops
        code = (
            f"dacergnn::parallel_ranges({extent(outer)}, {plan.work}, {knobs['chunks']}, "
            "[=](const int64_t first, const int64_t last) {\n"
            f"{text.loop(loop, f'row_{outer} = first', f'row_{outer} < last')}\n{text.end()}}});"
        )
        return f"{text.streams()}{code}{text.tails()}"
    tiles = [text.tile()]
    if plan.hubs is not None:
        tiles.append(NestText(plan.hubs, in_chunks=True).tile())
    driver = formats.driver(plan, knobs, ", ".join(tiles))
    return f"{text.streams()}struct Rows;\nstruct Owners;\n{driver}{text.tails()}"


def _by_columns(text: NestText) -> str:
    """Returns a call with a function of a range of targets: it visits all edges and takes those that lead there."""
    plan = text.plan
    assert plan.columns is not None
    columns, edges, targets = plan.columns.spaces[0], *reversed(plan.levels.spaces)
    first, *later = plan.loops
    body = [*_zeros(plan), text.loop(first, f"row_{columns} = 0", f"row_{columns} < {extent(columns)}")]
    body += [text.loop(loop, f"row_{targets} = first", f"row_{targets} < last") for loop in later]
    body += _rounded_sums(plan)
    return (
        f"struct Rows;\ndacergnn::parallel_targets({extent(targets)}, {extent(edges)}, {plan.work}, "
        "[=](const int64_t first, const int64_t last) {\n" + "\n".join(body) + f"\n{text.end()}}});"
    )


def _zeros(plan: NestPlan) -> list[str]:
    """Declares the sums of a range of targets, set to zero: in memory, or in scratch if nothing else reads them."""
    reduced = [(name, home) for name, home in plan.homes.items() if home.reduced]
    kept = sum(home.width for name, home in reduced if plan.arrays.rounds(name) or not home.stored)
    lines = [f"Value* const rows = dacergnn::scratch<Rows, Value>((last - first) * {kept});"] if kept else []
    offset = 0
    for name, home in reduced:
        in_memory = home.stored and not plan.arrays.rounds(name)
        place = f"{PREFIX}{name} + first * {home.width}" if in_memory else f"rows + (last - first) * {offset}"
        offset += 0 if in_memory else home.width
        lines.append(f"Value* const sums_{name} = {place};")
        lines.append(f"std::fill_n(sums_{name}, (last - first) * {home.width}, Value(0));")
    return lines


def _rounded_sums(plan: NestPlan) -> list[str]:
    """Writes the sums of a range of targets to memory, which holds fewer digits."""
    return [
        f"std::copy_n(sums_{name}, (last - first) * {home.width}, {PREFIX}{name} + first * {home.width});"
        for name, home in plan.homes.items()
        if home.reduced and home.stored and plan.arrays.rounds(name)
    ]


@dataclass(frozen=True)
class NestText:
    """Prints the parts of a plan. With ``in_chunks``, all threads share the rows of its innermost loops.

    Every chunk has accumulators of its own for the reductions of its loop, which are merged in the order of the chunks:
    results do not depend on the number of threads. ``converted`` names the copies of rows of 16 bits that the loops
    around have made, by the pointers to these rows.
    """

    plan: NestPlan
    in_chunks: bool = False
    converted: Mapping[str, str] = field(default_factory=dict[str, str])

    def tile(self) -> str:
        """Returns the C++ function that runs the body on a range of groups."""
        body = "\n".join(self._outermost(loop) for loop in self.plan.loops)
        head = f"[=](const int64_t first, const int64_t last{formats.parameters(self.plan)}) {{\n"
        return f"{head}{self._scratch()}{body}\n{self.end()}}}"

    def streams(self) -> str:
        """Declares whether rows that are written once, and read only by other operators, go past the caches."""
        return "".join(
            f"const bool past_{name} = dacergnn::streams<{self.plan.homes[name].width}>"
            f"({PREFIX}{name}, {extent(self.plan.homes[name].space)});\n"
            for name in sorted(self.plan.streamed)
        )

    def end(self) -> str:
        """Returns the code after the last row of a tile."""
        streams = any(step.streams for top in self.plan.loops for step in top.everything())
        return "dacergnn::end_stream();\n" if streams else ""

    def tails(self) -> str:
        """Returns code that fills the rows of targets that the map does not reach with zeros."""
        text = ""
        for name, home in self.plan.homes.items():
            owner = self.plan.arrays[name].space
            if home.stored and home.space != owner:
                start = f"{PREFIX}{name} + {extent(home.space)} * {home.width}"
                text += f"\nstd::fill({start}, {PREFIX}{name} + {extent(owner)} * {home.width}, Value(0));"
        return text

    # Scratch

    def _scratch(self) -> str:
        """Declares the tile's scratch: arrays that several loops touch, and the middle row of every innermost row."""
        plan, spaces = self.plan, self.plan.levels.spaces
        outer, inner = spaces[0], spaces[-1]
        lines: list[str] = []
        kept = {n: h for n, h in plan.homes.items() if h.offset is not None}
        total: list[str] = []
        for space in spaces:
            width = plan.kept_width(space)
            if not width and not (plan.owners and space != outer):
                continue
            if space == outer:
                lines.append(f"const int64_t base_{space} = first, count_{space} = last - first;")
            else:
                base, count = formats.span(plan, space)
                lines.append(f"const int64_t base_{space} = {base}, count_{space} = {count};")
            if width:
                total.append(f"count_{space} * {width}")
        if kept:
            lines.append(f"Value* const rows = dacergnn::scratch<Rows, Value>({' + '.join(total)});")
            before: list[str] = []
            for space in spaces:
                for name, home in kept.items():
                    if home.space == space:
                        place = " + ".join([*before, f"count_{space} * {home.offset}"])
                        lines.append(f"Value* const kept_{name} = rows + {place};")
                width = plan.kept_width(space)
                before += [f"count_{space} * {width}"] if width else []
        if plan.owners:
            size = f"count_{inner} * {len(plan.owners)}"
            lines.append(f"int32_t* const owners = dacergnn::scratch<Owners, int32_t>({size});")
        for number, (space, row) in enumerate(plan.owners):
            lines.append(self._owners(space, row, f"count_{inner} * {number}"))
        return "\n".join(lines) + "\n" if lines else ""

    def _owners(self, space: str, row: Number, start: str) -> str:
        """Returns code that finds the row of the middle level for every innermost row of the tile."""
        inner = self.plan.levels.spaces[-1]
        return (  # the innermost rows of a row are neighbors
            f"int32_t* const owner_{space} = owners + {start};\n"
            f"for (int64_t p = 0, place = -1, before = -1; p < count_{inner}; ++p) {{\n"
            f"const int64_t row = {number_text(row)};\n"
            f"place += row != before;\nowner_{space}[p] = int32_t(place);\nbefore = row;\n}}"
        )

    # Loops

    def _outermost(self, loop: NestLoop) -> str:
        """Returns a loop over a tile: over its groups, or over all their rows."""
        space = loop.space
        if not loop.of_tile:
            return self.loop(loop, f"row_{space} = first", f"row_{space} < last")
        assert loop.span is not None
        begin, end = formats.start(loop.span, "first"), f"int64_t({formats.start(loop.span, 'last')})"
        if loop.group is not None:
            return self._sums_of_tile(loop, f"at_{space} = {begin}", f"at_{space} < {end}", loop.span, loop.group)
        return self._rows(loop, begin, end)

    def _rows(self, loop: NestLoop, begin: str, end: str) -> str:
        """Returns a loop over rows by their places ``begin`` to ``end``."""
        if self.in_chunks and loop.is_leaf:  # else the loops inside of it are divided
            return self._chunks(loop, begin, end)
        if self.plan.form.splits:
            return formats.both_parts(self.plan, begin, end, self._places(loop, "from", "to"))
        return self._places(loop, begin, end)

    def _places(self, loop: NestLoop, begin: str, end: str) -> str:
        return self.loop(loop, f"at_{loop.space} = {begin}", f"at_{loop.space} < {end}")

    def _chunks(self, loop: NestLoop, begin: str, end: str) -> str:
        before: list[str] = []
        after: list[str] = []
        merged: list[str] = []
        width = 0
        for statement in (step.statement for step in loop.steps() if step.statement.target.path):
            own, size = f"own_{statement.target.name}", self.plan.homes[statement.target.name].width
            before.append(accumulator(statement, size))
            after.append(each(size, f"(into + {width})[f] = {own}[f];"))
            merged.append(each(size, COMBINE[statement.op].format(f"{own}[f]", f"(partial + {width})[f]")))
            width += size
        return (
            f"dacergnn::split_rows<Value>({begin}, {end}, {width}, "
            "[=](const int64_t from, const int64_t to, Value* const into) {\n"
            + "\n".join([*before, self._places(loop, "from", "to"), *after])
            + "\n}, [&](const Value* const partial) {\n"
            + "\n".join(merged)
            + "\n});"
        )

    def _sums_of_tile(self, loop: NestLoop, start: str, condition: str, span: Pointers, group: Number) -> str:
        """Returns a loop over all rows of a tile that adds each to the sum of its group."""
        space, bounds = loop.space, formats.array(span)
        before: list[str] = []
        inside = [self._row(loop), f"const int64_t group = {number_text(group)} - first;"]
        after: list[str] = []
        for step in loop.steps():
            statement = step.statement
            name, home = statement.target.name, self.plan.homes[statement.target.name]
            out, width, count = f"{PREFIX}{name} + first * {home.width}", home.width, f"(last - first) * {home.width}"
            assert isinstance(statement.expr, Ref)
            (goal,), (source,) = step.goals, step.reads.values()
            before.append(f"Value* const sums_{name} = {f'kept_{name}' if goal.where == 'scratch' else out};")
            before.append(f"std::fill(sums_{name}, sums_{name} + {count}, {IDENTITY[statement.op]});")
            value = f"Value(({self._pointer(source)})[f])"
            inside.append(each(width, COMBINE[statement.op].format(f"(sums_{name} + group * {width})[f]", value)))
            if statement.op != "+=":
                after.append(f"for (int64_t g = first; g < last; ++g)\nif ({bounds}[g] == {bounds}[g + 1])")
                after.append(f"std::fill_n(sums_{name} + (g - first) * {width}, {width}, Value(0));")
            if goal.where == "scratch" and home.stored:
                after.append(f"std::copy_n(sums_{name}, {count}, {out});")
        body = "\n".join(line for line in inside if line)
        text = f"for (int64_t {start}; {condition}; ++at_{space}) {{\n{body}\n}}"
        return "{\n" + "\n".join([*before, text, *after]) + "\n}"

    def loop(self, loop: NestLoop, start: str, condition: str) -> str:
        """Returns a loop with all that is inside it."""
        lines = [self._row(loop), self._prefetches(loop), *self._declarations(loop), *self._run(loop)]
        inside = self
        for pointer, width in self._conversions(loop).items():
            name = f"values{len(inside.converted)}"
            lines += [f"Value {name}[{width}];", f"dacergnn::copy_row<{width}, false>({pointer}, Value(1), {name});"]
            inside = replace(inside, converted={**inside.converted, pointer: name})
        lines += [inside._step(item, loop) if isinstance(item, Step) else inside._inner(item) for item in loop.items]
        pragma = "DACERGNN_SIMD\n" if loop.vectorizes else ""
        body = "\n".join(line for line in lines if line)
        return f"{pragma}for (int64_t {start}; {condition}; ++{loop.variable}) {{\n{body}\n}}"

    def _conversions(self, loop: NestLoop) -> dict[str, int]:
        """Returns the pointers to rows in memory that steps convert for a row of this loop, and the widths of these."""
        variables, arrays = (f"row_{loop.space}", f"at_{loop.space}"), self.plan.arrays
        pointers: dict[str, int] = {}
        for place in (place for step in loop.steps() for place in step.reads.values()):
            read_only = place.where == "memory" and place.array not in self.plan.homes
            if read_only and place.row is not None and place.row.variable in variables and arrays.converts(place.array):
                pointers[self._pointer(place)] = arrays.converts(place.array)
        return pointers

    def _row(self, loop: NestLoop) -> str:
        return f"const int64_t row_{loop.space} = {number_text(loop.row)};" if loop.row is not None else ""

    def _run(self, loop: NestLoop) -> list[str]:
        """Declares the part of the innermost rows that belongs to a row in the middle of three levels."""
        if loop.run is None:
            return []
        inner, bounds = self.plan.levels.spaces[-1], formats.array(loop.run)
        return [
            f"const int64_t begin_{inner} = run_{inner};",
            f"run_{inner} += {bounds}[row_{loop.space} + 1] - {bounds}[row_{loop.space}];",
            f"const int64_t end_{inner} = run_{inner};",
        ]

    def _inner(self, loop: NestLoop) -> str:
        """Returns a loop inside another one, with the results of its reductions."""
        space, inner = loop.space, self.plan.levels.spaces[-1]
        before = ""
        begin, end = f"begin_{space}", f"end_{space}"
        if loop.span is not None:
            row = f"row_{(self.plan.columns or self.plan.levels).spaces[0]}"
            begin, end = formats.start(loop.span, row), f"int64_t({formats.stop(loop.span, row)})"
            if loop.first_run is not None:
                before = f"int64_t run_{inner} = {formats.start(loop.first_run, row)};\n"
        results = [self._result(step, f"{begin} == {end}") for step in loop.results]
        return "{\n" + "\n".join([before + self._rows(loop, begin, end), *results]) + "\n}"

    def _prefetches(self, loop: NestLoop) -> str:
        """Returns prefetches of rows that a later round of the loop touches."""
        lines: list[str] = []
        for fetch in loop.prefetches:
            width, row = self.plan.arrays.width(fetch.array), number_text(fetch.row)
            place = f"{PREFIX}{fetch.array} + {row} * {width}"
            lines.append(
                f"__builtin_prefetch({place}, 1);" if fetch.writes else f"dacergnn::prefetch_row<{width}>({place});"
            )
        at = f"{loop.variable} + {PREFETCH_DISTANCE}"
        end = formats.places(self.plan, loop.space) if loop.variable.startswith("at_") else extent(loop.space)
        return f"if ({at} < {end}) {{\n" + "\n".join(lines) + "\n}" if lines else ""

    # Statements

    def _declarations(self, loop: NestLoop) -> list[str]:
        """Declares the rows on the stack of a loop, with the start values of reductions."""
        lines: list[str] = []
        if self.plan.columns is not None and self.plan.target is not None and loop.space in self.plan.levels.spaces:
            targets, edges = self.plan.levels.spaces
            if loop.space == edges:
                lines.append(f"const int64_t row_{targets} = {number_text(self.plan.target)};")
                lines.append(f"if (row_{targets} < first || row_{targets} >= last) continue;")
            for name, home in self.plan.homes.items():
                if home.reduced:
                    place = f"sums_{name} + (row_{targets} - first) * {home.width}"
                    lines.append(f"Value* const own_{name} = {place};")
        for statement in loop.stacked:
            name, home = statement.target.name, self.plan.homes[statement.target.name]
            lines.append(accumulator(statement, home.width) if home.reduced else f"Value own_{name}[{home.width}];")
        return lines

    def _step(self, step: Step, loop: NestLoop) -> str:
        """Returns loops over the elements of one row."""

        def place_of(ref: Ref) -> str:
            place = self._pointer(step.reads[ref.name, ref.path])
            return self.converted.get(place, place)

        pointer, sources = named_rows(place_of)
        statement = step.statement
        name = statement.target.name
        shapes, home = self.plan.arrays.shapes, self.plan.homes[name]
        goals, after = list[str](), list[str]()
        for place in step.goals:
            if place.where == "stack":
                goals.append(f"own_{name}")
            elif place.where == "scratch":
                sources.append(f"Value* const kept = {self._pointer(place)};")
                goals.append("kept")
            elif step.streams or self.plan.arrays.converts(name):
                sources.append(f"Value made[{home.width}];")
                goals.append("made")
                after.append(self._write(step, self._pointer(place), "made"))
            else:
                sources.append(f"auto* const out = {self._pointer(place)};")
                goals.append("out")

        def store(at: str, value: str) -> str:
            combine = COMBINE[statement.op]
            return "\n".join(combine.format(f"{goal}[{at}]", value) for goal in goals)

        emitter = Emitter(shapes, pointer, simd=not loop.vectorizes)
        body = emitter.loops(statement.expr, shapes(statement.target), store)
        return "{\n" + "\n".join([*sources, body, *after]) + "\n}"

    def _result(self, step: Step, empty: str) -> str:
        """Returns code that stores a reduced row when its loop has ended."""
        name = step.statement.target.name
        width = self.plan.homes[name].width
        lines: list[str] = []
        if step.statement.op != "+=":
            lines.append(f"if ({empty}) {{\n{each(width, f'own_{name}[f] = Value(0);')}\n}}")
        goals: list[str] = []
        for place in step.goals:
            if place.where == "scratch":
                lines.append(f"Value* const kept = {self._pointer(place)};")
                goals.append("kept")
            elif step.streams or self.plan.arrays.converts(name):
                lines.append(self._write(step, self._pointer(place), f"own_{name}"))
            else:
                lines.append(f"auto* const out = {self._pointer(place)};")
                goals.append("out")
        lines += [each(width, f"{goal}[f] = own_{name}[f];") for goal in goals]
        return "{\n" + "\n".join(lines) + "\n}" if lines else ""

    def _write(self, step: Step, place: str, row: str) -> str:
        """Returns the write of a wide row that nothing else here reads from memory."""
        name = step.statement.target.name
        past = f"past_{name}" if step.streams else "false"
        return f"dacergnn::write_row<{self.plan.homes[name].width}>({place}, {row}, {past});"

    def _pointer(self, place: Place) -> str:
        """Returns the pointer to a row."""
        name, width = place.array, self.plan.arrays.width(place.array)
        if place.where == "stack":
            return f"own_{name}"
        assert place.row is not None
        row = number_text(place.row)
        if place.where == "memory":
            return f"{PREFIX}{name} + {row} * {width}"
        row = f"({row} - {place.base})" if place.base else row
        return f"kept_{name} + {row} * {width}"


def number_text(number: Number) -> str:
    """Returns the number of a row as C++."""
    if number.owner is not None:
        return f"owner_{number.owner}[{number.variable}]"
    if number.encoding is not None:
        return f"int64_t({PREFIX}{number.encoding}[{number.variable}])"
    return number.variable

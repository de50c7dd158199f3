"""Writes the CUDA of the plan of a loop nest: a crew has an outermost row; in nests of one level, a team has a row."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dacergnn.library_nodes.form import Op, Ref, Statement, size
from dacergnn.library_nodes.node import PREFIX
from dacergnn.library_nodes.shapes import shape_of
from dacergnn.library_nodes.targets.cpp import extent
from dacergnn.library_nodes.targets.cpu.reductions import COMBINE
from dacergnn.library_nodes.targets.cuda.addresses import kind_of, number_text, pointer_to
from dacergnn.library_nodes.targets.cuda.lanes import UNROLL, LaneEmitter, lane_sums
from dacergnn.library_nodes.targets.cuda.launches import Launches
from dacergnn.library_nodes.targets.cuda.loads import EACH, Load, Loads, divisors_of, load_lines, load_of
from dacergnn.library_nodes.traversal.device_plan import MOST_PARTS, DeviceLoop, DevicePlan, DeviceStep, HubPart, Read
from dacergnn.library_nodes.traversal.storage import WIDE

MERGE = {"+=": "Sum", "max=": "Maximum", "min=": "Minimum"}
IDENTITY = {"+=": "Value(0)", "max=": "-dacergnn::cuda::kInfinity<Value>", "min=": "dacergnn::cuda::kInfinity<Value>"}


def nest_launches(plan: DevicePlan) -> Launches:
    """Returns the host code that runs a nest, C++ that uses the types Storage, Value and Index."""
    text = NestText(plan)
    if plan.chunks is not None:
        return Launches(text.before(), [text.lone_sum(plan.chunks)])
    outer = plan.levels.spaces[0]
    row = f"const int64_t row_{outer}"
    if plan.groups is None:
        head = f"traverse_rows<{plan.lanes.lanes}>({extent(outer)}, [=] __device__({row}) {{"
    else:
        sizes = f"{plan.crew}, Value, {plan.held}"
        head = f"traverse_groups<{sizes}>({text.groups()}, [=] __device__(const auto crew, {row}) {{"
    main = f"{head}\n(void)row_{outer};\n{text.body(plan.loop)}\n}}"
    calls = [f"{main})"]
    if plan.parts:
        first, *later = (text.part(part) for part in plan.parts)
        calls = [f"{main}, {first})"]
        calls += [f"traverse_hubs<Value, {plan.held}>({text.groups()}, {body})" for body in later]
    return Launches(text.before(), [*calls, *text.tails()])


@dataclass(frozen=True)
class NestText:
    """Prints the parts of a plan."""

    plan: DevicePlan

    def before(self) -> str:
        """Returns the host code before the launches."""
        plan = self.plan
        runs = ", ".join(PREFIX + name for name in plan.in_runs)
        lines = [f"dacergnn::cuda::check_alignment({{{runs}}});"] if runs else []
        for name in plan.kept if plan.chunks is None else ():
            rows = f"{extent(plan.homes[name].space)} * {plan.homes[name].width}"
            lines.append(f"Value* const kept_{name} = dacergnn::cuda::take<Value>({rows});")
        for kind, name in plan.partial:
            rows = f"{MOST_PARTS} * {plan.homes[name].width}"
            lines.append(f"Value* const {kind}_{name} = dacergnn::cuda::take<Value>({rows});")
        return "\n".join([*lines, ""])

    def groups(self) -> str:
        """Returns the groups, and their number, as arguments of a launch."""
        outer, inner = self.plan.levels.spaces[0], self.plan.levels.spaces[-1]
        assert self.plan.groups is not None
        name = self.plan.groups.encoding
        pointers = PREFIX + name if name else "nullptr"
        return f"dacergnn::cuda::Groups<Index>{{{pointers}, {extent(inner)}}}, {extent(outer)}"

    def tails(self) -> list[str]:
        """Returns launches that fill the rows of targets that the map does not reach with zeros."""
        tails: list[str] = []
        for name, home in self.plan.homes.items():
            space = self.plan.arrays[name].space
            if home.stored and home.space != space:
                owner, start = extent(space), f"{extent(home.space)} * {home.width}"
                tails.append(
                    f"traverse_rows<1>({owner} * {home.width} - {start}, "
                    f"[=] __device__(const int64_t i) {{ {PREFIX}{name}[{start} + i] = Storage(0); }})"
                )
        return tails

    def lone_sum(self, chunks: int) -> str:
        """Returns the launches of a sum into few groups, which all threads share; wide rows are cut into strips."""
        plan = self.plan
        outer, inner = plan.levels.spaces
        (rows,) = (item for item in plan.loop.items if isinstance(item, DeviceLoop))
        ((result, own),) = rows.results
        statement = result.statement
        target = statement.target.name
        width, combine = plan.homes[target].width, MERGE[statement.op]
        strips = plan.held_by(target).strips(width)
        partials = f"dacergnn::cuda::take<Value>(({chunks} + {extent(outer)}) * {width})"
        lines = [
            *self._declarations(plan.loop),
            *self._divisors(rows),
            self._rows(rows, f"begin_{inner}", f"end_{inner}"),
        ]
        lines += [self._merged(statement, own), self._stored_row(target, "into")]
        body = "\n".join(line for line in lines)
        return (
            f"reduce_chunks<dacergnn::cuda::{combine}, {plan.held}>({self.groups()}, "
            f"{extent(inner)}, {chunks}, {width}, {strips}, {partials}, "
            f"{PREFIX}{target}, [=] __device__(const dacergnn::cuda::Block crew, const int64_t begin_{inner}, "
            f"const int64_t end_{inner}, const int64_t row_{outer}, const int strip, Value* const into) {{\n"
            f"(void)row_{outer};\n(void)strip;\n{body}\n}})"
        )

    # Hubs

    def part(self, part: HubPart) -> str:
        """Returns a functor that computes a block's part of a hub."""
        top = self.plan.loop
        items: list[str] = []
        for item in part.items:
            if isinstance(item, DeviceLoop):
                items.append(self._share(item))
            elif isinstance(item, DeviceStep):
                items.append(self._step(item, top, {}))
            else:
                items.append(self._together(item[0]))
        lines = [
            "[=] __device__(const dacergnn::cuda::Part part) {",
            "if (part.number > 0) return;" if part.last else "",
            "const dacergnn::cuda::Block crew{};\n(void)crew;",
            f"const int64_t row_{top.space} = part.group;\n(void)row_{top.space};",
            *self._declarations(replace(top, stacked=tuple(s for s in top.stacked if s.target.name in part.used))),
            *items,
        ]
        return "\n".join(line for line in lines if line) + "\n}"

    def _share(self, loop: DeviceLoop) -> str:
        """Returns code that runs a part of a loop and stores its partial results."""
        space = loop.space
        begin, end, first, last = (f"{name}_{space}" for name in ("begin", "end", "from", "to"))
        lines = [
            *self._range(loop, begin, end),
            f"const int64_t {first} = part.begin({begin}, {end}), {last} = part.end({begin}, {end});",
            *self._divisors(loop),
            self._rows(loop, first, last),
        ]
        for step in (item for item in loop.items if isinstance(item, DeviceStep)):
            if step.statement.target.path:
                name = step.statement.target.name
                row = f"part_{name} + part.chunk() * {self.plan.homes[name].width}"
                lines += [self._merged(step.statement, loop), self._stored_row(name, row)]
        return "{\n" + "\n".join(lines) + "\n}"

    def _together(self, step: DeviceStep) -> str:
        """Returns code that combines the partial results of a loop."""
        name = step.statement.target.name
        held = self.plan.held_by(name)
        sizes = f"{held.lanes}, {held.vector}, {self.plan.homes[name].width}"
        merge = f"dacergnn::cuda::merge_parts<{sizes}>(crew, part, part_{name}, own_{name}"
        return f"{merge}, dacergnn::cuda::{MERGE[step.statement.op]}());\n{self._result(step, None)}"

    # Loops

    def body(self, loop: DeviceLoop) -> str:
        """Returns the code for a row of a loop, whose number or place is known."""
        lines = [f"const int64_t row_{loop.space} = {number_text(loop.row)};" if loop.row is not None else ""]
        return "\n".join(line for line in [*lines, *self._computed(loop, {})] if line)

    def _computed(self, loop: DeviceLoop, loads: Loads) -> list[str]:
        """Returns the code for a row of a loop, behind the line with its number."""
        items = [
            self._step(item, loop, loads) if isinstance(item, DeviceStep) else self._inner(item) for item in loop.items
        ]
        return [*self._declarations(loop), *self._run(loop), *items]

    def _batch(self, loop: DeviceLoop) -> str:
        """Returns a function that loads what it can of some rows before it computes with them."""
        space, loads = loop.space, self._loads(loop)
        step = f"dacergnn::cuda::teams<{loop.lanes.lanes}>(crew)"
        at = f"const int64_t at_{space} = first + u * {step};\n(void)at_{space};"
        numbers = numbered = ""
        if loop.row is not None:
            numbers = "int64_t rows[kBatch];"
            numbered = f"const int64_t row_{space} = rows[u] = {number_text(loop.row)};\n(void)row_{space};"
        row = f"const int64_t row_{space} = rows[u];\n(void)row_{space};" if numbers else ""
        lines = [
            "[&](const auto batch, const int64_t first) {",
            "constexpr int kBatch = decltype(batch)::value;",
            numbers,
            *load_lines(loads.values(), f"{at}\n{numbered}"),
            f"{EACH} {{\n{at}",
            row,
            *self._computed(loop, loads),
            "}\n}",
        ]
        return "\n".join(line for line in lines if line)

    def _loads(self, loop: DeviceLoop) -> Loads:
        """Returns the loads that a loop makes ahead of its arithmetic."""
        loads: dict[tuple[str, str], Load] = {}
        for step in (item for item in loop.items if isinstance(item, DeviceStep)):
            for key, source in step.reads.items():
                if key in loop.ahead and key not in loads:
                    name, width = f"ahead{len(loads)}", self.plan.arrays.width(key[0])
                    constant = key[0] not in self.plan.homes
                    lanes = loop.lanes if width >= WIDE else None
                    loads[key] = load_of(
                        name, kind_of(source.memory), pointer_to(self.plan, source.memory), width, lanes, constant
                    )
        return loads

    def _divisors(self, loop: DeviceLoop) -> list[str]:
        """Returns the divisors of a loop, which are the same for all its rows."""
        lines: dict[str, str] = {}
        for step in (item for item in loop.items if isinstance(item, DeviceStep)):
            for name in sorted(divisors_of(step.statement.expr)):
                read = next((r for (array, _), r in step.reads.items() if array == name), None)
                if read is not None and self._divides(name, read, loop):
                    width = self.plan.arrays.width(name)
                    lines[name] = (
                        f"dacergnn::cuda::Divisor<Value> over_{name}[{width}];\n"
                        f"{UNROLL}for (int n = 0; n < {width}; ++n)\n"
                        f"over_{name}[n] = dacergnn::cuda::Divisor<Value>(own_{name}[n]);"
                    )
        return [*lines.values()]

    def _divides(self, name: str, read: Read, loop: DeviceLoop) -> bool:
        """Returns whether a row that all rows of a loop share is at hand as divisors."""
        return (
            loop.leaf
            and read.registers
            and self.plan.arrays.width(name) < WIDE
            and (self.plan.homes[name].space != loop.space)
        )

    def _run(self, loop: DeviceLoop) -> list[str]:
        """Declares the part of the innermost rows that belongs to a row in the middle of three levels."""
        if loop.run is None:
            return []
        inner, bounds = self.plan.levels.spaces[-1], f"{PREFIX}{loop.run.encoding}"
        return [
            f"const int64_t begin_{inner} = run_{inner};",
            f"run_{inner} += {bounds}[row_{loop.space} + 1] - {bounds}[row_{loop.space}];",
            f"const int64_t end_{inner} = run_{inner};",
        ]

    def _rows(self, loop: DeviceLoop, begin: str, end: str) -> str:
        """Returns a loop over rows by their places ``begin`` to ``end``."""
        at, first, step = f"at_{loop.space}", begin, "1"
        if loop.leaf:
            lanes = loop.lanes.lanes
            first, step = f"{begin} + dacergnn::cuda::rank<{lanes}>(crew)", f"dacergnn::cuda::teams<{lanes}>(crew)"
        if loop.batch > 1:
            text = f"dacergnn::cuda::in_batches<{loop.batch}>({first}, {end}, {step}, {self._batch(loop)});"
            return f"{text}\ncrew.sync();" if loop.syncs else text
        text = f"for (int64_t {at} = {first}; {at} < {end}; {at} += {step}) {{\n{self.body(loop)}\n}}"
        return f"{text}\ncrew.sync();" if loop.syncs else text

    def _inner(self, loop: DeviceLoop) -> str:
        """Returns a loop inside another one, with the results of its reductions."""
        top, inner = self.plan.levels.spaces[0], self.plan.levels.spaces[-1]
        begin, end = f"begin_{loop.space}", f"end_{loop.space}"
        lines = self._range(loop, begin, end)
        if loop.first_run is not None:
            lines.append(f"int64_t run_{inner} = {PREFIX}{loop.first_run.encoding}[row_{top}];")
        lines += [*self._divisors(loop), self._rows(loop, begin, end)]
        for step, own in loop.results:
            lines += [self._merged(step.statement, own), self._result(step, f"{begin} == {end}")]
        return "{\n" + "\n".join(line for line in lines if line) + "\n}"

    def _range(self, loop: DeviceLoop, begin: str, end: str) -> list[str]:
        """Declares the places of the rows of the current outermost row."""
        top = self.plan.levels.spaces[0]
        if loop.span is None:
            return []
        if loop.span.encoding is None:  # one group
            return [f"const int64_t {begin} = 0, {end} = {extent(loop.space)};"]
        bounds = PREFIX + loop.span.encoding
        return [f"const int64_t {begin} = {bounds}[row_{top}], {end} = {bounds}[row_{top} + 1];"]

    def _declarations(self, loop: DeviceLoop) -> list[str]:
        """Declares registers for the rows of a loop, with the start values of reductions."""
        lines: list[str] = []
        for statement in loop.stacked:
            name = statement.target.name
            registers = f"Value own_{name}[{self.plan.held_by(name).held(self.plan.arrays.width(name))}];"
            if self.plan.homes[name].reduced:
                start = f"for (auto& value : own_{name}) value = {IDENTITY[statement.op]};"
                registers = f"{registers}\n{UNROLL}{start}"
            lines.append(registers)
        return lines

    # Statements

    def _step(self, step: DeviceStep, loop: DeviceLoop, loads: Loads) -> str:
        """Returns code that computes one row: all elements, or those that the lane holds."""
        statement, shapes = step.statement, self.plan.arrays.shapes
        name, lanes = statement.target.name, loop.lanes
        lines: list[str] = []
        pointers: dict[tuple[str, str], str] = {}

        def read(ref: Ref, at: str, same: bool) -> str:
            source = step.reads[ref.name, ref.path]
            whole = self.plan.arrays.width(ref.name) < WIDE
            if source.registers and (whole or same):
                return f"own_{ref.name}[{at if whole else 'held'}]"
            key = (ref.name, ref.path)
            ahead = loads.get(key)
            if ahead is not None and (same or whole):
                return ahead.element(at, same)
            if key not in pointers:
                pointers[key] = f"row{len(pointers)}"
                lines.append(f"const auto* const {pointers[key]} = {pointer_to(self.plan, source.memory)};")
            constant = ref.name not in self.plan.homes
            if same and lanes.vector > 1:
                return emitter.load(pointers[key], constant)
            return f"Value(__ldg({pointers[key]} + {at}))" if constant else f"Value({pointers[key]}[{at}])"

        def divisor(ref: Ref) -> str | None:
            return f"over_{ref.name}" if self._divides(ref.name, step.reads[ref.name, ref.path], loop) else None

        if name in self.plan.sums:  # over all of the row
            emitter = LaneEmitter(shapes, replace(lanes, strip=None), read, divisor)
            assert isinstance(statement.expr, Op)
            body = statement.expr.args[0]
            code = lane_sums(emitter, f"own_{name}", body, shape_of(body, shapes))
            return "{\n" + "\n".join([*lines, code]) + "\n}"
        emitter = LaneEmitter(shapes, lanes, read, divisor)
        if step.memory is not None:
            lines.append(f"{kind_of(step.memory)}* const out = {pointer_to(self.plan, step.memory)};")
        code = (self._spread if size(shapes(statement.target)) >= WIDE else self._whole)(step, loop, emitter)
        return "{\n" + "\n".join([*lines, code]) + "\n}" + (self._wait(loop) if step.waits else "")

    def _goal(self, step: DeviceStep, at: str, value: str) -> str:
        """Returns code that puts an element into the registers of the row, if they are read."""
        own = f"own_{step.statement.target.name}[{at}]"
        return COMBINE[step.statement.op].format(own, value) if step.registers else ""

    def _whole(self, step: DeviceStep, loop: DeviceLoop, emitter: LaneEmitter) -> str:
        one = self._one_thread(loop, 1)

        def store(at: str, value: str) -> str:
            into = f"\n{one}out[{at}] = {kind_of(step.memory)}({value});" if step.memory is not None else ""
            return (self._goal(step, at, value) + into).strip()

        return emitter.loops(step.statement.expr, self.plan.arrays.shapes(step.statement.target), store)

    def _spread(self, step: DeviceStep, loop: DeviceLoop, emitter: LaneEmitter) -> str:
        one, vector = self._one_thread(loop, self.plan.lanes.lanes), self.plan.lanes.vector
        into = before = after = ""
        if step.memory is not None:
            kind = kind_of(step.memory)
            into = f"\nresult[v] = {kind}({{0}});"
            before = f"dacergnn::cuda::Vector<{kind}, {vector}> result;"
            after = f"{one}dacergnn::cuda::store_vector(out + start, result);"

        def store(value: str) -> str:
            return (self._goal(step, "held", value) + into.format(value)).strip()

        shape = self.plan.arrays.shapes(step.statement.target)
        return emitter.spread(step.statement.expr, shape, store, before, after)

    def _one_thread(self, loop: DeviceLoop, lanes: int) -> str:
        """Returns an ``if`` for the first thread of those with the same elements of a row, which ``lanes`` share."""
        if not loop.leaf:
            return f"if (dacergnn::cuda::rank<{lanes}>(crew) == 0) "
        own = loop.lanes.lanes
        return "" if lanes == own else f"if (dacergnn::cuda::lane_of<{own}>() == 0) "

    def _wait(self, loop: DeviceLoop) -> str:
        """Returns a barrier, behind which other threads see a row in memory, where it is read again."""
        return f"\ndacergnn::cuda::sync_team<{loop.lanes.lanes}>();" if loop.leaf else "\ncrew.sync();"

    # Reductions

    def _merged(self, statement: Statement, loop: DeviceLoop) -> str:
        """Returns code that combines the results of teams for a reduced row; without teams, all threads have it."""
        if not loop.leaf:
            return ""
        combine = f"dacergnn::cuda::{MERGE[statement.op]}()"
        return f"dacergnn::cuda::merge<{loop.lanes.lanes}>(crew, own_{statement.target.name}, {combine});"

    def _result(self, step: DeviceStep, empty: str | None) -> str:
        """Returns code that stores a reduced row when its loop, which may have been ``empty``, has ended."""
        name = step.statement.target.name
        lines: list[str] = []
        if step.statement.op != "+=" and empty is not None:
            lines.append(f"if ({empty}) {{\n{UNROLL}for (auto& value : own_{name}) value = Value(0);\n}}")
        if step.memory is not None:
            lines.append(self._stored_row(name, pointer_to(self.plan, step.memory)))
            if step.waits:
                lines.append("crew.sync();")
        return "\n".join(lines)

    def _stored_row(self, name: str, address: str) -> str:
        """Returns code by which one team writes a reduced row, or the block's strip of it, to memory."""
        held, width = self.plan.held_by(name), self.plan.homes[name].width
        sizes = f"{held.lanes}, {held.vector}, {width}"
        strip = f", strip * {held.held(width) * held.lanes}" if held.strips(width) > 1 else ""
        one = f"if (dacergnn::cuda::rank<{held.lanes}>(crew) == 0) "
        return f"{one}dacergnn::cuda::store_row<{sizes}>({address}, own_{name}{strip});"

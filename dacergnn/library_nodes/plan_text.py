"""Prints plans as text, which tells people and tests line by line what a kernel will do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dacergnn.library_nodes.form import Statement, statement_text
from dacergnn.library_nodes.plan import OperatorPlan
from dacergnn.library_nodes.segment_gemm.plan import GemmPlan, Segments
from dacergnn.library_nodes.traversal.device_plan import DeviceLoop, DevicePlan, DeviceStep
from dacergnn.library_nodes.traversal.places import Pointers
from dacergnn.library_nodes.traversal.plan import NestLoop, NestPlan, SharedSumPlan, Step


def plan_text(plan: OperatorPlan) -> str:
    """Returns the plan of an operator as text, one idea on each line."""
    lines: Iterable[str] = []
    if isinstance(plan, NestPlan):
        lines = _nest(plan)
    elif isinstance(plan, DevicePlan):
        lines = _device_nest(plan)
    elif isinstance(plan, GemmPlan):
        lines = _product(plan)
    elif isinstance(plan, SharedSumPlan):
        lines = [f"all threads share the rows of each group: {statement_text(plan.statement)}"]
    return "\n".join([*lines, *_common(plan)]) + "\n"


def _common(plan: OperatorPlan) -> Iterator[str]:
    """Yields the lines that plans of all kinds have."""
    yield f"encodings: {', '.join(plan.encodings) or 'none'}"
    if plan.questions:
        yield f"asks: {', '.join(plan.questions)}"
    if plan.scratch:
        yield f"scratch: {', '.join(f'{size} B a row of {space}' for space, size in sorted(plan.scratch.items()))}"
    if plan.in_place:
        yield f"in place: {', '.join(f'{new} over {old}' for old, new in sorted(plan.in_place))}"
    if plan.launches > 1:
        yield f"launches: {plan.launches}"


def _inside(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _rows(variable: str, span: Pointers | None, space: str) -> str:
    return f"for {variable} of {span}" if span is not None else f"for {variable} in {space}"


# Nests ---------------------------------------------------------------------------------------------------------


def _nest(plan: NestPlan) -> Iterator[str]:
    yield f"nest of {' > '.join(plan.levels.spaces)}, {plan.adjacency}, {plan.work} elements a row"
    for name, home in plan.homes.items():
        if home.offset is not None:
            yield f"kept {name}: {home.width} of a row of {home.space}"
    for space, number in plan.owners:
        yield f"owner_{space}: {number}"
    for loop in plan.loops:
        yield from _loop(loop)
    if plan.hubs is not None:
        yield "all threads share the rows of hubs:"
        for loop in plan.hubs.loops:
            yield from _inside(_loop(loop))


def _loop(loop: NestLoop) -> Iterator[str]:
    kinds = [" of a tile"] * loop.of_tile + [", vectors over rows"] * loop.vectorizes
    group = f", into group {loop.group}" if loop.group is not None else ""
    yield f"{_rows(loop.variable, loop.span, loop.space)}{''.join(kinds)}{group}:"
    inside = [f"row_{loop.space} = {loop.row}"] if loop.row is not None else []
    inside += [f"{'ask to write' if p.writes else 'ask for'} {p.array}[{p.row}]" for p in loop.prefetches]
    for item in loop.items:
        inside += [_step(item)] if isinstance(item, Step) else _loop(item)
    yield from _inside(inside)
    yield from (_step(step) for step in loop.results if step.goals)


def _step(step: Step) -> str:
    goals = ", ".join(map(str, step.goals)) + (" past the caches" if step.streams else "")
    return _located(step.statement, [str(place) for place in step.reads.values()], goals)


def _located(statement: Statement, reads: Sequence[str], goals: str) -> str:
    """Returns a statement with the places that it reads and writes; a finished sum reads nothing."""
    source = f"  <-  {', '.join(reads)}" if reads else ""
    return f"{statement_text(statement) if reads else statement.target.name}{source}  ->  {goals}"


# On devices ----------------------------------------------------------------------------------------------------


def _device_nest(plan: DevicePlan) -> Iterator[str]:
    lanes = f"{plan.lanes.lanes} lanes by {plan.lanes.vector}"
    yield f"nest of {' > '.join(plan.levels.spaces)}, crews of {plan.crew}, {lanes}, {plan.held} elements held"
    if plan.chunks is not None:
        yield f"all threads share the groups, in {plan.chunks} chunks at most"
    yield from _device_loop(plan.loop)
    for number, part in enumerate(plan.parts, 1):
        yield f"launch {number} at a part of a hub{', by its first block' if part.last else ''}:"
        for item in part.items:
            if isinstance(item, DeviceLoop):
                yield from _inside(_device_loop(item))
            else:
                yield f"  {_device_step(item)}" if isinstance(item, DeviceStep) else f"  merge {_device_step(item[0])}"
    if plan.partial:
        yield f"left by parts: {', '.join(f'{kind} of {name}' for kind, name in plan.partial)}"


def _device_loop(loop: DeviceLoop) -> Iterator[str]:
    who = f", {loop.lanes.lanes} lanes a row" if loop.leaf else ""
    if loop.batch > 1:
        rows = ", ".join(f"{name} by {path}" if path else name for name, path in sorted(loop.ahead))
        who += f", {loop.batch} rows at once of {rows}"
    variable = f"{'row' if loop.span is None and loop.run is None and loop.row is None else 'at'}_{loop.space}"
    yield f"{_rows(variable, loop.span, loop.space)}{who}:"
    inside = [f"row_{loop.space} = {loop.row}"] if loop.row is not None else []
    for item in loop.items:
        inside += [_device_step(item)] if isinstance(item, DeviceStep) else _device_loop(item)
    yield from _inside(inside)
    yield from (f"merge {_device_step(step)}" for step, _ in loop.results)


def _device_step(step: DeviceStep) -> str:
    reads = [f"own {name}" if read.registers else str(read.memory) for (name, _), read in step.reads.items()]
    goals = [f"own {step.statement.target.name}"] * step.registers
    goals += [str(step.memory)] if step.memory is not None else []
    return _located(step.statement, reads, ", ".join(goals) or "registers") + (", then wait" if step.waits else "")


# Products ------------------------------------------------------------------------------------------------------


def _product(plan: GemmPlan) -> Iterator[str]:
    transposed = ", transposed" if plan.gemm.w.transposed else ""
    sizes = f"{plan.heads} x ({plan.k}, {plan.m}){transposed}"
    yield f"{plan.form} of {statement_text(plan.statement)}: {sizes}, in {plan.place}"
    for operand, gather in zip((plan.gemm.x, plan.gemm.w), plan.gathers, strict=True):
        if gather is not None:
            yield f"{operand.name} at {gather}"
    for what, segments in (("by type", plan.segments), ("by target", plan.targets), ("summed", plan.summed)):
        if segments is not None:
            yield f"{what}: {_segments(segments)}"
    if plan.start is not None:
        yield f"sums start from {plan.start}"
    if plan.made is not None:
        yield f"rows of {plan.gemm.x.name} are made: {statement_text(plan.made)}"
    yield from (f"then {statement_text(statement)}" for statement in (*plan.epilogue, *plan.spread))
    if plan.at_once > 1:
        yield f"a warp finishes {plan.at_once} rows at once"


def _segments(segments: Segments) -> str:
    order = f" in the order of {segments.order}" if segments.order else ""
    return f"rows of {segments.rows} for each of {segments.types}, {segments.pointers or 'all'}{order}"

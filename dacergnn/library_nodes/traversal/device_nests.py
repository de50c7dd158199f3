"""Makes the plans of loop nests in which teams of lanes share rows, and divides hubs among blocks."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from dacergnn.library_nodes.access import is_few
from dacergnn.library_nodes.form import Statement, size
from dacergnn.library_nodes.traversal.device_plan import (
    CREWS,
    MOST_PARTS,
    STRIP,
    DeviceLoop,
    DevicePlan,
    DeviceStep,
    HubPart,
)
from dacergnn.library_nodes.traversal.device_planner import Planner, is_leaf, scratch_bytes, with_sums
from dacergnn.library_nodes.traversal.formats import FORMATS
from dacergnn.library_nodes.traversal.lanes import Lanes
from dacergnn.library_nodes.traversal.nest import Levels, Loop, apart, loops, reached, simplest
from dacergnn.library_nodes.traversal.places import Finder
from dacergnn.library_nodes.traversal.plan import USUAL, Body, Schedule
from dacergnn.library_nodes.traversal.storage import homes_of


@lru_cache(maxsize=512)
def plan_device_nest(body: Body, schedule: Schedule = USUAL) -> DevicePlan:
    """Returns the plan of a body under a schedule, for teams of lanes."""
    statements = tuple(simplest(body.mapping, body.statements))
    lone_sum = len(statements) == 1 and is_few(statements[0].target.path)
    levels = Levels.of(body.mapping, statements)
    inner = levels.spaces[-1]
    if all(s.space == inner and not s.target.path for s in statements):
        levels = Levels((inner,))  # maps of independent rows
    widths = [size(body.arrays.shapes(e)) for s in statements for e in (s.target, *s.reads)]
    lanes = Lanes.of(widths, body.arrays.item)
    if lone_sum:
        lanes = replace(lanes, strip=max(STRIP, 2 * lanes.vector))
    between = levels.spaces[1:-1]
    nested = not between or any(s.target.path and reached(s.space, s.target.path) in between for s in statements)
    (top,) = (loops if nested else apart)(levels, statements)
    top, arrays, sums = with_sums(top, levels, body.arrays, lanes)
    written = top.statements()
    homes = homes_of([top], written, arrays.shapes, [*body.local_arrays, *sums])
    planner = Planner(Finder(levels, homes, FORMATS["csr"]), arrays, lanes, frozenset(sums), top)
    planner.look()
    plan = planner.plan(CREWS[schedule.by_edges])
    if lone_sum:
        return _of_lone_sum(plan, statements[0].target.name)
    return _with_parts(plan, planner) if schedule.split_hubs and len(levels.spaces) > 1 else plan


def _of_lone_sum(plan: DevicePlan, target: str) -> DevicePlan:
    """Returns the plan of a sum into types: all threads share the few groups; larger sums have fewer parts."""
    width = plan.homes[target].width
    chunks = min(1024, max(64, (1 << 22) // width))
    needs = [("ONE", chunks * width), (plan.levels.spaces[0], width)]
    return replace(plan, chunks=chunks, launches=2, questions=(), scratch=scratch_bytes(needs, plan.arrays))


def _with_parts(plan: DevicePlan, planner: Planner) -> DevicePlan:
    """Returns the plan with its hubs divided among blocks, unless a loop of a group has another loop inside.

    For hubs, every loop of a group becomes a launch of its own. In it, a block computes its part of the rows and leaves
    its partial sums in scratch memory. The blocks of the next launch combine these in a fixed order. Every block runs
    the statements between the loops again, with its own copy in scratch of rows that are needed in memory. The first
    block of the last launch stores the results of the group. The first launch also computes all other groups.
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
    return replace(
        plan, parts=whole, partial=partial, launches=max(len(whole), 1), scratch=scratch_bytes(needs, plan.arrays)
    )


def _part(planner: Planner, number: int) -> HubPart:
    """Returns a block's part of the loop over rows of a hub with this number; after the last, the remaining steps."""
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

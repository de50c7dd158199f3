"""Writes C++ that depends on the format of the edges: the rows of a group, and the call of the driver that runs tiles.

The drivers are in ``parallel.h`` and ``formats.h``.
"""

from __future__ import annotations

from collections.abc import Mapping

from dacergnn.library_nodes.node import PREFIX
from dacergnn.library_nodes.targets.cpp import extent
from dacergnn.library_nodes.traversal.places import Pointers
from dacergnn.library_nodes.traversal.plan import NestPlan


def array(pointers: Pointers) -> str:
    """Returns the array that is indexed by an outer row."""
    if pointers.encoding is not None:
        return PREFIX + pointers.encoding
    return "bounds" if pointers.kind == "one" else pointers.kind


def start(pointers: Pointers, row: str) -> str:
    """Returns the place where the inner rows of an outer row start; without slots, the row before ends there."""
    return f"({row}) * width" if pointers.kind == "slots" else f"{array(pointers)}[{row}]"


def stop(pointers: Pointers, row: str) -> str:
    """Returns the place behind the last inner row of an outer row."""
    if pointers.kind == "slots":
        return f"({row}) * width + {array(pointers)}[{row}]"
    return start(pointers, f"{row} + 1")


def span(plan: NestPlan, space: str) -> tuple[str, str]:
    """Returns the place of the first row of a space in a tile, and the number of places of the tile."""
    pointers = plan.pointers[space]
    first = start(pointers, "first")
    count = f"{start(pointers, 'last')} - {first}"
    return first, f"{count} + rest[last] - rest[first]" if plan.form.splits else count


def places(plan: NestPlan, space: str) -> str:
    """Returns the number of places for the rows of a space."""
    return f"{extent(plan.levels.spaces[0])} * width" if plan.form.pointers == "slots" else extent(space)


def parameters(plan: NestPlan) -> str:
    """Returns the parameters of the function of a tile, behind the groups."""
    if plan.form.pointers == "starts":
        return ", const dacergnn::Starts starts"
    return ", const dacergnn::Starts rest" if plan.form.splits else ""


def both_parts(plan: NestPlan, begin: str, end: str, loop: str) -> str:
    """Returns a loop over both parts of the edges of a group; in a tile, places of the second part follow the first."""
    outer, inner = plan.levels.spaces
    row, pointers = f"row_{outer}", plan.pointers[inner]
    first = start(pointers, "first")
    later = f"rest[first] - ({start(pointers, 'last')} - {first})"
    base = f"const int64_t base_{inner} = late ? {later} : int64_t({first});\n"
    return (
        "for (const bool late : {false, true}) {\n"
        f"const int64_t from = late ? rest[{row}] : int64_t({begin});\n"
        f"const int64_t to = late ? rest[{row} + 1] : {end};\n"
        f"{base if f'base_{inner}' in loop else ''}{loop}\n}}"
    )


def driver(plan: NestPlan, knobs: Mapping[str, object], tiles: str) -> str:
    """Returns the call that runs the function of a tile on all groups."""
    outer, inner = plan.levels.spaces[0], plan.levels.spaces[-1]
    pointers = plan.pointers[inner]
    groups, rows, work = extent(outer), extent(inner), plan.work
    by_edge = PREFIX + plan.groups_of_edges if plan.groups_of_edges else ""
    tile, chunks = knobs["tile_rows"], knobs["chunks"]
    if pointers.kind == "starts":
        return f"dacergnn::parallel_rows({by_edge}, {rows}, {groups}, {work}, {tile}, {knobs['hub_rows']}, {tiles});"
    if pointers.kind == "slots":
        return (
            f"const int64_t width = {array(pointers)}[{groups}];\n"
            f"dacergnn::parallel_slots({groups}, width, {rows}, {work}, {tile}, {chunks}, {tiles});"
        )
    if plan.form.splits:
        sizes = f"{rows}, {groups}, {work}, {tile}, {chunks}"
        return f"dacergnn::parallel_hybrid({array(pointers)}, {by_edge}, {sizes}, {tiles});"
    one = f"const Index bounds[2] = {{0, Index({rows})}};\n" if pointers.kind == "one" else ""
    hubs = f", {knobs['hub_rows']}" if plan.hubs is not None else ""
    return f"{one}dacergnn::parallel_tiles({array(pointers)}, {groups}, {work}, {tile}, {chunks}{hubs}, {tiles});"

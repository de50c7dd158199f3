"""Decides where a loop nest keeps the arrays that it writes: on the stack, in scratch of the tile, or in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from dacergnn.library_nodes.form import Ref, ShapeOf, Statement, size
from dacergnn.library_nodes.traversal.nest import Levels, Loop, reached

WIDE = 16
"""The fewest elements of a wide row, which is worth a prefetch, and not worth a second copy in scratch."""
NARROW = 2
"""The most elements of a narrow row; such rows are computed many at a time."""


@dataclass(frozen=True)
class Home:
    """Describes the storage of an array: its rows live in the body of ``loop``, None if several loops touch them.

    ``offset`` is its place in the tile's scratch, in elements per row of the array's space, or None. A ``stored`` array
    goes to memory for other operators; a ``reduced`` one is summed on the stack of the loop over its rows.
    """

    space: str
    width: int
    loop: Loop | None
    offset: int | None
    stored: bool
    reduced: bool


def narrow_maps(levels: Levels, statements: Sequence[Statement], shapes: ShapeOf) -> list[str]:
    """Returns the targets of innermost maps that touch only a few elements (``flat`` of `nest.loops`)."""
    if len(levels.spaces) == 1:
        return []
    own = [s for s in statements if s.space == levels.spaces[-1] and s.target.path == ""]
    return [s.target.name for s in own if is_narrow(s, shapes)]


def is_narrow(statement: Statement, shapes: ShapeOf) -> bool:
    """Returns whether a statement touches only a few elements of each row."""
    return all(size(shapes(r)) <= NARROW for r in (*statement.reads, statement.target))


def homes_of(
    top_loops: Sequence[Loop],
    statements: Sequence[Statement],
    shapes: ShapeOf,
    local_arrays: Collection[str],
    *,
    rounds: Callable[[str], bool] = lambda _: False,
) -> dict[str, Home]:
    """Returns the storage of every array that the statements write, from their loops over a tile.

    Sums are not added up in the memory of an array that ``rounds`` tells to round.
    """
    spaces = {s.target.name: reached(s.space, s.target.path) for s in statements}
    read = {r.name for s in statements for r in s.reads}
    touching: dict[str, list[Loop | None]] = {name: [] for name in spaces}

    def visit(loop: Loop, outer: Mapping[str, Loop]) -> None:
        around = {**outer, loop.space: loop}
        for item in loop.items:
            if isinstance(item, Loop):
                visit(item, around)
                continue
            for name in {r.name for r in (*item.reads, item.target)} & spaces.keys():
                touching[name].append(around.get(spaces[name]))

    for loop in top_loops:
        visit(loop, {})
    offsets: dict[str, int] = {}
    result: dict[str, Home] = {}
    for statement in statements:
        name, width = statement.target.name, size(shapes(Ref(statement.target.name)))
        space, reduced = spaces[name], statement.target.path != ""
        loops = touching[name]
        loop = loops[0] if all(item is loops[0] for item in loops) else None
        stored = name not in local_arrays
        offset = None
        if loop is None and ((name in read and not (stored and width >= WIDE)) or (rounds(name) and reduced)):
            offset = offsets.get(space, 0)
            offsets[space] = offset + width
        result[name] = Home(space, width, loop, offset, stored, reduced)
    return result

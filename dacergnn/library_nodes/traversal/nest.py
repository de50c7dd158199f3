"""Builds the loop nests of traversals: the row spaces that nest under a mapping, what a body may do there, its loops.

A mapping is the row space that threads share out. The rows that lead to it nest below it: the edges of a
destination, or its (destination, type) pairs and their edges. A statement runs at the level of its own row space.
Of the arrays that its body writes, it reaches only its own row and rows of enclosing levels.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from dacergnn.graph.spaces import MAPS, PARTED, TYPE_PATHS, kind, part
from dacergnn.library_nodes.form import Ref, Statement

CHAINS: dict[str, tuple[str, ...]] = {
    "ND": ("ND", "V", "E"),
    "NS": ("NS", "U", "E"),
    "V": ("V", "E"),
    "U": ("U", "E"),
}
"""Row spaces that nest under a mapping, from the outside in."""

_UP: dict[tuple[str, str], str] = {
    ("V", "ND"): "dst",
    ("E", "ND"): "dst",
    ("E", "V"): "dstpair",
    ("U", "NS"): "src",
    ("E", "NS"): "src",
    ("E", "U"): "srcpair",
}


def chain(mapping: str, spaces: Collection[str]) -> tuple[str, ...]:
    """Returns the row spaces under a mapping, for the part of the edges that the mapping or ``spaces`` first name."""
    own = next((part(space) for space in (mapping, *spaces) if part(space)), "")
    below = CHAINS.get(kind(mapping), (mapping,))[1:]
    return (mapping, *(space + own if space in PARTED else space for space in below))


@dataclass(frozen=True)
class Levels:
    """Holds the row spaces of a nest from the outside in; ``single`` is the path up if it is not one of a chain."""

    spaces: tuple[str, ...]
    single: str = ""

    @classmethod
    def of(cls, mapping: str, statements: Sequence[Statement]) -> Levels:
        """Returns the levels of a body under a mapping; a lone reduction is mapped to the rows that it reaches."""
        if len(statements) == 1 and statements[0].space == mapping:
            path = statements[0].target.path
            return cls((MAPS[mapping, path], mapping), path) if path else cls((mapping,))
        used = {s.space for s in statements} | {reached(s.space, s.target.path) for s in statements}
        return cls((mapping, *(space for space in chain(mapping, used)[1:] if space in used)))

    def up(self, space: str, outer: str) -> str | None:
        """Returns the path from the rows of a level to those of an enclosing level, None if there is none."""
        if space == outer or space not in self.spaces or outer not in self.spaces:
            return None
        if self.single:
            return self.single if space == self.spaces[-1] else None
        return _UP.get((kind(space), kind(outer)))

    def level(self, space: str) -> int:
        return self.spaces.index(space)


def simplest(mapping: str, statements: Sequence[Statement]) -> Sequence[Statement]:
    """Returns the body of a kernel, where a reduction of the only row into itself becomes a map."""
    if len(statements) == 1 and (mapping, statements[0].target.path) == ("ONE", "one"):
        return [replace(statements[0], target=replace(statements[0].target, path=""), op="=")]
    return statements


def reached(space: str, path: str) -> str:
    """Returns the row space that a path leads to, the own one for no path."""
    return MAPS[space, path] if path else space


def _home(statement: Statement) -> str:
    """Returns the row space in whose rows a statement leaves its result; products sum weights as they like."""
    return statement.space if _sums_weights(statement) else reached(statement.space, statement.target.path)


def _sums_weights(statement: Statement) -> bool:
    return statement.is_gemm and statement.target.path in TYPE_PATHS


def problem(mapping: str, statements: Sequence[Statement]) -> str | None:
    """Returns why these statements cannot run as one nest under this mapping; None if they can."""
    levels = Levels.of(mapping, statements)
    homes: dict[str, str] = {}

    def inside(statement: Statement, ref: Ref, home: str) -> bool:
        return (ref.path == "" and home == statement.space) or levels.up(statement.space, home) == ref.path != ""

    for statement in statements:
        space, target = statement.space, statement.target
        if space not in levels.spaces:
            return f"rows of {space} do not nest under {mapping}"
        for ref in statement.reads:
            if ref.name in homes and not inside(statement, ref, homes[ref.name]):
                return f'"{ref.name}" is read at rows outside of its group'
        home = _home(statement)
        if target.name in homes or any(r.name == target.name for r in statement.reads):
            return f'"{target.name}" is written twice, or read where it is written'
        if not inside(statement, target, home) and not _sums_weights(statement):
            return f'"{target.name}" is reduced into rows outside of its group'
        homes[target.name] = home
    late = {s.target.name: k for k, s in enumerate(statements)}
    for k, statement in enumerate(statements):
        for ref in statement.reads:
            if late.get(ref.name, -1) >= k:
                return f'"{ref.name}" is read before it is written'
    return None


# Loops ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Loop:
    """Describes a loop over the rows of ``space`` in a row of an enclosing loop (or in a tile, for the outermost).

    ``flat`` loops run over all rows of a tile, whatever their group. In each row they run all their statements: maps,
    or reductions into the groups.
    """

    space: str
    items: tuple[Statement | Loop, ...]
    flat: bool = False

    def statements(self) -> list[Statement]:
        """Returns all statements inside, in order."""
        statements: list[Statement] = []
        for item in self.items:
            statements += [item] if isinstance(item, Statement) else item.statements()
        return statements

    def inside(self) -> list[Loop]:
        """Returns the loop and all loops inside it, from the outside in."""
        return [self, *(inner for item in self.items if isinstance(item, Loop) for inner in item.inside())]


def staged(
    statements: Sequence[Statement], kinds: Sequence[int], finished: Sequence[bool], count: int = 2
) -> list[list[Statement]]:
    """Returns statements of ``count`` kinds by stage, each in the earliest stage at which its operands are ready.

    Stages take turns: stage s holds statements of kind s % count. Statements of kind 0 run by themselves, those of
    other kinds in one loop. A result that is ``finished`` only when its loop ends is ready for later stages.
    """
    producer = {s.target.name: k for k, s in enumerate(statements)}
    stage: list[int] = []
    for k, statement in enumerate(statements):
        earliest = kinds[k]
        for ref in statement.reads:
            j = producer.get(ref.name)
            if j is not None:
                bound = stage[j] + (kinds[j] != kinds[k] or (kinds[j] > 0 and finished[j]))
                earliest = max(earliest, bound + (kinds[k] - bound) % count)
        stage.append(earliest)
    stages: list[list[Statement]] = [[] for _ in range(max(stage, default=-1) + 1)]
    for statement, position in zip(statements, stage, strict=True):
        stages[position].append(statement)
    return stages


def loops(
    levels: Levels, statements: Sequence[Statement], flat: Collection[str] = (), summed: Collection[str] = ()
) -> list[Loop]:
    """Returns the loops that run a body over a tile, a range of rows of the mapping, one after the other.

    Innermost maps whose targets are in ``flat`` run over all rows of the tile at once, so that they vectorize however
    short the groups are. So do reductions from the innermost rows into rows of the mapping, if their targets are in
    ``summed``: no branch depends on the length of a group.
    """
    if len(levels.spaces) == 1:
        return [Loop(levels.spaces[0], tuple(statements), flat=True)]
    homes = {s.target.name: _home(s) for s in statements}
    grouped = [s.target.name not in flat for s in statements]
    top_loops: list[Loop] = []
    for number, stage in enumerate(staged(statements, grouped, [False] * len(statements))):
        rows = stage if number % 2 == 0 else [s for s in stage if s.target.name in summed]
        groups = [s for s in stage if s not in rows]
        if rows:
            top_loops.append(Loop(levels.spaces[-1], tuple(rows), flat=True))
        if groups:  # after the sums, which others at this stage may read
            top_loops.append(_nested(levels, groups, 0, homes))
    return top_loops


def apart(levels: Levels, statements: Sequence[Statement]) -> list[Loop]:
    """Returns the loop over the outermost rows, with loops over middle or innermost rows inside, one after another.

    It is for bodies that reduce nothing from the innermost level into the middle one.
    """
    top, *inner = levels.spaces
    finished = [reached(s.space, s.target.path) == top for s in statements]
    items: list[Statement | Loop] = []
    for number, stage in enumerate(
        staged(statements, [*map(levels.level, (s.space for s in statements))], finished, 3)
    ):
        if number % 3 == 0:
            items += stage
        elif stage:
            items.append(Loop(inner[number % 3 - 1], tuple(stage)))
    return [Loop(top, tuple(items))]


def _nested(levels: Levels, statements: Sequence[Statement], level: int, homes: dict[str, str]) -> Loop:
    """Returns the loop over the rows of a level that runs these statements of the level and of those inside."""
    inner = [levels.level(s.space) > level for s in statements]
    finished = [levels.level(homes[s.target.name]) <= level for s in statements]
    items: list[Statement | Loop] = []
    for number, stage in enumerate(staged(statements, inner, finished)):
        if number % 2 == 0:
            items += stage
        elif stage:
            # The next level is the outermost one where a statement runs or one of its arrays lives.
            spaces = {s.space for s in stage} | {homes[r.name] for s in stage for r in s.reads if r.name in homes}
            spaces |= {homes[s.target.name] for s in stage}
            items.append(_nested(levels, stage, min(n for n in map(levels.level, spaces) if n > level), homes))
    return Loop(levels.spaces[level], tuple(items))

"""Finds arrays that a loop nest may write over others that it reads: nothing reads a row after it is overwritten."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dacergnn.library_nodes.form import Ref, Statement, size
from dacergnn.library_nodes.plan import Arrays
from dacergnn.library_nodes.shapes import is_elementwise
from dacergnn.library_nodes.traversal.nest import Levels, Loop, reached
from dacergnn.library_nodes.traversal.storage import Home


def in_place(
    arrays: Arrays, levels: Levels, statements: Sequence[Statement], loops: Sequence[Loop], homes: Mapping[str, Home]
) -> frozenset[tuple[str, str]]:
    """Returns pairs of an array that a nest reads and one of equally many elements that may be written over it."""
    order = _Order(arrays, levels, loops, homes)
    return frozenset(
        (ref.name, written.target.name)
        for written in statements
        for ref in order.reads
        if order.allows(ref.name, written)
    )


@dataclass
class _Order:
    """Records when, in the loops over a row, statements read and targets are written."""

    arrays: Arrays
    levels: Levels
    loops: Sequence[Loop]
    homes: Mapping[str, Home]
    time: int = 0
    reads: dict[Ref, list[tuple[int, Statement]]] = field(default_factory=dict[Ref, list[tuple[int, Statement]]])
    written: dict[str, int] = field(default_factory=dict[str, int])

    def __post_init__(self) -> None:
        for loop in self.loops:
            self._visit(loop)

    def _visit(self, loop: Loop) -> None:
        for item in loop.items:
            inside = [item] if isinstance(item, Statement) else item.statements()
            if isinstance(item, Loop):
                self._visit(item)
                self._write(s for s in inside if s.target.path and reached(s.space, s.target.path) == loop.space)
            else:
                for ref in item.reads:
                    self.reads.setdefault(ref, []).append((self.time, item))
                self._write(s for s in inside if not s.target.path)
            self.time += 1

    def _write(self, statements: Iterable[Statement]) -> None:
        self.written |= dict.fromkeys((s.target.name for s in statements), self.time)

    def allows(self, name: str, statement: Statement) -> bool:
        """Returns whether the result of a statement may be written over an array."""
        homes, target = self.homes, statement.target.name
        space, own = self.arrays[name].space, homes[target].space
        shapes = [self.arrays[n].shape for n in (name, target)]
        if name in homes or target not in self.written or not homes[target].stored:
            return False
        if self.arrays.rounds(name) != self.arrays.rounds(target):  # elements of different sizes
            return False
        if not space == self.arrays[target].space == own or size(shapes[0]) != size(shapes[1]):
            return False
        same_elements = shapes[0] == shapes[1] and not statement.target.path and is_elementwise(statement.expr)
        return all(
            self._is_own(reader, ref, space)
            and (time < self.written[target] or (reader is statement and same_elements and ref.view is None))
            for ref, readers in self.reads.items()
            if ref.name == name
            for time, reader in readers
        )

    def _is_own(self, statement: Statement, ref: Ref, space: str) -> bool:
        """Returns whether a reference leads to the current row of the space."""
        if statement.space == space:
            return ref.path == ""
        return ref.path != "" and self.levels.up(statement.space, space) == ref.path

"""Where the rows that a loop nest touches are: C++ of row numbers and pointers, and the encodings that they read.

Variables carry the row space: ``row_E`` is the current edge, ``at_E`` its place in the order in which edges are
visited, ``base_E`` the first place of the tile. The outermost rows of a tile are ``first`` to ``last``.
"""

from __future__ import annotations

from typing import Any

from dacergnn.library_nodes.access import index_name, ordered_index_name, pointer_name
from dacergnn.library_nodes.cpu import extent
from dacergnn.library_nodes.form import Ref, Shape, Statement, size
from dacergnn.library_nodes.node import PREFIX, row_shape
from dacergnn.library_nodes.parse import view_shape
from dacergnn.library_nodes.traversal.expansions.storage import Home
from dacergnn.library_nodes.traversal.nest import Levels, Loop


class Places:
    """Rows and arrays as seen from inside the loops of a nest, and what has been asked for so far."""

    levels: Levels
    homes: dict[str, Home]

    def __init__(self, arrays: dict[str, Any]) -> None:
        self.arrays = dict(arrays)
        self.around: dict[str, Loop] = {}  # the loops around the statement that is being written, by row space
        self.owners: dict[str, None] = {}  # row spaces whose row is looked up for every innermost row of a tile
        self._used: dict[str, None] = {}

    @property
    def encodings(self) -> list[str]:
        """Names of the encodings that the code reads: pointers, orders, indices."""
        kinds = ("len", "reg", "ptr", "ids", "idx", "via", "ell", "hyb")
        return sorted(self._used, key=lambda name: kinds.index(name[:3]))

    def shapes(self, ref: Ref) -> Shape:
        return view_shape(ref, row_shape(self.arrays[ref.name]))

    def _encoding(self, name: str) -> str:
        self._used[name] = None
        return PREFIX + name

    def _bounds(self, outer: str, inner: str) -> tuple[str, str]:
        """Declaration and name of the pointers to the rows of each outer row."""
        path = self.levels.up(inner, outer)
        assert path is not None
        name = pointer_name(inner, path)
        if name is None:
            return f"const Index bounds[2] = {{0, Index({extent(inner)})}};\n", "bounds"
        return "", self._encoding(name)

    def _start(self, outer: str, inner: str, row: str) -> str:
        """Place of the first of the inner rows of an outer one; also that behind the last one of the row before."""
        return f"{self._bounds(outer, inner)[1]}[{row}]"

    def _stop(self, outer: str, inner: str, row: str) -> str:
        """Place behind the last of the inner rows of an outer one."""
        return self._start(outer, inner, f"{row} + 1")

    def _span(self, outer: str, inner: str) -> tuple[str, str]:
        """Place of the first inner row of a tile, and how many places the tile has."""
        first = self._start(outer, inner, "first")
        return first, f"{self._start(outer, inner, 'last')} - {first}"

    def _places(self, space: str) -> str:
        """Number of the places that rows of a space stand in."""
        return extent(space)

    def _run(self, loop: Loop) -> list[str]:
        """Declarations of the part of the innermost rows that belongs to a row in the middle of three levels."""
        space, inner = loop.space, self.levels.spaces[-1]
        middle = len(self.levels.spaces) == 3 and space == self.levels.spaces[1]
        if not middle or all(s.space != inner for s in loop.statements()):
            return []
        _, bounds = self._bounds(space, inner)
        return [
            f"const int64_t begin_{inner} = run_{inner};",
            f"run_{inner} += {bounds}[row_{space} + 1] - {bounds}[row_{space}];",
            f"const int64_t end_{inner} = run_{inner};",
        ]

    def _row_at(self, space: str, at: str, path: str = "") -> str:
        """The row that a path leads to from the row at a place in the order in which the nest visits a space."""
        order = self.levels.up(space, self.levels.spaces[0])
        name = self._list_of(space, order, path) if order else index_name(space, path)
        if name:
            return f"int64_t({self._entry(name, at)})"
        return "0" if path else at

    def _list_of(self, space: str, order: str, path: str) -> str | None:
        """Encoding that holds the row that a path leads to for every place; None where that is the place, or 0."""
        return ordered_index_name(space, order, path)

    def _entry(self, name: str, at: str) -> str:
        """An element of an encoding."""
        return f"{self._encoding(name)}[{at}]"

    def _group(self, space: str) -> str:
        """Place in the tile of the outermost row that a row belongs to."""
        outer = self.levels.spaces[0]
        return self._row_at(space, f"at_{space}", self.levels.up(space, outer) or "") + " - first"

    def _enclosing(self, statement: Statement, ref: Ref) -> str | None:
        """The row space of the enclosing loop whose row a reference leads to."""
        for space in self.levels.spaces:
            if space != statement.space and self.levels.up(statement.space, space) == ref.path != "":
                return space
        return None

    def _row(self, statement: Statement, ref: Ref) -> str:
        """Index of the row that a reference leads to."""
        if ref.path == "":
            return f"row_{statement.space}"
        outer = self._enclosing(statement, ref)
        if outer in self.around:
            return f"row_{outer}"
        kind = "row" if statement.space == self.levels.spaces[0] else "at"
        return self._row_at(statement.space, f"{kind}_{statement.space}", ref.path)

    def _source(self, statement: Statement, ref: Ref) -> str:
        """Pointer to the row that a reference reads."""
        home, width = self.homes.get(ref.name), size(row_shape(self.arrays[ref.name]))
        if home is not None and self._on_stack(home):
            return f"own_{ref.name}"
        if home is not None and home.offset is not None:
            return self._kept(ref.name, statement.space)
        return f"{PREFIX}{ref.name} + {self._row(statement, ref)} * {width}"

    def _kept(self, name: str, space: str) -> str:
        """Pointer to the row of an array in scratch, from a loop over its space or a flat one below."""
        home, top = self.homes[name], self.levels.spaces[0]
        if home.space == top and top not in self.around:
            return f"kept_{name} + ({self._group(space)}) * {home.width}"
        if home.space != space and home.space not in self.around:
            self.owners[home.space] = None
            return f"kept_{name} + owner_{home.space}[at_{space} - base_{space}] * {home.width}"
        if home.space == top:
            return f"kept_{name} + (row_{top} - base_{top}) * {home.width}"
        return f"kept_{name} + (at_{home.space} - base_{home.space}) * {home.width}"

    def _on_stack(self, home: Home) -> bool:
        """Returns whether the row is on the stack of a loop around the statement: all its uses are, or it is being
        reduced."""
        return home.space in self.around and (home.loop is not None or self._reducing(home))

    def _reducing(self, home: Home) -> bool:
        loop = self.around[home.space]
        return home.reduced and any(self.homes[s.target.name] is home for s in loop.statements())

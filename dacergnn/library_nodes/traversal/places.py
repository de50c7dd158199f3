"""Describes where the rows that a loop nest touches are: on the stack, in scratch, or at a number in memory.

Names of variables end in a row space: ``row_E`` is the current edge, ``at_E`` its place in the order in which edges
are visited, ``base_E`` the first place of the tile. The outermost rows of a tile are ``first`` to ``last``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from dacergnn.graph.spaces import encoding_name
from dacergnn.library_nodes.access import index_name, ordered_index_name, pointer_name
from dacergnn.library_nodes.form import Ref, Statement
from dacergnn.library_nodes.traversal.formats import Format
from dacergnn.library_nodes.traversal.nest import Levels
from dacergnn.library_nodes.traversal.storage import Home


@dataclass(frozen=True)
class Number:
    """Describes the number of a row: a variable, or the entry of a list at a variable.

    The list is an encoding, or one that a tile makes: the row of the middle level ``owner`` for each innermost row.
    """

    variable: str
    encoding: str | None = None
    owner: str | None = None

    def __str__(self) -> str:
        name = f"owner_{self.owner}" if self.owner else self.encoding
        return f"{name}[{self.variable}]" if name else self.variable


@dataclass(frozen=True)
class Place:
    """Describes where a row of an array is: on the stack, in scratch behind the row ``base``, or in memory.

    A "copy" belongs to one block of a device, where several blocks share the row.
    """

    where: Literal["stack", "scratch", "memory", "copy"]
    array: str
    row: Number | None = None
    base: str = ""

    def __str__(self) -> str:
        if self.where == "stack":
            return f"own {self.array}"
        base = f" - {self.base}" if self.base else ""
        return f"{'kept ' if self.where == 'scratch' else ''}{self.array}[{self.row}{base}]"


@dataclass(frozen=True)
class Pointers:
    """Describes how to find the rows of a level that belong to a row of an outer level.

    - "list": an encoding has the place where the rows of each outer row start, and the place behind the last one.
    - "one": there is a single outer row.
    - "starts": threads find the places while they run ("coo").
    - "slots": each outer row has as many places as the longest; the encoding has the number in use ("ell").
    """

    kind: Literal["list", "one", "starts", "slots"]
    encoding: str | None = None

    def __str__(self) -> str:
        return self.encoding or self.kind


@dataclass(frozen=True)
class Finder:
    """Finds rows and arrays as seen from inside the loops of a nest."""

    levels: Levels
    homes: Mapping[str, Home]
    form: Format

    def pointers(self, outer: str, inner: str) -> Pointers:
        """Returns the pointers to the inner rows of an outer row."""
        path = self.levels.up(inner, outer)
        assert path is not None
        if self.form.pointers == "starts":
            return Pointers("starts")
        if self.form.pointers == "slots":
            return Pointers("slots", encoding_name("len", inner, path))
        name = encoding_name("reg", inner, path) if self.form.splits else pointer_name(inner, path)
        return Pointers("list", name) if name else Pointers("one")

    def number_at(self, space: str, at: str, path: str = "") -> Number:
        """Returns the row that a path leads to from the row at a place in the nest's order of a space."""
        order = self.levels.up(space, self.levels.spaces[0])
        name = self.list_of(space, order, path) if order else index_name(space, path)
        return Number("0" if path and not name else at, name)

    def list_of(self, space: str, order: str, path: str) -> str | None:
        """Returns the encoding of the row that a path leads to from each place; None if that row is the place, or 0."""
        if not self.form.lists:
            return ordered_index_name(space, order, path)
        return None if path == "one" else encoding_name(self.form.lists, space, *filter(None, (order, path)))

    def group(self, space: str) -> Number:
        """Returns the outermost row that the row at the current place belongs to."""
        return self.number_at(space, f"at_{space}", self.levels.up(space, self.levels.spaces[0]) or "")

    def enclosing(self, statement: Statement, ref: Ref) -> str | None:
        """Returns the row space of the enclosing loop whose row a reference leads to."""
        for space in self.levels.spaces:
            if space != statement.space and self.levels.up(statement.space, space) == ref.path != "":
                return space
        return None

    def number(self, statement: Statement, ref: Ref, around: Collection[str]) -> Number:
        """Returns the row that a reference leads to, from inside loops over the spaces ``around``."""
        if ref.path == "":
            return Number(f"row_{statement.space}")
        outer = self.enclosing(statement, ref)
        if outer in around:
            return Number(f"row_{outer}")
        kind = "row" if statement.space == self.levels.spaces[0] else "at"
        return self.number_at(statement.space, f"{kind}_{statement.space}", ref.path)

    def kept(self, name: str, space: str, around: Collection[str]) -> Place:
        """Returns the row of an array in scratch, for a loop over the array's space, or a flat loop below."""
        home, top = self.homes[name].space, self.levels.spaces[0]
        if home == top and top not in around:
            return Place("scratch", name, self.group(space), "first")
        if home != space and home not in around:
            return Place("scratch", name, Number(f"at_{space} - base_{space}", owner=home))
        return Place("scratch", name, Number(f"row_{top}" if home == top else f"at_{home}"), f"base_{home}")

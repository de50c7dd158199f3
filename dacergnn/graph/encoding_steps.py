"""Lists of steps with which C++ makes several encodings at once (`encode.h`); all graphs share one list."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from dacergnn.graph.spaces import encoding_name, kind, parse_encoding, part, target_space

AS_THEY_ARE = ""
"""Stands for the order that rows already have."""
_ORDER, _POINTERS, _GROUPS, _TAKE, _FIRSTS, _COUNT = range(6)
_PAIRS = {"U": "srcpair", "V": "dstpair"}


class _Size(NamedTuple):
    space: str


Operand = str | _Size | int
"""The name of a vector, the number of rows of a space, or a plain number."""


@dataclass(frozen=True)
class Steps:
    """Describes how some encodings are made.

    Args:
        words: The steps as C++ reads them, without the size of an index, which comes first.
        spaces: Row spaces whose sizes the steps read.
        inputs: Encodings that must exist before.
        made: New encodings, each with the row space that gives its length; the flag says that it has one entry more.
        shared: Encodings that equal another one or the present order of rows, with that one and their row space.
    """

    words: array[int]
    spaces: tuple[str, ...]
    inputs: tuple[str, ...]
    made: tuple[tuple[str, str, bool], ...]
    shared: tuple[tuple[str, str, str], ...]


@lru_cache(maxsize=1024)
def reads_pairs(names: tuple[str, ...]) -> bool:
    """Tells whether pairs of end points and types must be counted before these encodings are made."""
    parsed = map(parse_encoding, names)
    return any(e.space in _PAIRS or not {*_PAIRS.values()}.isdisjoint(e.paths) for e in parsed)


@lru_cache(maxsize=1024)
def names_in_part(names: tuple[str, ...], own: str) -> list[tuple[str, str]]:
    """Returns those encodings that are made of the edges of a part alone, with their names in the graph of the part."""
    found: list[tuple[str, str]] = []
    for name in names:
        form, space, paths = parse_encoding(name)
        if part(space) == own and (form == "via" or "edge" not in paths):
            inner = ("ids", kind(space), paths[0]) if paths[-1] == "edge" else (form, kind(space), *paths)
            found.append((name, encoding_name(*inner)))
    return found


@lru_cache(maxsize=1024)
def steps_of(names: tuple[str, ...], known: frozenset[str], several_types: bool, node_types: bool) -> Steps:
    """Returns steps that make the encodings ``names`` and all that these need; encodings without steps are left out.

    Args:
        known: Encodings that exist already.
        several_types: Whether edges have several types.
        node_types: Whether nodes have types.
    """
    writer = _Writer(known, several_types, node_types)
    for name in names:
        writer.place(name)
    places = {name: i for i, name in enumerate((AS_THEY_ARE, *writer.inputs, *writer.made))}
    spaces = [*dict.fromkeys(o.space for _, operands in writer.steps for o in operands if isinstance(o, _Size))]
    words = array("q", [len(writer.steps)])
    for operation, operands in writer.steps:
        words.append(operation)
        for operand in operands:
            if isinstance(operand, _Size):
                words.append(spaces.index(operand.space))
            else:
                words.append(places[operand] if isinstance(operand, str) else operand)
    made = tuple((name, space, longer) for name, (space, longer) in writer.made.items())
    shared = tuple((name, place, parse_encoding(name).space) for name, place in writer.shared.items())
    return Steps(words, tuple(spaces), tuple(writer.inputs), made, shared)


class _Writer:
    """Writes steps; each method returns the name of the vector with an encoding, None if there are no steps for it."""

    def __init__(self, known: frozenset[str], several_types: bool, node_types: bool) -> None:
        self.known, self.several_types = known, several_types
        self.inputs: dict[str, None] = {}
        self.made: dict[str, tuple[str, bool]] = {}
        self.shared: dict[str, str] = {}
        self.steps: list[tuple[int, tuple[Operand, ...]]] = []
        self._first = {"idx_E_src", "idx_E_dst"}
        if several_types:
            self._first.add("idx_E_etype")
        if node_types:
            self._first |= {"idx_NS_ntype", "idx_ND_ntype"}
        self._forms: dict[str, Callable[..., str | None]] = {
            "idx": self._index, "ptr": self._pointers, "ids": self._order, "via": self._via,
        }  # fmt: skip

    def place(self, name: str) -> str | None:
        if name in self.made or name in self.inputs:
            return name
        if name in self.shared:
            return self.shared[name]
        if name in self.known or name in self._first:
            self.inputs[name] = None
            return name
        form, space, paths = parse_encoding(name)
        write = self._forms.get(form)
        return None if write is None or part(space) else write(name, space, *paths)

    def _make(self, name: str, space: str, operation: int, *operands: Operand, longer: bool = False) -> str:
        self.made[name] = space, longer
        self.steps.append((operation, (name, *operands)))
        return name

    def _share(self, name: str, place: str | None) -> str | None:
        if place is not None:
            self.shared[name] = place
        return place

    def _stays(self, name: str, space: str) -> str:
        """Notes that an order is the present order of rows; as a vector it holds their numbers."""
        numbers = f"arange_{space}"
        if numbers not in self.known and numbers not in self.made:
            self._make(numbers, space, _COUNT, _Size(space))
        self.shared[name] = AS_THEY_ARE
        return AS_THEY_ARE

    def _index(self, name: str, space: str, path: str) -> str | None:
        if space == "E" and path in _PAIRS.values():
            pairs = target_space(space, path)
            starts, order = self.place(f"ptr_E_{path}"), self._by_pair(pairs)
            if starts is None or order is None:
                return None
            return self._make(name, space, _GROUPS, starts, order, _Size(pairs))
        if space in _PAIRS and path in ("src", "dst", "etype"):
            values, starts, order = (
                self.place(f"idx_E_{path}"),
                self.place(f"ptr_E_{_PAIRS[space]}"),
                self._by_pair(space),
            )
            if values is None or starts is None or order is None:
                return None
            return self._make(name, space, _FIRSTS, values, starts, order, _Size(space))
        return None

    def _by_pair(self, pairs: str) -> str | None:
        """Returns the order of edges by pair; edges are already in the order of destination pairs."""
        return AS_THEY_ARE if pairs == "V" else self.place("ids_E_etype_src")

    def _pointers(self, name: str, space: str, path: str) -> str | None:
        targets = None if space == "E" and path in _PAIRS.values() else self.place(encoding_name("idx", space, path))
        if targets is None:
            return None
        groups = target_space(space, path)
        return self._make(name, groups, _POINTERS, targets, _Size(space), _Size(groups), longer=True)

    def _order(self, name: str, space: str, *paths: str) -> str | None:
        telling = [path for path in paths if path != "etype" or self.several_types]
        if not telling or (space == "E" and self._is_canonical(telling)):
            return self._stays(name, space)
        if space == "E" and name != "ids_E_etype_src" and self._is_by_type_and_source(telling):
            return self._share(name, self.place("ids_E_etype_src"))
        keys: list[Operand] = []
        for path in telling:
            vector = self.place(encoding_name("idx", space, path))
            if vector is None:
                return None
            keys += [vector, _Size(target_space(space, path))]
        return self._make(name, space, _ORDER, _Size(space), len(telling), *keys)

    def _is_canonical(self, telling: list[str]) -> bool:
        if telling[-1] == "dstpair":
            return telling[:-1] in ([], ["etype"])
        return telling == ["dst"] if not self.several_types else telling == ["etype", "dst"][: len(telling)]

    def _is_by_type_and_source(self, telling: list[str]) -> bool:
        by_pair = telling[-1] in ("srcpair", "typedsrc") and telling[:-1] in ([], ["etype"])
        return by_pair or (telling == ["src"] and not self.several_types)

    def _via(self, name: str, space: str, path: str, onward: str) -> str | None:
        order = self.place(encoding_name("ids", space, path))
        values = self.place(encoding_name("idx", space, onward))
        if order is None or values is None:
            return None
        return self._make(name, space, _TAKE, values, order, _Size(space))

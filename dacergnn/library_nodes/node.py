"""Defines the base class of SegmentGemm and Traversal: a row space, a body of statements, connectors by array name."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import dace
from dace import properties
from dace.sdfg import nodes

from dacergnn.errors import VerificationError
from dacergnn.library_nodes.form import Ref, Shape, Statement, statement_text
from dacergnn.library_nodes.label import label
from dacergnn.library_nodes.parse import parse_statement, view_shape
from dacergnn.library_nodes.place import Place, at
from dacergnn.library_nodes.plan import Arrays, OperatorPlan, Rows
from dacergnn.library_nodes.shapes import check_shapes
from dacergnn.target import Target, find

if TYPE_CHECKING:
    from dace.data import Data

PREFIX = "_"
Typeclass = Any
"""A scalar type of DaCe: type checkers see a class, but at run time it is an instance of `dace.typeclass`."""


def row_shape(desc: Data) -> Shape:
    """Returns the row shape of an array: its sizes behind the leading dimension."""
    return tuple(int(s) for s in desc.shape[1:])


def row_space(desc: Data) -> str:
    """Returns the row space of an array, which its leading dimension names."""
    return _named(desc.shape[0])


@lru_cache(maxsize=256)
def _named(leading: object) -> str:
    return "ONE" if leading == 1 else str(leading)


class RunTimeProperty(properties.SymbolicProperty):
    """Holds an `int`, or the symbol whose value comes with each call; DaCe's own property holds SymPy's integers."""

    def __get__(self, obj: object, objtype: type | None = None) -> Any:
        value: Any = super().__get__(obj, objtype)
        return int(value) if getattr(value, "is_Integer", False) else value

    def typestring(self) -> str:
        return "SymbolicProperty"  # the name that viewers know


@dataclass(frozen=True)
class _Body:
    """Holds parsed statements, the arrays that they write, and those that they read and do not write, in order."""

    statements: tuple[Statement, ...]
    written: tuple[str, ...]
    read: tuple[str, ...]

    @staticmethod
    @lru_cache(maxsize=4096)
    def of(body: tuple[str, ...], spaces: tuple[str, ...], places: tuple[str, ...]) -> _Body:
        statements = tuple(parse_statement(text, space) for text, space in zip(body, spaces, strict=True))
        if len(places) == len(body):
            statements = tuple(replace(s, place=Place.parse(p)) for s, p in zip(statements, places, strict=True))
        written = dict.fromkeys(s.target.name for s in statements)
        read = dict.fromkeys(r.name for s in statements for r in s.reads if r.name not in written)
        return _Body(statements, tuple(written), tuple(read))


@properties.make_properties
class GraphOperator(nodes.LibraryNode):
    """Represents a library node whose body is a list of statements (`dacergnn.library_nodes.form`) over row spaces.

    Its meaning is that the statements run one after the other, each over all rows. Connectors are named "_" and the
    name of an array. Inputs are the arrays that the body reads, then the graph encodings that its access scheme needs.
    Outputs are the arrays that it writes, except its ``locals``. Only this operator touches its locals: they have a
    descriptor in the SDFG, and no memory.

    Its label says what the body does. Its name is that of the last array that it wrote when it was made.
    """

    run_time: tuple[str, ...] = ()
    """Properties that may have another value in every call of one build, each a `RunTimeProperty`."""
    schedule_properties: tuple[str, ...] = ()
    """Properties that make up its schedule, in the order in which `select_schedule` decides on them."""

    space = properties.Property(dtype=str, default="E", desc="Row space whose rows threads share out (the mapping)")
    body = properties.ListProperty(element_type=str, desc="Statements in program form")
    spaces = properties.ListProperty(element_type=str, desc="Row space of every statement of the body")
    places = properties.ListProperty(
        element_type=str, desc="Place of every statement in the source, as file:line:column; none if nothing is known"
    )
    locals = properties.ListProperty(element_type=str, desc="Arrays that only this operator writes and reads")
    encodings = properties.ListProperty(element_type=str, desc="Graph encodings that the access scheme reads")

    def __init__(self, name: str = "operator", **kwargs: object) -> None:
        super().__init__(name, **kwargs)

    @property
    def statements(self) -> tuple[Statement, ...]:
        """Returns the parsed body."""
        return self._parsed(tuple(self.places)).statements

    @statements.setter
    def statements(self, statements: Sequence[Statement]) -> None:
        self.body = [statement_text(s) for s in statements]
        self.spaces = [s.space for s in statements]
        places = [str(s.place or "") for s in statements]
        self.places = places if any(places) else []
        self.label = label(statements)
        if self.place is not None:
            self.debuginfo = self.place.debuginfo
        self.encodings = []
        self.in_connectors = {PREFIX + name: None for name in self.read_arrays}
        self.out_connectors = {PREFIX + name: None for name in self.written_arrays}

    @property
    def place(self) -> Place | None:
        """Returns the first known place of a statement."""
        return next((s.place for s in self.statements if s.place is not None), None)

    def _parsed(self, places: tuple[str, ...] = ()) -> _Body:
        """Returns the parsed body; only statements need ``places``, which take time to read."""
        return _Body.of(tuple(self.body), tuple(self.spaces or [self.space] * len(self.body)), places)

    @property
    def written_arrays(self) -> list[str]:
        """Returns the arrays that the body writes, without its locals."""
        hidden = self.locals
        return [n for n in self._parsed().written if n not in hidden]

    @property
    def read_arrays(self) -> list[str]:
        """Returns the arrays that the body reads and does not write."""
        return list(self._parsed().read)

    def arrays(self, sdfg: dace.SDFG, state: dace.SDFGState) -> dict[str, Data]:
        """Returns the descriptors of the arrays of all connectors and of the locals, by name without the prefix."""
        edges = [(e.dst_conn, e.data.data) for e in state.in_edges(self)]
        edges += [(e.src_conn, e.data.data) for e in state.out_edges(self)]
        arrays = {connector.removeprefix(PREFIX): sdfg.arrays[data] for connector, data in edges if connector}
        return arrays | {name: sdfg.arrays[name] for name in self.locals}

    @property
    def knobs(self) -> dict[str, Any]:
        """Returns the values of the properties that every call of a build may set."""
        return {name: getattr(self, name) for name in self.run_time}

    def reset(self, name: str) -> None:
        """Gives a property its default value."""
        setattr(self, name, self._default(name))

    def _default(self, name: str) -> Any:
        kinds: dict[str, Any] = type(self).__properties__  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        return kinds[name].default

    @property
    def chosen(self) -> dict[str, Any]:
        """Returns the properties of its schedule that differ from their defaults."""
        values = {name: getattr(self, name) for name in self.schedule_properties}
        return {name: value for name, value in values.items() if value != self._default(name)}

    def facts(self, arrays: Mapping[str, Data]) -> Arrays:
        """Returns the row spaces, row shapes and element size of the arrays that the body names, for plans."""
        names = dict.fromkeys(r.name for s in self.statements for r in (*s.reads, s.target))
        rows = tuple((name, Rows(row_space(arrays[name]), row_shape(arrays[name]))) for name in names)
        item = min(arrays[name].dtype.bytes for name in names)
        return Arrays(rows, item, frozenset(name for name in names if arrays[name].dtype.bytes > item))

    def plan(self, target: str, arrays: Mapping[str, Data]) -> OperatorPlan:
        """Returns the plan of its kernel on a target, given the descriptors of its arrays.

        Raises:
            VerificationError: A property of the schedule has a value that kernels of the target do not support.
        """
        with at(self.place):
            known_target = find(target)
            for name in self.schedule_properties:
                value, options = getattr(self, name), known_target.schedule_options.get(name, ())
                if type(value) is int and name not in self.run_time and options and str(value) not in options:
                    raise VerificationError(
                        f"{self.name}: {name} is {value}; options of {known_target.name}: {', '.join(options)}."
                    )
            return self._plan(known_target, self.facts(arrays))

    def _plan(self, target: Target, arrays: Arrays) -> OperatorPlan:
        """Asks a target for the plan of the body."""
        raise NotImplementedError

    def validate(self, sdfg: dace.SDFG, state: dace.SDFGState) -> None:
        """Checks the connectors and row shapes of the body against the arrays."""
        arrays = self.arrays(sdfg, state)

        def shapes(ref: Ref) -> Shape:
            return view_shape(ref, row_shape(arrays[ref.name]))

        for statement in self.statements:
            with at(statement.place):
                for ref in (*statement.reads, statement.target):
                    if ref.name not in arrays:
                        raise VerificationError(
                            f'{self.name}: the body names "{ref.name}", but no connector {PREFIX}{ref.name} is '
                            "connected."
                        )
                check_shapes(statement, shapes)


def copied(sdfg: dace.SDFG) -> dace.SDFG:
    """Returns a copy that shares nothing with ``sdfg``, in a third of the time that `copy.deepcopy` takes."""
    return pickle.loads(pickle.dumps(sdfg, pickle.HIGHEST_PROTOCOL))


def ordered_operators(state: dace.SDFGState) -> list[GraphOperator]:
    """Returns the operators of a state in an order in which they can run: that of insertion as far as data allow."""
    operators = [n for n in state.nodes() if isinstance(n, GraphOperator)]
    waiting = [(n, n.read_arrays, n.written_arrays) for n in operators]
    unwritten = {name for _, _, written in waiting for name in written}
    ordered: list[GraphOperator] = []
    while waiting:
        position = next((i for i, (_, read, _) in enumerate(waiting) if unwritten.isdisjoint(read)), None)
        if position is None:
            return [*ordered, *(n for n, _, _ in waiting)]  # a cycle: the verifier reports it
        ready, _, written = waiting.pop(position)
        unwritten.difference_update(written)
        ordered.append(ready)
    return ordered

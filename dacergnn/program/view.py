"""A view of an inter-operator SDFG as a list of operators, and the rewrites that keep it valid.

An inter-operator SDFG is a single state of library nodes and access nodes. Every array is written by at most
one operator (single assignment), so the order of operators follows from the data alone, and passes
only say what changes.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import dace
from dace import Memlet
from dace.data import Array
from dace.sdfg import nodes
from dace.sdfg.graph import generate_element_id
from dace.subsets import Range

from dacergnn.errors import ProgramError
from dacergnn.graph.spaces import ROW_SPACES
from dacergnn.library_nodes import GraphOperator, SegmentGemm, Statement, Traversal, row_shape, row_space
from dacergnn.library_nodes.form import Ref, Shape
from dacergnn.library_nodes.node import PREFIX, Typeclass, ordered_operators
from dacergnn.library_nodes.parse import view_shape
from dacergnn.library_nodes.place import Place
from dacergnn.program.names import sdfg_name

SYMBOLS = {space: dace.symbol(space, dtype=dace.int64) for space in ROW_SPACES if space != "ONE"}


@dataclass(frozen=True)
class StatementGroup:
    """Describes a Traversal: its statements, its mapping and its local arrays."""

    statements: tuple[Statement, ...]
    mapping: str
    local_arrays: tuple[str, ...]


class Program:
    """Represents a view of ``sdfg``; it holds no state of its own, so several views of one SDFG agree."""

    def __init__(self, sdfg: dace.SDFG) -> None:
        self.sdfg = sdfg
        self.state: dace.SDFGState = next(iter(sdfg.states()))

    @classmethod
    def empty(cls, name: str) -> Program:
        """Returns a program without operators or arrays."""
        sdfg = dace.SDFG(name)
        sdfg.add_state("program", is_start_block=True)
        sdfg.arg_names = []
        return cls(sdfg)

    # Queries

    @property
    def operators(self) -> list[GraphOperator]:
        """Returns the operators in an order in which they can run: by insertion, as far as the data allow."""
        return ordered_operators(self.state)

    @property
    def inputs(self) -> list[str]:
        """Returns the arrays that the caller provides, in the order of the signature."""
        written = self.written
        return [n for n in self.sdfg.arg_names if n not in written]

    @property
    def outputs(self) -> list[str]:
        """Returns the arrays that the caller receives, in the order of the signature."""
        written = self.written
        return [n for n in self.sdfg.arg_names if n in written]

    @property
    def written(self) -> set[str]:
        return {name for n in self.state.nodes() if isinstance(n, GraphOperator) for name in n.written_arrays}

    def producer(self, name: str) -> GraphOperator | None:
        return next((n for n in self.operators if name in n.written_arrays), None)

    def consumers(self, name: str) -> list[GraphOperator]:
        return [n for n in self.operators if name in n.read_arrays]

    def space(self, name: str) -> str:
        """Returns the row space of an array."""
        return row_space(self.sdfg.arrays[name])

    def shape(self, ref: str | Ref) -> Shape:
        """Returns the row shape of an array, or of a reference to one."""
        if isinstance(ref, str):
            return row_shape(self.sdfg.arrays[ref])
        return view_shape(ref, row_shape(self.sdfg.arrays[ref.name]))

    def fresh(self, name: str) -> str:
        """Returns ``name``, or ``name_1``, ... if it is taken."""
        candidate, count = name, 0
        while candidate in self.sdfg.arrays:
            count += 1
            candidate = f"{name}_{count}"
        return candidate

    # Rewrites

    def add_input(self, name: str, space: str, shape: Shape, dtype: Typeclass = dace.float32) -> str:
        """Declares an array that the caller provides; returns its name (`sdfg_name`)."""
        name = sdfg_name(name)
        if name in self.sdfg.arrays:
            raise ProgramError(f'two arrays of {self.sdfg.name} would be called "{name}"; rename one.')
        self.sdfg.add_datadesc(name, _rows(space, shape, dtype))
        self.sdfg.arg_names = [*self.sdfg.arg_names, name]
        return name

    def add_array(self, name: str, space: str, shape: Shape, dtype: Typeclass = dace.float32) -> str:
        """Declares an intermediate array; returns its name, made unique."""
        name = self.fresh(sdfg_name(name))
        self.sdfg.add_datadesc(name, _rows(space, shape, dtype, transient=True))
        return name

    def locate(self, name: str, place: Place | None) -> None:
        """Notes the place where an array is declared or assigned, if it is known."""
        if place is not None:
            self.sdfg.arrays[name].debuginfo = place.debuginfo

    def mark_output(self, name: str) -> None:
        """Makes an intermediate array one that the caller receives."""
        self.sdfg.arrays[name].transient = False
        self.sdfg.arg_names = [*self.sdfg.arg_names, name]

    def insert(
        self, *statements: Statement, mapping: str | None = None, local_arrays: Sequence[str] = ()
    ) -> GraphOperator:
        """Adds an operator with these statements: a SegmentGemm if one is a product, else a Traversal.

        A Traversal of several statements takes its ``mapping``, the row space that threads share out, and its
        ``local_arrays``, intermediate arrays that nothing else may touch.
        """
        kind = SegmentGemm if any(s.is_gemm for s in statements) else Traversal
        operator = _operator(kind, statements, mapping, local_arrays)
        self._put(operator)
        return operator

    def place(self, operator: GraphOperator) -> None:
        """Adds an operator that was taken out, behind the others."""
        operator.statements = operator.statements
        self._put(operator)

    def _put(self, operator: GraphOperator) -> None:
        for statement in operator.statements:
            self.locate(statement.target.name, statement.place)
        self.state.add_node(operator)
        self._connect(operator)

    def replace(self, operator: GraphOperator, statements: Sequence[Statement]) -> GraphOperator:
        """Replaces the body of an operator, and its kind where the body needs another one."""
        position = self.state.nodes().index(operator)
        followers = [n for n in self.state.nodes()[position + 1 :] if isinstance(n, GraphOperator)]
        self.remove(operator)
        new = self.insert(*statements)
        for follower in followers:  # keep the order of insertion
            self._move_last(follower)
        return new

    def _move_last(self, operator: GraphOperator) -> None:
        self.state.remove_node(operator)
        self.place(operator)

    def regroup(self, groups: Sequence[GraphOperator | StatementGroup]) -> None:
        """Replaces operators by groups of their statements; ``groups`` names the operators that stay as they are."""
        kept = [g for g in groups if isinstance(g, GraphOperator)]
        for operator in self.operators:
            if operator not in kept:
                self.state.remove_node(operator)
        for group in groups:
            if isinstance(group, GraphOperator):
                self._move_last(group)
            else:
                self.insert(*group.statements, mapping=group.mapping, local_arrays=group.local_arrays)
        self._remove_isolated()

    def remove(self, operator: GraphOperator) -> None:
        """Takes an operator out; arrays that nothing touches any more are dropped by `drop_unused`."""
        self.state.remove_node(operator)
        self._remove_isolated()

    def clear(self) -> None:
        """Takes all operators out."""
        for node in self.state.nodes():
            self.state.remove_node(node)

    def drop_unused(self) -> None:
        """Removes operators whose results nobody reads, then intermediate arrays that nothing touches."""
        wanted = set(self.sdfg.arg_names)
        for operator in reversed(self.operators):
            if wanted.isdisjoint(operator.written_arrays):
                self.remove(operator)
            else:
                wanted.update(operator.read_arrays)
        touched = {n.data for n in self.state.data_nodes()}
        touched.update(name for operator in self.operators for name in operator.locals)
        for name, desc in list(self.sdfg.arrays.items()):
            if desc.transient and name not in touched:
                self.sdfg.remove_data(name)

    def connect_inputs(self, operator: GraphOperator, names: Iterable[str]) -> None:
        """Connects further read-only arrays (encodings) to an operator."""
        access = self._access_nodes()
        for name in names:
            operator.add_in_connector(PREFIX + name)
            self.state.add_edge(self._access(name, access), None, operator, PREFIX + name, self._memlet(name))

    def _connect(self, operator: GraphOperator) -> None:
        access = self._access_nodes()
        for name in operator.read_arrays:
            self.state.add_edge(self._access(name, access), None, operator, PREFIX + name, self._memlet(name))
        for name in operator.written_arrays:
            self.state.add_edge(operator, PREFIX + name, self._access(name, access), None, self._memlet(name))

    def _access_nodes(self) -> dict[str, nodes.AccessNode]:
        return {n.data: n for n in self.state.nodes() if isinstance(n, nodes.AccessNode)}

    def _access(self, name: str, known: dict[str, nodes.AccessNode]) -> nodes.AccessNode:
        if name not in known:
            known[name] = _access_node(name)  # not `add_access`, which walks Python's stack for a source location
            known[name].debuginfo = self.sdfg.arrays[name].debuginfo
            self.state.add_node(known[name])
        return known[name]

    def _memlet(self, name: str) -> Memlet:
        memlet = copy.deepcopy(_whole(tuple(self.sdfg.arrays[name].shape)))
        memlet.data = name
        return memlet

    def _remove_isolated(self) -> None:
        for node in list(self.state.data_nodes()):
            if self.state.degree(node) == 0:
                self.state.remove_node(node)


# Templates are copied in a tenth of the time that making one takes.


@lru_cache(maxsize=4096)
def _whole(shape: tuple[Any, ...]) -> Memlet:
    """Returns a memlet over a whole array of a shape."""
    return Memlet(data="template", subset=Range([(0, size - 1, 1) for size in shape]))


@lru_cache(maxsize=4096)
def _template(space: str, shape: Shape, dtype: Typeclass, transient: bool) -> Array:
    return Array(dtype, [1 if space == "ONE" else SYMBOLS[space], *shape], transient=transient)


_ACCESS = nodes.AccessNode("template")
_KINDS: tuple[Any, ...] = (SegmentGemm, Traversal)  # for pyright, DaCe's decorator hides what they are
_OPERATORS: dict[Any, GraphOperator] = {kind: kind() for kind in _KINDS}


def _access_node(name: str) -> nodes.AccessNode:
    node = copy.deepcopy(_ACCESS)
    node.data = name
    return node


def _operator(
    kind: Any, statements: Sequence[Statement], mapping: str | None, local_arrays: Sequence[str]
) -> GraphOperator:
    node: Any = copy.deepcopy(_OPERATORS[kind])
    node.guid = generate_element_id(node)
    node.name = statements[-1].target.name
    node.space = mapping or statements[0].space
    node.locals = list(local_arrays)
    node.statements = tuple(statements)
    return node


def _rows(space: str, shape: Shape, dtype: Typeclass, *, transient: bool = False) -> Array:
    """Returns the descriptor of an array with one value of row shape ``shape`` for every row of ``space``."""
    return copy.copy(_template(space, shape, dtype, transient))

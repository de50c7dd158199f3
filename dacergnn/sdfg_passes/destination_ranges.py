"""Cuts a program into a part for all nodes and a part for a range of destinations, which runs range by range.

(Sequential aggregation and rematerialization, as in SAR.)

Precondition: an inter-operator SDFG whose operators hold one statement each, before gradients are generated.

Before, a program on the whole graph::

    def p(g, x: NS[64], W: ONE[64, 64]):
        for n in g.src_nodes(): n["h"] = linear(n.x, W)
        for e in g.edges(): e["s"] = exp(dot_prd(e.src["h"], e.dst["h"]))
        for n in g.dst_nodes(): for e in n.incoming_edges(): n["out"] += e["s"] * e.src["h"]
        return out

After, a program on all nodes, and one on the edges that end in a range of the destinations. The second takes the rows
of its own destinations as an array of its own::

    def p_nodes(g, x: NS[64], W: ONE[64, 64]):
        for n in g.src_nodes(): n["h"] = linear(n.x, W)
        return h

    def p_range(g, h: NS[64], h_own: ND[64]):
        for e in g.edges(): e["s"] = exp(dot_prd(e.src["h"], e.dst["h_own"]))
        for n in g.dst_nodes(): for e in n.incoming_edges(): n["out"] += e["s"] * e.src["h"]
        return out

A node's edges are all in one range, so its sums, extrema and softmax are those of the whole graph, edge by edge in the
same order. Saves: all rows of edges and pairs but those of one range.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

import dace

from dacergnn.errors import ProgramError
from dacergnn.graph.spaces import kind
from dacergnn.library_nodes.form import Ref, Statement
from dacergnn.library_nodes.node import Typeclass, copied
from dacergnn.library_nodes.plan import Rows
from dacergnn.program.listing import Listing, map_refs
from dacergnn.program.printer import print_program
from dacergnn.sdfg_passes.base import Pass
from dacergnn.sdfg_passes.context import Context

Kind = Literal["types", "sources", "rows", "edges"]
"""Rows of an array that a range has: all types, its sources, its destinations, or its edges."""
_TYPES = frozenset(("ONE", "R", "T"))
_NODES = _TYPES | {"NS", "RNS"}
_RANGED = frozenset(("ND", "E", "U", "V"))


@dataclass(frozen=True)
class RangeArray:
    """Describes an array of the program of a range.

    Args:
        source: The array of the whole program that it has rows of.
        space: The row space of that array.
        kind: The rows that a range has.
    """

    source: str
    space: str
    kind: Kind


@dataclass(frozen=True)
class RangeProgram:
    """Holds the result of `cut`.

    Args:
        nodes: The program over all nodes; None if there is nothing to compute for all of them.
        nodes_inputs, nodes_outputs: Inputs and results of that program.
        text: The program of a range.
        inputs: Its inputs by their names, in order.
        results: The results of the original program: the name, and the rows that a range has of it; "types" stands for
            a result of the program over all nodes.
    """

    nodes: str | None
    nodes_inputs: tuple[str, ...]
    nodes_outputs: tuple[str, ...]
    text: str
    inputs: dict[str, RangeArray]
    results: tuple[RangeArray, ...]


def cut(sdfg: dace.SDFG, passes: Iterable[Pass], context: Context) -> RangeProgram:
    """Cuts a program, after passes that move work from edges to nodes.

    Args:
        sdfg: An inter-operator SDFG as it was parsed; stays as it is.

    Raises:
        ProgramError: The program has sums over the edges of a source or of a type, or results of sources that depend on
            edges: these are complete only after all ranges.
    """
    rewritten = copied(sdfg)
    for step in passes:
        step.run(rewritten, context)
    return _Cut(Listing.of(rewritten)).made(sdfg.name, next(iter(sdfg.arrays.values())).dtype)


@dataclass
class _Cut:
    listing: Listing
    nodes: list[Statement] = field(default_factory=list[Statement])
    ranged: list[Statement] = field(default_factory=list[Statement])
    arrays: dict[str, Rows] = field(default_factory=dict[str, Rows])
    """Arrays of the program of a range."""
    inputs: dict[str, RangeArray] = field(default_factory=dict[str, RangeArray])

    def made(self, name: str, dtype: Typeclass) -> RangeProgram:
        listing = self.listing
        self._divide()
        self._move_to_ranges()
        if not self.ranged:
            raise ProgramError(f'"{name}" reads no edges, so there is nothing to divide.')
        computed = {s.target.name for s in self.nodes}
        statements = [self._in_range(s) for s in self.ranged]
        results = tuple(self._result(n, whole=n in computed) for n in listing.outputs)
        outputs = tuple(r.source for r in results if r.kind != "types")
        part = Listing(self.arrays, tuple(self.inputs), outputs, statements, listing.item)
        used = {array.source for array in self.inputs.values()} | {*listing.outputs}
        wanted = tuple(s.target.name for s in self.nodes if s.target.name in used)
        before = Listing(dict(listing.arrays), (), wanted, list(self.nodes), listing.item)
        before.drop_unused()
        read = {ref.name for s in before.statements for ref in s.reads}
        before.inputs = tuple(n for n in listing.inputs if n in read)
        nodes = print_program(before.build(f"{name}_nodes", dtype)) if wanted else None
        return RangeProgram(
            nodes, before.inputs, wanted, print_program(part.build(f"{name}_range", dtype)), self.inputs, results
        )

    def _divide(self) -> None:
        """Divides the statements into those over all nodes or types, and those of ranges."""
        whole = {name for name in self.listing.inputs if self.listing.space(name) in _NODES}
        for statement in self.listing.statements:
            if statement.space in _NODES and all(ref.name in whole for ref in statement.reads):
                self.nodes.append(statement)
                whole.add(statement.target.name)
            else:
                self.ranged.append(statement)

    def _move_to_ranges(self) -> None:
        """Moves values of sources that only destinations need to the program of a range."""
        for statement in reversed(list(self.nodes)):
            name = statement.target.name
            readers = [(s, ref) for s in (*self.nodes, *self.ranged) for ref in s.reads if ref.name == name]
            own = statement.space == "NS" and statement.target == Ref(name) and statement.op == "="
            needed = name in self.listing.outputs or not readers
            if not own or needed or not all(s in self.ranged and _is_own(s, ref) for s, ref in readers):
                continue
            self.nodes.remove(statement)
            self.ranged.insert(0, replace(statement, space="ND"))
            self.listing.arrays[name] = Rows("ND", self.listing.arrays[name].shape)

    def _in_range(self, statement: Statement) -> Statement:
        """Returns a statement of the program of a range."""
        target = statement.target
        space = self.listing.space(target.name)
        if kind(space) not in _RANGED or kind(statement.space) not in _RANGED or target.path == "src":
            raise ProgramError(f'"{target.name}" sums up edges of all destinations, so no range of them has its value.')
        self.arrays[target.name] = self.listing.arrays[target.name]
        return replace(statement, expr=map_refs(statement.expr, lambda ref: self._read(statement, ref)))

    def _read(self, statement: Statement, ref: Ref) -> Ref:
        if any(s.target.name == ref.name for s in self.ranged):
            return ref
        rows = self.listing.arrays[ref.name]
        if rows.space in _TYPES:
            return self._taken(ref, ref.name, rows, "types")
        if rows.space == "NS" and _is_own(statement, ref):
            return self._taken(ref, f"{ref.name}_own", Rows("ND", rows.shape), "rows")
        if rows.space == "NS" and ref.path == "src":
            return self._taken(ref, ref.name, rows, "sources")
        if rows.space == "ND" and _is_own(statement, ref):
            return self._taken(ref, ref.name, rows, "rows")
        if rows.space == "E" and ref.path in ("", "edge"):
            return self._taken(ref, ref.name, rows, "edges")
        raise ProgramError(f'"{ref.name}" has rows of {rows.space}, of which no range of destinations has its own.')

    def _taken(self, ref: Ref, wanted: str, rows: Rows, own: Kind) -> Ref:
        """Returns the reference to an input of the program of a range, which it adds if it is new."""
        array, name, count = RangeArray(ref.name, self.listing.space(ref.name), own), wanted, 0
        while self.inputs.get(name, array) != array or (name not in self.inputs and self._is_taken(name, ref.name)):
            count += 1
            name = f"{wanted}_{count}"
        self.inputs[name] = array
        self.arrays[name] = rows
        return replace(ref, name=name)

    def _is_taken(self, name: str, source: str) -> bool:
        return name != source and name in self.listing.arrays

    def _result(self, name: str, *, whole: bool) -> RangeArray:
        space = self.listing.space(name)
        kinds: dict[str, Kind] = {"ND": "rows", "E": "edges"}
        if whole or space in kinds:
            return RangeArray(name, space, "types" if whole else kinds[space])
        raise ProgramError(f'"{name}" has rows of {space}, of which no range of destinations has its own.')


def _is_own(statement: Statement, ref: Ref) -> bool:
    """Tells whether a reference leads to the destination that a statement's row belongs to."""
    return ref.path == ("" if statement.space == "ND" else "dst")

"""The statements of a program as a plain list, for passes that rewrite many at once or price alternatives.

A listing is a short-lived view: `Listing.of` reads one off an inter-operator SDFG whose operators hold one statement
each, `write` puts it back. Between the two, trying a rewrite costs microseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import dace

from dacergnn.errors import ProgramError
from dacergnn.graph.spaces import along, through
from dacergnn.library_nodes.form import Expr, Op, Ref, Shape, Statement
from dacergnn.library_nodes.node import Typeclass
from dacergnn.library_nodes.parse import view_shape
from dacergnn.library_nodes.place import at
from dacergnn.library_nodes.plan import Rows
from dacergnn.program.names import sdfg_name
from dacergnn.program.view import Program


@dataclass
class Listing:
    """Holds statements in an order in which they can run, and the arrays that they name."""

    arrays: dict[str, Rows] = field(default_factory=dict[str, Rows])
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    statements: list[Statement] = field(default_factory=list[Statement])
    item: int = 4
    """Bytes of an element of the arrays."""

    @classmethod
    def of(cls, sdfg: dace.SDFG) -> Listing:
        """Returns the listing of a program; raises ProgramError where operators have been fused already."""
        program = Program(sdfg)
        arrays = {name: Rows(program.space(name), program.shape(name)) for name in sdfg.arrays}
        statements: list[Statement] = []
        for operator in program.operators:
            if len(operator.statements) != 1:
                with at(operator.place):
                    raise ProgramError(f"{operator.name} is fused; this pass runs before traversal_fusion.")
            statements += operator.statements
        item = next((desc.dtype.bytes for desc in sdfg.arrays.values()), 4)
        return cls(arrays, tuple(program.inputs), tuple(program.outputs), statements, item)

    def write(self, sdfg: dace.SDFG, dtype: Typeclass | None = None) -> None:
        """Replaces the program in ``sdfg`` by the listing; inputs and outputs stay as they are.

        Args:
            dtype: Element type of new arrays; that of the other arrays if not given.
        """
        program = Program(sdfg)
        dtype = next(iter(sdfg.arrays.values())).dtype if dtype is None else dtype
        kept = {o.statements: o for o in program.operators}
        program.clear()
        for name in [n for n, desc in sdfg.arrays.items() if desc.transient]:
            sdfg.remove_data(name)
        signature = list(sdfg.arg_names)
        for statement in self.statements:
            name = statement.target.name
            if name not in sdfg.arrays:
                rows = self.arrays[name]
                program.add_array(name, rows.space, rows.shape, dtype)
        sdfg.arg_names = signature
        for statement in self.statements:
            if (statement,) in kept:
                program.place(kept[statement,])
            else:
                program.insert(statement)

    def build(self, name: str, dtype: Typeclass) -> dace.SDFG:
        """Returns a new SDFG of the listing."""
        program = Program.empty(name)
        for array in self.inputs:
            program.add_input(array, self.arrays[array].space, self.arrays[array].shape, dtype)
        if self.statements:
            self.write(program.sdfg, dtype)
        for array in self.outputs:
            program.mark_output(array)
        return program.sdfg

    def copy(self) -> Listing:
        return replace(self, arrays=dict(self.arrays), statements=list(self.statements))

    # Queries

    def space(self, name: str) -> str:
        return self.arrays[name].space

    def shape(self, ref: Ref) -> Shape:
        """Returns the row shape of a reference, as it is viewed."""
        return view_shape(ref, self.arrays[ref.name].shape)

    def producer(self, name: str) -> Statement | None:
        return next((s for s in self.statements if s.target.name == name), None)

    def row_producer(self, name: str) -> Statement | None:
        """Returns the statement that computes each row of an array from that row itself; None if there is none.

        A statement of destinations may write rows of sources; these have other numbers.
        """
        made = self.producer(name)
        own = made is not None and made.op == "=" and made.target == Ref(name) and made.space == self.space(name)
        return made if own else None

    def consumers(self, name: str) -> list[Statement]:
        return [s for s in self.statements if any(r.name == name for r in s.reads)]

    def is_internal(self, name: str) -> bool:
        """Tells whether an array is computed here and not returned."""
        return name not in self.inputs and name not in self.outputs

    # Rewrites

    def add(self, name: str, space: str, shape: Shape) -> str:
        """Declares an array; returns its name, made unique."""
        name = sdfg_name(name)
        candidate, count = name, 0
        while candidate in self.arrays:
            count += 1
            candidate = f"{name}_{count}"
        self.arrays[candidate] = Rows(space, shape)
        return candidate

    def exchange(self, old: Statement, *new: Statement) -> None:
        """Replaces one statement by others, which have its place unless they have one of their own."""
        position = self.statements.index(old)
        place = self.statements[position].place
        self.statements[position : position + 1] = [
            s if s.place or place is None else replace(s, place=place) for s in new
        ]

    def retarget(self, rewrite: Callable[[Statement, Ref], Ref]) -> None:
        """Replaces every reference that a statement reads by the result of ``rewrite``."""
        for position, statement in enumerate(self.statements):
            expr = map_refs(statement.expr, lambda ref, statement=statement: rewrite(statement, ref))
            if expr is not statement.expr:
                self.statements[position] = replace(statement, expr=expr)

    def settle(self) -> None:
        """Forwards copies, merges equal computations, drops unread results, and orders statements by their data."""
        self._forward_copies()
        while self._merge_equal():
            pass
        self.drop_unused()
        self._sort()

    def _forward_copies(self) -> None:
        """Lets readers of an array that only copies rows of another array read the other one."""
        for position in range(len(self.statements)):
            statement = self.statements[position]
            copy, name = statement.expr, statement.target.name
            if not isinstance(copy, Ref) or copy.transposed or statement.op != "=" or statement.target != Ref(name):
                continue
            if self.is_internal(name) and self.arrays[name] == Rows(statement.space, self.shape(copy)):
                self.statements = [self._forwarded(s, name, copy) for s in self.statements]

    def _forwarded(self, statement: Statement, name: str, copy: Ref) -> Statement:
        """Returns the statement with ``copy`` read in place of ``name``, if a product stays a product."""

        def forward(ref: Ref) -> Ref:
            path = along(statement.space, ref.path, copy.path) if ref.name == name else None
            if path is None:
                return ref
            view = self.shape(ref)
            return replace(ref, name=copy.name, path=path, view=None if view == self.arrays[copy.name].shape else view)

        expr = map_refs(statement.expr, forward)
        new = statement if expr is statement.expr else replace(statement, expr=expr)
        return new if not statement.is_gemm or is_product(new) else statement

    def _merge_equal(self) -> bool:
        """Keeps the first of statements that compute the same rows; tells whether any were merged."""
        seen: dict[object, str] = {}
        same: dict[str, str] = {}
        for s in self.statements:
            name = s.target.name
            key = (s.space, s.target.path, s.target.view, s.op, s.expr, self.arrays[name])
            if self.is_internal(name) and key in seen:
                same[name] = seen[key]
            else:
                seen.setdefault(key, name)
        if same:
            self.statements = [s for s in self.statements if s.target.name not in same]
            self.retarget(lambda s, ref: replace(ref, name=same[ref.name]) if ref.name in same else ref)
        return bool(same)

    def drop_unused(self) -> None:
        """Drops statements whose results nobody reads, and intermediate arrays that nothing touches."""
        by_target = {s.target.name: s for s in self.statements}
        needed: set[str] = set()
        waiting = list(self.outputs)
        while waiting:
            name = waiting.pop()
            if name not in needed:
                needed.add(name)
                if name in by_target:
                    waiting += [r.name for r in by_target[name].reads]
        self.statements = [s for s in self.statements if s.target.name in needed]
        kept = {*needed, *self.inputs}
        self.arrays = {name: rows for name, rows in self.arrays.items() if name in kept}

    def _sort(self) -> None:
        unwritten = {s.target.name for s in self.statements}
        waiting, ordered = self.statements, list[Statement]()
        while waiting:
            ready = next((s for s in waiting if unwritten.isdisjoint(r.name for r in s.reads)), None)
            if ready is None:
                with at(waiting[0].place):
                    raise ProgramError(f'"{waiting[0].target.name}" depends on itself.')
            waiting = [s for s in waiting if s is not ready]
            unwritten.discard(ready.target.name)
            ordered.append(ready)
        self.statements = ordered


def is_product(statement: Statement) -> bool:
    """Tells whether a statement is a product, scaled by own rows at most, with weights in their own shape."""
    gemm = statement.gemm
    return gemm is not None and (gemm.kind != "linear" or gemm.w.view is None)


def map_refs(expr: Expr, rewrite: Callable[[Ref], Expr]) -> Expr:
    """Returns the expression with every reference replaced; the same object if nothing changes."""
    if isinstance(expr, Ref):
        return rewrite(expr)
    if not isinstance(expr, Op):
        return expr
    args = tuple(map_refs(arg, rewrite) for arg in expr.args)
    return expr if all(new is old for new, old in zip(args, expr.args, strict=True)) else replace(expr, args=args)


def rebase(expr: Expr, space: str, via: str) -> Expr | None:
    """Returns the expression as seen from the rows that path ``via`` leads to; None if it depends on other rows."""
    paths: dict[str, str | None] = {}

    def moved(ref: Ref) -> Ref:
        paths[ref.path] = through(space, via, ref.path)
        return replace(ref, path=paths[ref.path] or "")

    result = map_refs(expr, moved)
    return None if None in paths.values() else result

"""Translation of expressions to programs, in statements as a person would write them; equal layers give equal text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.frontend import ProgramSource, spec
from dacergnn.frontends.symbolic.callers import Caller, place_of
from dacergnn.frontends.symbolic.edges import SIDES, TYPES
from dacergnn.frontends.symbolic.expr import Expr, reached
from dacergnn.frontends.symbolic.names import Names
from dacergnn.library_nodes import form
from dacergnn.library_nodes.form import GEMM_OPERATORS, Const, Op, Ref, Shape, Statement, statement_text
from dacergnn.library_nodes.place import Place
from dacergnn.program.emission import OWN_STATEMENT
from dacergnn.program.source import PlacedText

INPUTS = ("leaf", "degree", "pair_mean")
"""Operators that are inputs of a program: tensors, and data that follow from the graph."""
Step = tuple[str, tuple[int, ...], tuple[Any, ...], Shape]
"""An expression with positions in place of operands: operator, operands, data as in `Expr`, row shape."""


@dataclass(frozen=True)
class Region:
    """Holds a program, the row spaces of its inputs, and position and row space of the value of each output."""

    program: ProgramSource
    inputs: tuple[str, ...]
    outputs: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class _Recorded:
    """Holds the steps of a region, those whose values are wanted, its names, and what made each step.

    Steps that different code made are equal, since they make the same program.
    """

    steps: tuple[Step, ...]
    wanted: tuple[int, ...]
    bipartite: bool
    name: str
    names: tuple[str | None, ...]
    callers: Sequence[Caller | None] = field(compare=False)


def region(
    exprs: Sequence[Expr], bipartite: bool, names: Names
) -> tuple[ProgramSource, Sequence[tuple[int, str]], list[Expr], Sequence[str]]:
    """Returns the program for some expressions, its outputs as in `Region`, its inputs and their row spaces."""
    steps: dict[object, int] = {}
    order: list[Step] = []
    callers: list[Caller | None] = []
    leaves: list[Expr] = []
    positions: dict[int, int] = {}
    for expr in reached(exprs):
        data = (Const(float(expr.data[0])),) if expr.op == "const" else expr.data  # Const tells the two zeros apart
        step = (expr.op, tuple([positions[a.serial] for a in expr.args]), data, expr.shape)
        key = (step, id(expr.tensor)) if expr.op == "leaf" else step
        position = steps.get(key)
        if position is None:
            position = steps[key] = len(order)
            order.append(step)
            callers.append(None)
            if expr.op in INPUTS:
                leaves.append(expr)
        positions[expr.serial] = position
        callers[position] = callers[position] or expr.caller
    wanted = tuple([positions[e.serial] for e in exprs])
    named = tuple([names.inputs.get(id(leaf.tensor)) for leaf in leaves])
    made = _emitted(_Recorded(tuple(order), wanted, bipartite, names.program, named, callers))
    return made.program, made.outputs, leaves, made.inputs


@lru_cache(maxsize=1024)
def _emitted(recorded: _Recorded) -> Region:
    return _Emitter(recorded).emit()


class _Emitter:
    def __init__(self, recorded: _Recorded) -> None:
        self.steps, self.wanted, self.bipartite = recorded.steps, recorded.wanted, recorded.bipartite
        self.name, self.given = recorded.name, recorded.names
        self.spaces = _spaces(self.steps, self.bipartite)
        self.places = [None if caller is None else place_of(caller) for caller in recorded.callers]
        for i in reversed(range(len(self.steps))):  # parts of a step have its place
            for part in self.steps[i][1]:
                self.places[part] = self.places[part] or self.places[i]
        self.named = self._named()
        self.names: dict[int, str] = {}
        self.statements: list[tuple[str, Statement]] = []  # with the row space of the array that is assigned

    def emit(self) -> Region:
        inputs = [i for i, step in enumerate(self.steps) if step[0] in INPUTS]
        given = dict(zip(inputs, self.given, strict=True))
        for i in range(len(self.steps)):
            if i in inputs or i in self.named:
                name = given.get(i)
                if name is None or name in self.names.values():  # a tensor may be both rows and a constant
                    name = f"v{len(self.names)}"
                self.names[i] = name
            if i in self.named:
                self._assign(i)
        spaces = [self.spaces[i] or "ONE" for i in inputs]
        declared = [f"{self.names[i]}: {spec(s, *self.steps[i][3])}" for i, s in zip(inputs, spaces, strict=True)]
        results = list(dict.fromkeys(self.wanted))
        lines = [(f"def {self.name}({', '.join(['g', *declared])}):", None), *self._loops()]
        lines.append((f"    return {', '.join(self.names[i] for i in results)}", None))
        outputs = tuple((results.index(i), self.spaces[i] or "ONE") for i in self.wanted)
        text = PlacedText("".join(f"{line}\n" for line, _ in lines), [place for _, place in lines])
        return Region(ProgramSource(text, ()), tuple(spaces), outputs)

    def _named(self) -> set[int]:
        """Returns the values with arrays of their own: results, gathered or aggregated values, values used twice.

        Products and what they multiply have arrays in every program; named here, they keep their places.
        """
        uses = [0] * len(self.steps)
        named = set(self.wanted)
        for op, args, _, _ in self.steps:
            for a in args:
                uses[a] += 1
                if op == "gather":
                    named.add(a)
        for i, (op, args, _, _) in enumerate(self.steps):
            plain = op in (*INPUTS, "const", "gather")
            own = uses[i] > 1 or op in OWN_STATEMENT
            if op == "aggregate" or (own and self.spaces[i] is not None and not plain):
                named.add(i)
            if op in GEMM_OPERATORS:
                named |= {a for a in args if self.spaces[a] is not None and self.steps[a][0] != "gather"}
            if op == "detach" and i not in self.wanted and uses[i] > 1:
                named.discard(i)
                if self.steps[args[0]][0] not in (*INPUTS, "const", "gather"):
                    named.add(args[0])
        return {i for i in named if self.steps[i][0] not in (*INPUTS, "const")}

    def _assign(self, i: int) -> None:
        op, args, data, _ = self.steps[i]
        space = self.spaces[i]
        assert space is not None
        if op == "aggregate":
            side, reduction, *rows = data
            value = self._expression(args[0])
            place = self.places[i if args[0] in self.names else args[0]]  # the message tells most
            statement = Statement(rows[0] if rows else "E", Ref(self.names[i], side), reduction, value, place)
            self.statements.append((space, statement))
        else:
            value = self._expression(i, top=True)
            self.statements.append((space, Statement(space, Ref(self.names[i]), "=", value, self.places[i])))

    def _expression(self, i: int, *, top: bool = False) -> form.Expr:
        op, args, data, shape = self.steps[i]
        if i in self.names and not top:
            return Ref(self.names[i], "" if self.spaces[i] is not None else "one")
        if op == "const":
            return data[0]
        if op == "gather":
            return Ref(self.names[args[0]], data[0])
        operands = [self._expression(a) for a in args]
        if op == "linear":
            rows, matrix = operands
            assert isinstance(matrix, Ref)
            return Op("linear", (rows, Ref(matrix.name, matrix.path, None, bool(data[0]))))
        return Op(op, tuple(operands), shape if op == "reshape" else data)

    def _loops(self) -> list[tuple[str, Place | None]]:
        """Returns the statements in loops, each line with its place; neighbours with the same loop share it."""
        lines: list[tuple[str, Place | None]] = []
        last: tuple[str, ...] = ()
        for space, statement in self.statements:
            if statement.target.path in SIDES and statement.space == "E":
                node = "dst" if statement.target.path == "dst" else "src"
                edges = "incoming_edges" if node == "dst" else "outgoing_edges"
                heads = (self._head(space), f"for e in n.{edges}():")
                text = statement_text(statement, "e", {node: "n"})
            else:
                heads = (self._head(statement.space if statement.target.path else space),)
                text = statement_text(statement)
            shared = 0
            while shared < min(len(heads), len(last)) and heads[shared] == last[shared]:
                shared += 1
            inner = [("    " * (depth + 1) + head, statement.place) for depth, head in enumerate(heads)]
            lines += [*inner[shared:], ("    " * (len(heads) + 1) + text, statement.place)]
            last = heads
        return lines

    def _head(self, space: str) -> str:
        if space == "E":
            return "for e in g.edges():"
        if space == "V":
            return "for p in g.dst_pairs():"
        if space == "ND":
            return "for n in g.dst_nodes():"
        return "for n in g.src_nodes():" if self.bipartite else "for n in g.nodes():"


def _spaces(steps: tuple[Step, ...], bipartite: bool) -> list[str | None]:
    """Returns the row space of every value ("E", "NS", "ND", ...), or None if it is the same in all rows.

    Where sources and destinations are the same nodes, values of nodes have NS rows if they are read at sources,
    else ND rows.
    """
    ends = {"src": "NS", "dst": "ND"} if bipartite else {"src": "N", "dst": "N"}
    ends |= {"etype": "R", "ntype": "T", "dstpair": "V"}
    parents = list(range(len(steps)))
    known: dict[int, str] = {}
    uniform = [False] * len(steps)

    def find(i: int) -> int:
        while parents[i] != i:
            i = parents[i]
        return i

    def join(i: int, j: int) -> None:
        a, b = find(i), find(j)
        parents[a] = b
        space = known.pop(a, None)
        if space is not None:
            mark(b, space)

    def mark(i: int, space: str) -> None:
        if known.setdefault(find(i), space) != space:
            raise UnsupportedCallError("a value per node is used as a value per edge, or at the other end of edges.")

    for i, (op, args, data, _) in enumerate(steps):
        if op in ("gather", "aggregate"):
            if data[0] not in TYPES:  # they have the row space of the values that they are used with
                mark(i, "E" if op == "gather" else ends[data[0]])
            mark(args[0], ends[data[0]] if op == "gather" else data[2] if len(data) > 2 else "E")
        elif op == "join":
            raise UnsupportedCallError("messages that are joined with rows of nodes have a form as a sum only.")
        elif op == "degree":
            mark(i, ends[data[0]])
        elif op == "pair_mean":
            mark(i, "E")
        else:
            uniform[i] = op == "const" or data == ("one",) or (bool(args) and all(uniform[a] for a in args))
            for a in args:
                if not uniform[a]:
                    join(a, i)
    for i, (op, _, data, _) in enumerate(steps):
        if op == "gather" and data[0] in TYPES:  # rows of sources or edges, unless other values decide
            known.setdefault(find(i), ends["src"] if data[0] == "ntype" else "E")
    # Values that no edge leads to or from are rows of nodes.
    spaces = [None if uniform[i] else known.get(find(i), ends["src"]) for i in range(len(steps))]
    return spaces if bipartite else _sides(steps, spaces)


def _sides(steps: tuple[Step, ...], spaces: list[str | None]) -> list[str | None]:
    at_sources = [op == "leaf" or (op in ("aggregate", "degree") and data[0] == "src") for op, _, data, _ in steps]
    for i in reversed(range(len(steps))):
        op, args, data, _ = steps[i]
        for a in args:
            if (op == "gather" and data[0] == "src") or (op != "gather" and spaces[i] == "N" and at_sources[i]):
                at_sources[a] = True
    return [("NS" if at_sources[i] else "ND") if space == "N" else space for i, space in enumerate(spaces)]

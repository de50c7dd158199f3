"""Translation of expressions to programs, in statements as a person would write them; equal layers give equal text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.frontend import ProgramSource, spec
from dacergnn.frontends.symbolic.edges import SIDES
from dacergnn.frontends.symbolic.expr import Expr, reached
from dacergnn.library_nodes import form
from dacergnn.library_nodes.form import Const, Op, Ref, Shape, Statement, statement_text
from dacergnn.library_nodes.place import Place
from dacergnn.program.source import PlacedText

INPUTS = ("leaf", "degree", "pair_mean")
"""Operators that are inputs of a program: tensors, and data that follow from the graph."""
Step = tuple[str, tuple[int, ...], tuple[Any, ...], Shape]
"""An expression with positions in place of operands: operator, operands, data as in `Expr`, row shape."""


@dataclass(frozen=True)
class Region:
    """Holds the text of a program, the row spaces of its inputs, position and row space of the value of each output.

    ``lines`` are the steps that the lines of the text stand for; None for the first and the last line.
    """

    text: str
    lines: tuple[int | None, ...]
    inputs: tuple[str, ...]
    outputs: tuple[tuple[int, str], ...]


def region(
    exprs: Sequence[Expr], bipartite: bool
) -> tuple[ProgramSource, Sequence[tuple[int, str]], list[Expr], Sequence[str]]:
    """Returns the program for some expressions, its outputs as in `Region`, its inputs and their row spaces."""
    steps: dict[object, int] = {}
    order: list[Step] = []
    places: list[Place | None] = []
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
            places.append(None)
            if expr.op in INPUTS:
                leaves.append(expr)
        positions[expr.serial] = position
        places[position] = places[position] or expr.place
    for position in reversed(range(len(order))):  # parts of a step have its place
        for part in order[position][1]:
            places[part] = places[part] or places[position]
    wanted = tuple([positions[e.serial] for e in exprs])
    made = _emitted(tuple(order), wanted, bipartite)
    text = PlacedText(made.text, [None if step is None else places[step] for step in made.lines])
    return ProgramSource(text, ()), made.outputs, leaves, made.inputs


@lru_cache(maxsize=1024)
def _emitted(steps: tuple[Step, ...], wanted: tuple[int, ...], bipartite: bool) -> Region:
    return _Emitter(steps, wanted, bipartite).emit()


class _Emitter:
    def __init__(self, steps: tuple[Step, ...], wanted: tuple[int, ...], bipartite: bool) -> None:
        self.steps, self.wanted, self.bipartite = steps, wanted, bipartite
        self.spaces = _spaces(steps, bipartite)
        self.named = self._named()
        self.names: dict[int, str] = {}
        self.statements: list[tuple[str, Statement, int]] = []  # row space of the array that is assigned, and the step

    def emit(self) -> Region:
        inputs = [i for i, step in enumerate(self.steps) if step[0] in INPUTS]
        for i in range(len(self.steps)):
            if i in inputs or i in self.named:
                self.names[i] = f"v{len(self.names)}"
            if i in self.named:
                self._assign(i)
        spaces = [self.spaces[i] or "ONE" for i in inputs]
        declared = [f"{self.names[i]}: {spec(s, *self.steps[i][3])}" for i, s in zip(inputs, spaces, strict=True)]
        results = list(dict.fromkeys(self.wanted))
        lines = [(f"def layer({', '.join(['g', *declared])}):", None), *self._loops()]
        lines.append((f"    return {', '.join(self.names[i] for i in results)}", None))
        outputs = tuple((results.index(i), self.spaces[i] or "ONE") for i in self.wanted)
        texts, numbers = zip(*lines, strict=True)
        return Region("\n".join(texts) + "\n", numbers, tuple(spaces), outputs)

    def _named(self) -> set[int]:
        """Returns the values with arrays of their own: results, gathered or aggregated values, values used twice."""
        uses = [0] * len(self.steps)
        named = set(self.wanted)
        for op, args, _, _ in self.steps:
            for a in args:
                uses[a] += 1
                if op == "gather":
                    named.add(a)
        for i, (op, args, _, _) in enumerate(self.steps):
            plain = op in (*INPUTS, "const", "gather")
            if op == "aggregate" or (uses[i] > 1 and self.spaces[i] is not None and not plain):
                named.add(i)
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
            side, reduction = data
            value = self._expression(args[0])
            message = i if args[0] in self.names else args[0]  # the step that tells most about the statement
            self.statements.append((space, Statement("E", Ref(self.names[i], side), reduction, value), message))
        else:
            statement = Statement(space, Ref(self.names[i]), "=", self._expression(i, top=True))
            self.statements.append((space, statement, i))

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

    def _loops(self) -> list[tuple[str, int | None]]:
        """Returns the lines of the statements in loops, with their steps; neighbours with the same loop share it."""
        lines: list[tuple[str, int | None]] = []
        last: tuple[str, ...] = ()
        for space, statement, step in self.statements:
            if statement.target.path in SIDES:
                node = "dst" if statement.target.path == "dst" else "src"
                edges = "incoming_edges" if node == "dst" else "outgoing_edges"
                heads = (self._head(space), f"for e in n.{edges}():")
                text = statement_text(statement, "e", {node: "n"})
            else:
                heads = (self._head("E" if statement.target.path else space),)
                text = statement_text(statement, "e" if statement.target.path else None)
            shared = 0
            while shared < min(len(heads), len(last)) and heads[shared] == last[shared]:
                shared += 1
            lines += [("    " * (depth + 1) + head, step) for depth, head in enumerate(heads) if depth >= shared]
            lines.append(("    " * (len(heads) + 1) + text, step))
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
            if data[0] != "ntype":  # it has the row space of the values that it is used with
                mark(i, "E" if op == "gather" else ends[data[0]])
            mark(args[0], ends[data[0]] if op == "gather" else "E")
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
        if op == "gather" and data[0] == "ntype":  # rows of sources, unless other values decide
            known.setdefault(find(i), ends["src"])
    if bipartite:
        return [None if uniform[i] else known[find(i)] for i in range(len(steps))]
    return _sides(steps, [None if uniform[i] else known[find(i)] for i in range(len(steps))])


def _sides(steps: tuple[Step, ...], spaces: list[str | None]) -> list[str | None]:
    at_sources = [op == "leaf" or (op in ("aggregate", "degree") and data[0] == "src") for op, _, data, _ in steps]
    for i in reversed(range(len(steps))):
        op, args, data, _ = steps[i]
        for a in args:
            if (op == "gather" and data[0] == "src") or (op != "gather" and spaces[i] == "N" and at_sources[i]):
                at_sources[a] = True
    return [("NS" if at_sources[i] else "ND") if space == "N" else space for i, space in enumerate(spaces)]

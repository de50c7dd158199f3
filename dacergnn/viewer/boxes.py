"""Describes the operators of a program as boxes: formulas, the rows of each result, and what else is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from dacergnn.library_nodes import GraphOperator, SegmentGemm
from dacergnn.library_nodes.form import GRADIENT, TYPE_SPACES, statement_text
from dacergnn.library_nodes.formula import formula, reduced_over
from dacergnn.library_nodes.label import operators
from dacergnn.program import Program

_UNITS = ("B", "kB", "MB", "GB")


@dataclass(frozen=True)
class Array:
    """Describes an array: its size in symbols, in numbers and in bytes where the graph is known, and its role."""

    symbols: str
    numbers: str
    memory: str
    role: str


@dataclass(frozen=True)
class Line:
    """Holds a formula of a box, and the rows of its result."""

    formula: str
    rows: str
    local: bool = False


@dataclass(frozen=True)
class Box:
    """Represents an operator, or a phase of several.

    Args:
        name: The name of the operator, which is that of its last result.
        title: What a phase computes; "" for an operator.
        summary: What an operator computes, on one line; of a phase, what the operator computes of which it is the
            gradient, "" for an input.
        icon: The kind of the operator (`drawing.ICONS`).
        lines: The formulas of its statements.
        note: The loop that runs several statements, or the rows that a reduction is over.
        reads: Arrays that it reads.
        writes: Arrays that it writes, without those that nobody else reads.
        statements: Its statements in program form, each with its row space.
        choices: Its schedule and the format of its edges, where they are not the defaults.
        encodings: The graph encodings that it reads.
        parts: The operators of a phase.
        peer: The name of the operator in the forward; of a phase, of the one of which it is the gradient.
    """

    name: str
    title: str
    summary: str
    icon: str
    lines: tuple[Line, ...]
    note: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    statements: tuple[str, ...]
    choices: tuple[str, ...]
    encodings: tuple[str, ...]
    peer: str
    parts: tuple[Box, ...] = ()


def boxes_of(program: Program) -> list[Box]:
    """Returns the operators of a program as boxes, in an order in which they can run."""
    return [_box(program, operator) for operator in program.operators]


def results_of(box: Box) -> list[str]:
    """Returns the names of all arrays that a box computes, in order, those included that nobody else reads."""
    return [line.formula.partition(" ")[0] for line in box.lines]


def arrays_of(program: Program, sizes: Mapping[str, int], saved: frozenset[str]) -> dict[str, Array]:
    """Returns the arrays of a program by name, for a graph with ``sizes``; without sizes, numbers are symbols.

    Roles are "input", "gradient", "result", "saved" (from the forward for the backward), or "" between operators.
    """
    inputs, outputs = frozenset(program.inputs), frozenset(program.outputs)

    def role(name: str) -> str:
        if name in saved:
            return "saved"
        if name in inputs:
            return "gradient" if name.startswith(GRADIENT) else "input"
        return "result" if name in outputs else ""

    names = [n for operator in program.operators for n in (*operator.read_arrays, *operator.written_arrays)]
    return {name: Array(_size(program, name), *_numbers(program, name, sizes), role(name)) for name in names}


def _box(program: Program, operator: GraphOperator) -> Box:
    statements = operator.statements
    fused, over = len(statements) > 1, reduced_over(statements[0])
    choices = [f"{name} = {value}" for name, value in operator.chosen.items()]
    adjacency: str = getattr(operator, "adjacency", "csr")
    choices += [f"edges as {adjacency}"] if adjacency != "csr" else []
    return Box(
        name=operator.name,
        title="",
        summary=operators(statements) if fused else formula(statements[0]),
        icon=_icon(operator),
        lines=tuple(
            Line(formula(s), _size(program, s.target.name), s.target.name in operator.locals) for s in statements
        ),
        note=f"one loop over {operator.space}" if fused else f"over {over}" if over else "",
        reads=tuple(operator.read_arrays),
        writes=tuple(operator.written_arrays),
        statements=tuple(f"{s.space}: {statement_text(s)}" for s in statements),
        choices=tuple(choices),
        encodings=tuple(operator.encodings),
        peer=operator.name,
    )


def _icon(operator: GraphOperator) -> str:
    first, *others = operator.statements
    if isinstance(operator, SegmentGemm):
        return "weights" if operator.space in TYPE_SPACES else "product"
    return "loop" if others else "sum" if reduced_over(first) else "rows"


def _size(program: Program, name: str) -> str:
    return " x ".join(map(str, (program.space(name).replace("ONE", "1"), *program.shape(name))))


def _numbers(program: Program, name: str, sizes: Mapping[str, int]) -> tuple[str, str]:
    """Returns the size of an array in numbers and in bytes; symbols and "" where the rows are not known."""
    rows, shape = sizes.get(program.space(name)), program.shape(name)
    if rows is None:
        return _size(program, name), ""
    stored = float(rows * prod(shape) * program.sdfg.arrays[name].dtype.bytes)
    unit = 0
    while stored >= 1000 and unit < len(_UNITS) - 1:
        stored, unit = stored / 1000, unit + 1
    return " x ".join([f"{rows:,}", *map(str, shape)]), f"{stored:.3g} {_UNITS[unit]}"

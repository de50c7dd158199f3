"""Rebuilds a program from the bodies of its operators, whatever edges and encodings it has."""

from __future__ import annotations

import dace

from dacergnn.errors import ProgramError
from dacergnn.library_nodes import GraphOperator
from dacergnn.library_nodes.node import Typeclass
from dacergnn.library_nodes.parse import parse_statement
from dacergnn.program.view import Program


def check_bodies(sdfg: dace.SDFG) -> None:
    """Raises ProgramError, naming the operator, for a body that is no list of statements, each over a row space."""
    nodes = [node for state in sdfg.states() for node in state.nodes() if isinstance(node, GraphOperator)]
    for node in nodes:
        if not node.body:
            raise ProgramError(f"{node.name} has no statement; delete the node.")
        if len(node.spaces or node.body) != len(node.body):
            raise ProgramError(
                f"{node.name} has {len(node.body)} statements over {len(node.spaces)} row spaces; give one for each."
            )
        spaces = node.spaces or [node.space] * len(node.body)
        if spaces == [spaces[0]] and node.space != spaces[0]:
            both = f"under {node.space}, and its one statement over {spaces[0]}"
            raise ProgramError(f"{node.name} runs {both}; give space and spaces the same row space.")
        for text, space in zip(node.body, spaces, strict=True):
            try:
                parse_statement(text, space)
            except (ProgramError, SyntaxError, LookupError) as error:
                raise ProgramError(f'the body of {node.name}: "{text}" over {space} is no statement: {error}') from None


def rebuild(sdfg: dace.SDFG, dtype: Typeclass) -> dace.SDFG:
    """Moves the operators of ``sdfg`` into a new program, whose edges follow from their bodies.

    Operators keep their properties, and their order as far as data allow. Encodings are left out, and so are arrays
    that no body names.

    Args:
        sdfg: An inter-operator SDFG that `verify` accepts, apart from its edges.
        dtype: Element type of the arrays.

    Raises:
        ProgramError: An array has another element type.
    """
    original, program = Program(sdfg), Program.empty(sdfg.name)
    operators = original.operators
    inputs, outputs = original.inputs, original.outputs
    for name in inputs:
        program.add_input(name, original.space(name), original.shape(name), dtype)
    named = {n for o in operators for n in (*o.read_arrays, *o.written_arrays, *o.locals)}
    for name in (*inputs, *[n for n in sdfg.arrays if n in named and n not in inputs]):
        if sdfg.arrays[name].dtype != dtype:
            kind = sdfg.arrays[name].dtype.to_string()
            raise ProgramError(f'"{name}" has elements of {kind}; all arrays of this program have {dtype.to_string()}.')
        if name not in program.sdfg.arrays:
            program.add_array(name, original.space(name), original.shape(name), dtype)
    for operator in operators:
        original.state.remove_node(operator)
        program.place(operator)
    for name in outputs:
        program.mark_output(name)
    return program.sdfg

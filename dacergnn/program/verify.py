"""The invariants of an inter-operator SDFG (listed in docs/architecture.md), checked between passes."""

from __future__ import annotations

from collections.abc import Sequence

import dace

from dacergnn.errors import ProgramError, VerificationError
from dacergnn.graph.spaces import MAPS, ROW_SPACES, is_encoding
from dacergnn.library_nodes import GraphOperator, Statement, row_space
from dacergnn.library_nodes.form import REDUCTIONS, Ref
from dacergnn.library_nodes.place import at
from dacergnn.library_nodes.shapes import check_shapes
from dacergnn.library_nodes.traversal.nest import problem
from dacergnn.program.view import Program


def verify(sdfg: dace.SDFG) -> None:
    """Raises VerificationError, naming the invariant, unless ``sdfg`` is a program in the form.

    I1 one state; I2 only library nodes of dacergnn and access nodes; I3 leading dimensions are row spaces;
    I4 single assignment, inputs are not written; I5 no cycle; I6 maps lead where the arrays are;
    I7 row shapes agree; I8 the target of a map that several rows share is written by a reduction; I9 the statements
    of one operator nest under its mapping, and reach the arrays that it writes only in their own row or group; I10
    local arrays are intermediate, written by their operator, and nobody else touches them.
    """
    if len(list(sdfg.states())) != 1:
        raise VerificationError(
            f"I1: an inter-operator SDFG has one state, {sdfg.name} has {len(list(sdfg.states()))}."
        )
    program = Program(sdfg)
    for node in program.state.nodes():
        if not isinstance(node, GraphOperator | dace.nodes.AccessNode):
            raise VerificationError(f"I2: {node} is neither a library node of dacergnn nor an access node.")
        if isinstance(node, GraphOperator):
            _verify_body(node)
    for name, desc in sdfg.arrays.items():
        if not is_encoding(name) and row_space(desc) not in ROW_SPACES:
            raise VerificationError(f'I3: "{name}" has {desc.shape[0]} rows, which is not a row space.')
    operators = program.operators
    written: set[str] = set()
    for operator in operators:
        for name in operator.written_arrays:
            if name in written:
                with at(operator.place):
                    raise VerificationError(f'I4: "{name}" is written by two operators.')
            written.add(name)
    ready = set(program.inputs)
    for operator in operators:
        missing = [n for n in operator.read_arrays if n not in ready]
        if missing:
            with at(operator.place):
                raise VerificationError(f'I5: "{missing[0]}" is read by {operator.name} before anything writes it.')
        ready.update(operator.written_arrays)
        for statement in operator.statements:
            with at(statement.place):
                _verify_statement(program, statement)
        with at(operator.place):
            _verify_nest(operator)
    _verify_locals(program, operators)


def _verify_body(operator: GraphOperator) -> None:
    """Raises VerificationError if a body does not parse, as with maps that do not exist."""
    try:
        _ = operator.statements
    except ProgramError as error:
        raise VerificationError(f"I6: the body of {operator.name}: {error}") from error


def _verify_nest(operator: GraphOperator) -> None:
    statements = operator.statements
    reason = problem(operator.space, statements) if len(statements) > 1 else None
    if reason is not None:
        raise VerificationError(f"I9: {operator.name}: {reason}.")


def _verify_locals(program: Program, operators: Sequence[GraphOperator]) -> None:
    owners: dict[str, GraphOperator] = {}
    for operator in operators:
        targets = {s.target.name for s in operator.statements}
        for name in operator.locals:
            if name in owners or name not in targets or not program.sdfg.arrays[name].transient:
                raise VerificationError(f'I10: "{name}" is no intermediate array that {operator.name} alone writes.')
            owners[name] = operator
    for operator in operators:
        for name in {*operator.read_arrays, *operator.written_arrays} & owners.keys():
            raise VerificationError(f'I10: "{name}" is local to {owners[name].name}, but {operator.name} uses it.')


def _verify_statement(program: Program, statement: Statement) -> None:
    for ref in (*statement.reads, statement.target):
        _verify_map(program, statement, ref)
    if statement.op not in REDUCTIONS or (statement.target.path != "") != (statement.op != "="):
        raise VerificationError(
            f'I8: "{statement.target.name}" is reached by "{statement.target.path}" and assigned with {statement.op}; '
            "own rows are assigned, shared rows reduced."
        )
    try:
        check_shapes(statement, program.shape)
    except ProgramError as error:
        raise VerificationError(f"I7: {error}") from error


def _verify_map(program: Program, statement: Statement, ref: Ref) -> None:
    if ref.name not in program.sdfg.arrays:
        raise VerificationError(f'I6: there is no array "{ref.name}".')
    reached = MAPS[statement.space, ref.path] if ref.path else statement.space
    space = program.space(ref.name)
    if space != reached and (reached, space) != ("ND", "NS"):
        raise VerificationError(
            f'I6: "{ref.name}" has rows {space}, but {statement.space}.{ref.path or "own"} leads to {reached}.'
        )

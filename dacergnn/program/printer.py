"""Prints programs in a stable form that the parser reads back, one loop nest for every operator; prints plans."""

from __future__ import annotations

from dataclasses import replace

import dace

from dacergnn.graph.spaces import MAPS, kind, part
from dacergnn.library_nodes import GraphOperator, Op, Statement
from dacergnn.library_nodes.form import ENTITY, ref_text, statement_text
from dacergnn.library_nodes.place import Place
from dacergnn.library_nodes.plan_text import plan_text
from dacergnn.library_nodes.shapes import shape_of
from dacergnn.library_nodes.traversal.nest import Levels, Loop, loops
from dacergnn.program.loops import ITERATORS
from dacergnn.program.source import PlacedText
from dacergnn.program.view import Program

_ITERATOR = {space: name for name, space in ITERATORS.items() if name != "nodes"}
# A reduction along these paths reads best as a loop over the owner with its edges inside.
_NESTED = {
    ("ND", "dst"): "incoming_edges",
    ("NS", "dst"): "incoming_edges",
    ("NS", "src"): "outgoing_edges",
    ("V", "dstpair"): "incoming_edges",
    ("U", "srcpair"): "outgoing_edges",
}
_PATHS = {"ND": "dst", "NS": "src", "V": "dstpair", "U": "srcpair"}


def print_program(sdfg: dace.SDFG) -> PlacedText:
    """Returns the program of an inter-operator SDFG as text that `parse` reads back.

    Comments name the operators, schedule properties that differ from their defaults, and encodings. Lines have the
    places of their operators.
    """
    program = Program(sdfg)
    parameters = [f"{name}: {_declaration(program, name)}" for name in program.inputs]
    lines = [f"def {sdfg.name}({', '.join(['g', *parameters])}):"]
    places: list[Place | None] = [None]
    for operator in program.operators:
        loop = _loop(program, operator)
        lines += loop
        places += [operator.place] * len(loop)
    lines.append(f"    return {', '.join(program.outputs)}")
    return PlacedText("\n".join(lines) + "\n", places)


def _declaration(program: Program, name: str) -> str:
    shape = program.shape(name)
    return program.space(name) + (f"[{', '.join(map(str, shape))}]" if shape else "")


def _loop(program: Program, operator: GraphOperator) -> list[str]:
    encodings = f"; {', '.join(operator.encodings)}" if operator.encodings else ""
    adjacency: str = getattr(operator, "adjacency", "csr")
    if adjacency != "csr":
        encodings = f"; {adjacency}{encodings}"
    chosen = ", ".join(f"{name}={value}" for name, value in operator.chosen.items())
    encodings = f"; {chosen}{encodings}" if chosen else encodings
    statements = [_with_shape(program, statement) for statement in operator.statements]
    if len(statements) == 1:
        return [f"    # {type(operator).__name__}{encodings}", *_nest(program, statements[0])]
    kept = f"; local: {', '.join(operator.locals)}" if operator.locals else ""
    levels = Levels.of(operator.space, statements)
    lines = [f"    # {type(operator).__name__} over {operator.space}{kept}{encodings}"]
    if len(levels.spaces) > 2 or any(kind(space) in ("U", "V") for space in levels.spaces[1:]):
        # Pairs of a node have no iterator of their own; loops one after the other mean the same.
        for statement in statements:
            lines += _nest(program, statement)
        return lines
    for loop in loops(levels, statements):
        lines += _fused(program, loop)
    return lines


def _fused(program: Program, loop: Loop) -> list[str]:
    """Returns the lines of a nest of two levels, or of one."""
    outer = ENTITY[loop.space]
    lines = [f"    for {outer} in g.{_ITERATOR[loop.space]}():"]
    for item in loop.items:
        if isinstance(item, Statement):
            lines.append(f"        {_text(program, item, outer, {})}")
            continue
        entity, path = ENTITY[item.space], _PATHS[kind(loop.space)]
        lines.append(f"        for {entity} in {outer}.{_neighbours(loop.space, path, item.space)}():")
        lines += [f"            {_text(program, s, entity, {path: outer})}" for s in item.statements()]
    return lines


def _neighbours(owner: str, path: str, edges: str) -> str | None:
    """Returns the iterator over the edges that lead to a row of ``owner`` along a path; None if there is none."""
    name = _NESTED.get((kind(owner), path))
    return f"{name}_{part(edges)}" if name and part(edges) else name


def _text(program: Program, statement: Statement, entity: str, aliases: dict[str, str]) -> str:
    """Returns the text of a statement; a destination's row of an array over sources is written ``n.src["x"]``."""
    text, path = statement_text(statement, entity, aliases), statement.target.path
    if (MAPS[statement.space, path] if path else statement.space) == program.space(statement.target.name):
        return text
    target = ref_text(statement.target, entity, aliases)
    return text.replace(target, target.replace("[", ".src[", 1), 1 if statement.op in ("=", "+=") else 2)


def _with_shape(program: Program, statement: Statement) -> Statement:
    """Returns the statement; a product of another shape than its target is reshaped to that shape."""
    shape = program.shape(statement.target)
    if statement.is_gemm and shape_of(statement.expr, program.shape) != shape:
        return replace(statement, expr=Op("reshape", (statement.expr,), shape))
    return statement


def _nest(program: Program, statement: Statement) -> list[str]:
    entity, path = ENTITY[statement.space], statement.target.path
    owner = program.space(statement.target.name)
    neighbours = _neighbours(owner, path, statement.space) if kind(statement.space) == "E" else None
    if neighbours is not None:
        outer = ENTITY[owner]
        return [
            f"    for {outer} in g.{_ITERATOR[owner]}():",
            f"        for {entity} in {outer}.{neighbours}():",
            f"            {statement_text(statement, entity, {path: outer})}",
        ]
    text = _text(program, statement, entity, {})
    return [f"    for {entity} in g.{_ITERATOR[statement.space]}():", f"        {text}"]


def print_plans(sdfg: dace.SDFG) -> str:
    """Returns the plans of the kernels of an inter-operator SDFG as text, one after the other."""
    program = Program(sdfg)
    plans = [o.plan(o.implementation, o.arrays(sdfg, program.state)) for o in program.operators]
    return "\n".join(f"{o.name}:\n{plan_text(plan)}" for o, plan in zip(program.operators, plans, strict=True))

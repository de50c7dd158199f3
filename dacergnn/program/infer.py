"""Infers the row spaces of arrays that are not declared, from where a program reads them."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from dacergnn.graph.spaces import FEATURE_SPACES, NONZEROS
from dacergnn.library_nodes.diagnostics import fail, place
from dacergnn.library_nodes.form import Expr, Ref, Shape
from dacergnn.library_nodes.parse import ExpressionParser
from dacergnn.program.declarations import declaration
from dacergnn.program.flatten import FlatProgram
from dacergnn.program.loops import LoopScope, assigned, destination_among_sources, enter, walk

MEANING = {
    "NS": "source nodes",
    "ND": "destination nodes",
    "E": "edges",
    "U": "pairs of source and edge type",
    "V": "pairs of destination and edge type",
    "R": "edge types",
    "T": "node types",
    "ONE": "one row",
    "RNS": "pairs of edge type and any source",
    **dict.fromkeys(FEATURE_SPACES, "columns of sparse features"),
    **dict.fromkeys(NONZEROS, "nonzeros of sparse features"),
}
"""Names of the rows of an array in messages."""


@dataclass
class Spaces:
    """Holds the row spaces and row shapes of a program's arrays.

    Args:
        spaces: Row space of every array, in the order of the signature.
        shapes: Row shapes of the declared arrays.
        prefixed: Arrays over sources that are read at destinations, too, which are then the first of the sources.
    """

    spaces: dict[str, str] = field(default_factory=dict[str, str])
    shapes: dict[str, Shape] = field(default_factory=dict[str, Shape])
    prefixed: list[str] = field(default_factory=list[str])


def infer(flat: FlatProgram) -> Spaces:
    """Infers the row spaces of all arrays of a program.

    Raises:
        ProgramError: With the place, if two uses contradict each other or an array is never read.
    """
    return _Inference(flat).run()


class _Inference:
    def __init__(self, flat: FlatProgram) -> None:
        self.flat = flat
        self.assigned: set[tuple[str, str]] = set()
        self.uses: dict[str, dict[str, ast.AST]] = {name: {} for name in (*flat.arrays, *flat.undeclared)}

    def run(self) -> Spaces:
        result = Spaces()
        for node in self.flat.body:
            if isinstance(node, ast.For):
                walk(node.body, self._statement, enter(node, None))
        for name, uses in self.uses.items():
            if name in self.flat.arrays:
                result.spaces[name], result.shapes[name] = declaration(name, self.flat.arrays[name])
            else:
                result.spaces[name] = self._space(name, uses)
            if result.spaces[name] == "NS" and "ND" in uses:
                result.prefixed.append(name)
        return result

    def _space(self, name: str, uses: dict[str, ast.AST]) -> str:
        spaces = [s for s in uses if not (s == "ND" and "NS" in uses)]
        if not spaces:
            fail(
                self.flat.undeclared[name],
                f'array "{name}" is never read, so nothing tells its rows; read it, take it out, or declare it as '
                f"{name}: NS[64]",
            )
        if len(spaces) > 1:
            first, second = spaces[:2]
            fail(
                uses[second],
                f'"{name}" is read over {second} ({MEANING[second]}) here, but over {first} ({MEANING[first]}) at '
                f"{place(uses[first])}; an array has rows of one kind",
            )
        return spaces[0]

    def _statement(self, node: ast.Assign | ast.AugAssign, loop: LoopScope) -> None:
        target = assigned(node)
        parser = ExpressionParser(loop.space, loop.entities, lambda text, _: self._bare(text, loop))
        parser.parse(node.value)
        local = isinstance(target, ast.Name) and isinstance(node, ast.Assign)
        if isinstance(node, ast.AugAssign) and not (isinstance(target, ast.Name) and target.id not in loop.locals):
            parser.parse(target)
        for ref, at in parser.seen:
            self._read(ref.name, loop.reached(ref.path), at)
        if local:
            assert isinstance(target, ast.Name)
            loop.locals[target.id] = loop.variable
            self.assigned.add((loop.space, target.id))
        elif isinstance(target, ast.Name):
            owner = loop.locals.get(target.id)
            self.assigned.add(("ONE" if owner is None else loop.spaces[owner], target.id))
        else:
            ref = parser.ref(destination_among_sources(target, parser) or target)
            if ref is not None:
                self.assigned.add((loop.owner_space(ref.path), ref.name))

    def _bare(self, name: str, loop: LoopScope) -> Expr:
        owner = loop.locals.get(name)
        return Ref(name, "one" if owner is None else loop.entities[owner])

    def _read(self, name: str, space: str, at: ast.AST) -> None:
        known = (space, name) in self.assigned or (space == "ND" and ("NS", name) in self.assigned)
        if not known and name in self.uses:
            self.uses[name].setdefault(space, at)

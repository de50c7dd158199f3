"""Declarations of arrays: ``NS[64]``, rows of a row space and the shape of one row."""

from __future__ import annotations

import ast

from dacergnn.graph.spaces import ROW_SPACES, SPACES
from dacergnn.library_nodes.diagnostics import fail, nearest
from dacergnn.library_nodes.form import Shape


def declaration(name: str, node: ast.expr) -> tuple[str, Shape]:
    """Returns the row space and row shape in the declaration of array ``name``; raises ProgramError if it is none."""
    space, dims = (node.value, node.slice) if isinstance(node, ast.Subscript) else (node, ast.Tuple([], ast.Load()))
    if not isinstance(space, ast.Name) or space.id not in ROW_SPACES:
        guess = nearest(space.id.upper(), SPACES) if isinstance(space, ast.Name) else ""
        fail(
            node,
            f'"{name}" is declared as a row space with a row shape, as in NS[64]; '
            f"row spaces: {', '.join(SPACES)}{guess}",
        )
    items = dims.elts if isinstance(dims, ast.Tuple) else [dims]
    shape: list[int] = []
    for item in items:
        if not isinstance(item, ast.Constant) or not isinstance(item.value, int) or item.value < 1:
            unknown = f"; {item.id} is not a constant" if isinstance(item, ast.Name) else ""
            fail(node, f'the row shape of "{name}" consists of positive integers{unknown}')
        shape.append(item.value)
    return space.id, tuple(shape)

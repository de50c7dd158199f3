"""How deep expressions may be: passes go through them by recursion, of which Python has little."""

from __future__ import annotations

import ast

from dacergnn.errors import ProgramError
from dacergnn.library_nodes.diagnostics import place

DEEPEST = 100
"""Levels of an expression, so that no pass comes near the recursion limit."""


def check_depth(tree: ast.AST) -> None:
    """ProgramError with the place if an expression in the tree is deeper than `DEEPEST`; goes through it in a loop."""
    heights: dict[int, int] = {}
    for node in reversed(list(ast.walk(tree))):  # each behind those below it
        below = max((heights[id(child)] for child in ast.iter_child_nodes(node)), default=0)
        heights[id(node)] = 0 if isinstance(node, ast.stmt) else below + isinstance(node, ast.expr)
        if heights[id(node)] > DEEPEST:
            message = f"this expression is more than {DEEPEST} operators deep; assign a part of it to a local before"
            raise ProgramError(message, place(node))

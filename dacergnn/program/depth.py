"""The limit on the depth of expressions: passes visit them by recursion, which Python limits."""

from __future__ import annotations

import ast

from dacergnn.errors import ProgramError
from dacergnn.library_nodes.diagnostics import place

DEEPEST = 100
"""Most levels that an expression may have, so that no pass comes near the recursion limit."""


def check_depth(tree: ast.AST) -> None:
    """Raises ProgramError with the place if an expression in the tree is deeper than `DEEPEST`; does not recurse."""
    heights: dict[int, int] = {}
    for node in reversed(list(ast.walk(tree))):  # children before their parents
        below = max((heights[id(child)] for child in ast.iter_child_nodes(node)), default=0)
        heights[id(node)] = 0 if isinstance(node, ast.stmt) else below + isinstance(node, ast.expr)
        if heights[id(node)] > DEEPEST:
            message = f"this expression is more than {DEEPEST} operators deep; assign a part of it to a local before"
            raise ProgramError(message, place(node))

"""Reports errors in program source with their place, and with the known name that is most like a wrong one."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from difflib import get_close_matches
from typing import NoReturn, TypeVar

from dacergnn.errors import ProgramError
from dacergnn.library_nodes.place import Place

# Names of other libraries for operators and attributes of the program form.
_ELSEWHERE = {
    "in_edges": "incoming_edges",
    "out_edges": "outgoing_edges",
    "cat": "concat",
    "stack": "concat",
    "matmul": "linear",
    "dot": "dot_prd",
    "view": "reshape",
}
Node = TypeVar("Node", bound=ast.AST)


def place(node: ast.AST) -> str:
    """Returns ``layer.py:12:9`` for a node that was read from a file, else ``line 2, column 9``."""
    known = Place.of(node)
    line, column = getattr(node, "lineno", 0), getattr(node, "col_offset", 0) + 1
    return f"line {line}, column {column}" if known is None else str(known)


def fail(node: ast.AST, message: str) -> NoReturn:
    """Raises ProgramError with the place of ``node`` in the source."""
    text = ast.unparse(node) if isinstance(node, ast.expr | ast.stmt) else ""
    raise ProgramError(message, place(node), text.partition("\n")[0])


def nearest(name: str, known: Iterable[str], form: str = "{}") -> str:
    """Returns ``; did you mean dst_nodes?`` with the known name most like ``name``, "" if none is like it."""
    guess = closest(name, known)
    return f"; did you mean {form.format(guess)}?" if guess else ""


def closest(name: str, known: Iterable[str]) -> str:
    """Returns the known name most like ``name``, "" if none is like it."""
    names = {n.casefold(): n for n in known}
    meant = _ELSEWHERE.get(name, "")
    matches = [meant] if meant in names else get_close_matches(name.casefold(), names, n=1)
    return names[matches[0]] if matches else ""


def located(node: Node, origin: ast.AST, everywhere: bool = False) -> Node:
    """Gives the place of ``origin`` to all parts of a node that have none, or to all parts, and returns the node."""
    for item in ast.walk(node):
        if isinstance(item, ast.expr | ast.stmt) and (everywhere or not hasattr(item, "lineno")):
            ast.copy_location(item, origin)
            item.file = getattr(origin, "file", "")  # type: ignore[attr-defined]
    return node

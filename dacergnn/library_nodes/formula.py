"""Prints statements as formulas, shorter than program form: ``hs = x W[etype]``, ``out = Σ att * hs``."""

from __future__ import annotations

from dacergnn.graph.spaces import kind
from dacergnn.library_nodes.form import Const, Expr, Ref, Statement

_INFIX = {
    "add": (" + ", 1), "sub": (" - ", 1), "mul": (" * ", 2), "div": (" / ", 2),
    "linear": (" ", 3), "compose": (" ", 3), "dot_prd": (" · ", 3), "outer_prod": (" ⊗ ", 3),
}  # fmt: skip
_COMPARE = {"gt": ">", "ge": ">=", "eq": "=="}
_SHAPES = frozenset(("reshape", "expand", "detach"))
"""Operators that leave the values as they are."""
_REDUCTIONS = {"=": "", "+=": "Σ ", "max=": "max ", "min=": "min "}
_IMPLIED = frozenset((("U", "src"), ("V", "dst"), ("E", "edge")))
"""Paths to the only node of a pair, and to the edge itself."""
_GROUPS = {
    "dst": "incoming edges",
    "src": "outgoing edges",
    "dstpair": "incoming edges of a type",
    "srcpair": "outgoing edges of a type",
}
_OWNERS = {
    "src": "a node",
    "dst": "a node",
    "edge": "an edge",
    "etype": "an edge type",
    "ntype": "a node type",
    "srctype": "a node type",
    "dsttype": "a node type",
}


def formula(statement: Statement) -> str:
    """Returns a statement as a formula, without the rows that a reduction is over."""
    entity = kind(statement.space)
    level = 0 if statement.op == "=" else 2
    return f"{statement.target.name} = {_REDUCTIONS[statement.op]}{_text(statement.expr, entity, level)}"


def reduced_over(statement: Statement) -> str:
    """Returns the rows that are reduced to one: ``incoming edges``, ``rows of an edge type``; "" if none are."""
    path = statement.target.path
    if statement.op == "=" or not path:
        return ""
    if kind(statement.space) == "E" and path in _GROUPS:
        return _GROUPS[path]
    return "all rows" if path == "one" else f"rows of {_OWNERS.get(path, f'a {path}')}"


def _text(expr: Expr, space: str, level: int = 0) -> str:
    """Returns an expression; ``level`` is the precedence of the operator around it."""
    if isinstance(expr, Ref):
        return _ref(expr, space)
    if isinstance(expr, Const):
        return f"{expr.value:.6g}"
    if expr.name in _SHAPES:
        return _text(expr.args[0], space, level)
    if expr.name in _INFIX:
        sign, rank = _INFIX[expr.name]
        return _inside(sign.join((_text(expr.args[0], space, rank), _text(expr.args[1], space, rank + 1))), rank, level)
    if expr.name in _COMPARE:
        return f"({f' {_COMPARE[expr.name]} '.join(_text(a, space) for a in expr.args)})"
    if expr.name == "neg":
        return _inside(f"-{_text(expr.args[0], space, 3)}", 1, level)
    return f"{expr.name}({', '.join(_text(a, space) for a in expr.args)})"


def _inside(text: str, rank: int, level: int) -> str:
    return f"({text})" if rank < level else text


def _ref(ref: Ref, space: str) -> str:
    implied = ref.path in ("", "one") or (space, ref.path) in _IMPLIED
    return f"{ref.name}{'' if implied else f'[{ref.path}]'}{'ᵀ' if ref.transposed else ''}"

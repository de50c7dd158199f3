"""Labels of operators, by which people find what an operator does in a picture of a program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from dacergnn.graph.spaces import kind
from dacergnn.library_nodes.form import Expr, Op, Ref, Statement

_ARITHMETIC = frozenset(("add", "sub", "mul", "div", "neg", "gt", "ge", "eq", "detach", "reshape", "expand"))
"""Operators that say little about a statement in which there is another one."""
_REDUCTIONS = {"+=": "sum", "max=": "max", "min=": "min"}
_SOFTMAX = "max, exp, sum, div"
_OVER_EDGES = {
    "dst": " over incoming edges",
    "src": " over outgoing edges",
    "dstpair": " over incoming edges of a type",
    "srcpair": " over outgoing edges of a type",
}
_OVER = {
    "etype": " by edge type",
    "ntype": " by node type",
    "srctype": " by node type",
    "dsttype": " by node type",
    "one": " over all rows",
}


def label(statements: Sequence[Statement]) -> str:
    """Returns what a body does: ``"sum out over incoming edges"``, or ``"out: leakyrelu, softmax, sum"`` of several."""
    words = [word for word, _ in groupby(word for s in statements for word in _words(s))]
    last = statements[-1].target
    if len(statements) > 1:
        return f"{last.name}: {', '.join(words).replace(_SOFTMAX, 'softmax')}"
    over = _OVER_EDGES.get(last.path, "") if kind(statements[0].space) == "E" else ""
    return f"{', '.join(words)} {last.name}{over or _OVER.get(last.path, '')}"


def _words(statement: Statement) -> list[str]:
    """Returns the names of the most telling operator of a statement, and of its reduction."""
    expr, reduction = statement.expr, _REDUCTIONS.get(statement.op)
    telling = next((name for name in _operators(expr) if name not in _ARITHMETIC), None)
    if reduction is not None:
        return [reduction] if telling is None else [telling, reduction]
    if isinstance(expr, Op):
        return [telling or expr.name]
    return ["copy" if isinstance(expr, Ref) else "fill"]


def _operators(expr: Expr) -> Iterator[str]:
    """Yields the operators of an expression, outer ones before their operands."""
    if isinstance(expr, Op):
        yield expr.name
        for arg in expr.args:
            yield from _operators(arg)

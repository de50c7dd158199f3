"""Labels of operators, by which people find what an operator does in a picture of a program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from dacergnn.graph.spaces import target_space
from dacergnn.library_nodes.form import Expr, Op, Ref, Statement
from dacergnn.library_nodes.formula import formula, reduced_over

_ARITHMETIC = frozenset(("add", "sub", "mul", "div", "neg", "gt", "ge", "eq", "detach", "reshape", "expand"))
"""Operators that say little about a statement in which there is another one."""
_REDUCTIONS = {"+=": "sum", "max=": "max", "min=": "min"}
_SOFTMAX = "max, exp, sum, div"


def label(statements: Sequence[Statement]) -> str:
    """Returns what a body does, and over which rows.

    A single statement is a formula: ``"hs = x W[etype]  [U]"``. Of several, only the operators are named:
    ``"out: leakyrelu, softmax, sum  [ND]"``.
    """
    last = statements[-1]
    rows = f"[{target_space(last.space, last.target.path) if last.target.path else last.space}]"
    if len(statements) > 1:
        return f"{last.target.name}: {operators(statements)}  {rows}"
    over = reduced_over(last)
    return f"{formula(last)}{f' over {over}' if over else ''}  {rows}"


def operators(statements: Sequence[Statement]) -> str:
    """Returns the names of the most telling operators of a body: ``"leakyrelu, softmax, sum"``."""
    words = [word for word, _ in groupby(word for s in statements for word in _words(s))]
    return ", ".join(words).replace(_SOFTMAX, "softmax")


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

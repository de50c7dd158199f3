"""Tells which expressions have a value and a derivative on all nodes.

A node without edges may have degree 0. Nobody reads a quotient by it, but the derivative of the quotient times a
gradient of 0 is NaN, and gradients of weights sum over all nodes. So such quotients must stay at edges.
"""

from __future__ import annotations

from collections.abc import Set

from dacergnn.graph.spaces import PARTED, kind
from dacergnn.library_nodes.form import Const, Expr, Op, Ref
from dacergnn.program.listing import Listing


def is_regular(expr: Expr, singular: Set[str]) -> bool:
    """Returns whether an expression can be computed for all nodes and types; arrays in ``singular`` cannot."""
    if isinstance(expr, Ref):
        return expr.name not in singular
    if not isinstance(expr, Op):
        return True
    divides = expr.name == "div" and not (isinstance(expr.args[1], Const) and expr.args[1].value != 0)
    return not divides and expr.name not in ("log", "sqrt") and all(is_regular(a, singular) for a in expr.args)


def singular_arrays(listing: Listing) -> set[str]:
    """Returns the arrays of nodes and types that may hold no number in rows that no edge has."""
    singular: set[str] = set()
    for statement in listing.statements:
        if kind(statement.space) not in PARTED and not is_regular(statement.expr, singular):
            singular.add(statement.target.name)
    return singular

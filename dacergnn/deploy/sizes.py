"""Sizes that are known when a call begins, as expressions of C++."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
from torch.utils._sympy.functions import FloorDiv, Max, Min, Mod

Size = sympy.Expr
"""An expression of symbols, each of which stands for a size of an input, or for a number that a step finds."""
ZERO, ONE = sympy.Integer(0), sympy.Integer(1)


def size_of(value: Any) -> Size:
    """Returns a number or a symbolic number of torch as an expression."""
    return sympy.Integer(value) if isinstance(value, int) else value.node.expr


def product(sizes: Sequence[Size]) -> Size:
    """Returns the product of sizes."""
    return sympy.Mul(*sizes) if sizes else sympy.Integer(1)


def cpp(expr: Any) -> str:
    """Returns an expression of sizes, or a comparison of them, in C++; raises NotImplementedError for others."""
    if isinstance(expr, bool) or expr in (sympy.true, sympy.false):
        return str(bool(expr)).lower()
    if isinstance(expr, int | sympy.Integer):
        return f"Number({int(expr)})"
    if isinstance(expr, sympy.Symbol):
        return str(expr.name)
    parts = [cpp(arg) for arg in expr.args]
    if isinstance(expr, sympy.Add):
        return f"({' + '.join(parts)})"
    if isinstance(expr, sympy.Mul):
        return f"({' * '.join(parts)})"
    if isinstance(expr, FloorDiv):
        return f"({parts[0]} / {parts[1]})"  # sizes are not negative
    if isinstance(expr, Mod):
        return f"({parts[0]} % {parts[1]})"
    if isinstance(expr, Max | sympy.Max | Min | sympy.Min):
        function = "std::max" if isinstance(expr, Max | sympy.Max) else "std::min"
        text = parts[0]
        for part in parts[1:]:
            text = f"{function}({text}, {part})"
        return text
    compared = {sympy.Eq: "==", sympy.Ne: "!=", sympy.Ge: ">=", sympy.Gt: ">", sympy.Le: "<=", sympy.Lt: "<"}
    for kind, sign in compared.items():
        if isinstance(expr, kind):
            return f"({parts[0]} {sign} {parts[1]})"
    if isinstance(expr, sympy.And | sympy.Or):
        return f"({(' && ' if isinstance(expr, sympy.And) else ' || ').join(parts)})"
    raise NotImplementedError(f"{expr} has no form in C++")

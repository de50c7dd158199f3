"""Functions of the program form that NumPy lacks, in the forms in which NumPy-style code spells them out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dacergnn.library_nodes.form import Const, Expr, Op, Ref, Statement
from dacergnn.library_nodes.shapes import is_elementwise

Producer = Callable[[str], Statement | None]


def named(expr: Expr, producer: Producer) -> Expr:
    """Names a leaky ReLU, ``maximum(x, 0.2 * x)``, or a sigmoid, ``1 / (1 + exp(-x))``; returns others as they are.

    ``producer`` returns the statement that computed an array. At x = 0, the gradient of the named function applies.
    """
    match _spelled_out(expr, producer):
        case Op("max", (x, Op("mul", (Const(slope), y) | (y, Const(slope))))) if x == y and 0 <= slope <= 1:
            assert isinstance(expr, Op)
            return Op("leakyrelu", (expr.args[0], Const(slope)))
        case Op("max", (Op("mul", (Const(slope), y) | (y, Const(slope))), x)) if x == y and 0 <= slope <= 1:
            assert isinstance(expr, Op)
            return Op("leakyrelu", (expr.args[1], Const(slope)))
        case Op("div", (Const(1.0), Op("add", (Const(1.0), Op("exp", (Op("neg", (x,)),)))))):
            return Op("sigmoid", (x,))
        case _:
            return expr


def _spelled_out(expr: Expr, producer: Producer) -> Expr:
    """Returns the expression with element-wise computations in place of the arrays that hold them."""
    if isinstance(expr, Op):
        return replace(expr, args=tuple(_spelled_out(a, producer) for a in expr.args))
    made = producer(expr.name) if isinstance(expr, Ref) and expr == Ref(expr.name) else None
    if made is None or made.op != "=" or not isinstance(made.expr, Op) or not is_elementwise(made.expr):
        return expr
    return _spelled_out(made.expr, producer)

"""Translation of the Python code of a tasklet to an expression of the program form."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from dacergnn.library_nodes.form import Const, Expr
from dacergnn.library_nodes.operators import OPERATORS, op, power
from dacergnn.library_nodes.parse import BINARY, FLIPPED

_CASTS = ("float", "float32", "float64", "int", "int32", "int64")


class UntranslatableCode(Exception):
    """Signals that no expression of the program form stands for some code, which the message quotes."""


def tasklet_expression(code: str, operands: Mapping[str, Expr]) -> Expr:
    """Returns the value that a tasklet of one assignment computes from its connectors.

    Raises:
        UntranslatableCode: The tasklet does anything else.
    """
    body = ast.parse(code).body
    if len(body) != 1 or not isinstance(body[0], ast.Assign):
        raise UntranslatableCode(code)
    return _expression(body[0].value, operands)


def _expression(node: ast.expr, operands: Mapping[str, Expr]) -> Expr:
    def inner(part: ast.expr) -> Expr:
        return _expression(part, operands)

    match node:
        case ast.Name() if node.id in operands:
            return operands[node.id]
        case ast.Constant(value=int() | float() as value):
            return Const(float(value))
        case ast.UnaryOp(op=ast.USub()):
            operand = inner(node.operand)
            return Const(-operand.value) if isinstance(operand, Const) else op("neg", operand)
        case ast.UnaryOp(op=ast.UAdd()):
            return inner(node.operand)
        case ast.BinOp(op=ast.Pow()) if isinstance(exponent := inner(node.right), Const):
            return power(inner(node.left), exponent)
        case ast.BinOp() if type(node.op) in BINARY:
            return op(BINARY[type(node.op)], inner(node.left), inner(node.right))
        case ast.Compare(ops=[sign], comparators=[right]) if type(sign) in BINARY:
            return op(BINARY[type(sign)], inner(node.left), inner(right))
        case ast.Compare(ops=[sign], comparators=[right]) if type(sign) in FLIPPED:
            return op(FLIPPED[type(sign)], inner(right), inner(node.left))
        case ast.Call(args=[value], keywords=[]) if _called(node) in _CASTS:
            return inner(value)
        case ast.Call(keywords=[]) if _takes(_called(node), len(node.args)):
            return op(_called(node), *map(inner, node.args))
        case _:
            raise UntranslatableCode(ast.unparse(node))


def _called(node: ast.Call) -> str:
    """Returns the last part of the name of a function: DaCe writes math.exp and dace.float32."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _takes(name: str, count: int) -> bool:
    """Returns whether ``name`` is an operator that takes ``count`` values and no constant."""
    operator = OPERATORS.get(name)
    return operator is not None and operator.arity == count and not operator.constants

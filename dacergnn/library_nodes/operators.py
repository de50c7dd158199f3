"""The operators of the program form, one table: a new operator is an entry here and nothing else.

`numpy` evaluates whole columns (operands already broadcast against each other), `code` is a scalar
C++ and Python expression of the operands, `derivative` gives, for the operands, the gradient of the result
and the result itself, the gradient of every operand (None: no gradient).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from dacergnn.errors import ProgramError
from dacergnn.library_nodes.form import Const, Expr, Gemm, Op, Ref, Shape, ShapeOf, Statement, match_gemm, size
from dacergnn.library_nodes.weight_shapes import WEIGHT_SHAPES

Derivative = Callable[[tuple[Expr, ...], Expr, Expr], tuple[Expr | None, ...]]


@dataclass(frozen=True)
class Operator:
    arity: int
    numpy: Callable[..., Any]
    code: str
    derivative: Derivative
    python: str | None = None  # where the Python spelling differs from the C++ one


def op(name: str, *args: Expr | float, dims: Shape = ()) -> Expr:
    """Op(name, args) with constants wrapped and the trivial cases folded."""
    operands = tuple(Const(float(a)) if isinstance(a, int | float) else a for a in args)
    one, zero = Const(1.0), Const(0.0)
    if name == "mul":
        if zero in operands:
            return zero
        if one in operands:
            return operands[1] if operands[0] == one else operands[0]
    if name == "add" and zero in operands:
        return operands[1] if operands[0] == zero else operands[0]
    if name == "neg" and isinstance(operands[0], Op) and operands[0].name == "neg":
        return operands[0].args[0]
    return Op(name, operands, dims)


def _unary(
    numpy: Callable[..., Any], code: str, slope: Callable[[Expr, Expr], Expr], python: str | None = None
) -> Operator:
    """Element-wise function y of one operand x with derivative ``slope(x, y)``."""
    return Operator(1, numpy, code, lambda a, s, y: (op("mul", s, slope(a[0], y)),), python)


def _compare(numpy: Callable[..., Any], sign: str) -> Operator:
    return Operator(
        2,
        lambda a, b: numpy(a, b).astype(np.float64),
        f"({{0}} {sign} {{1}} ? Value(1) : Value(0))",
        lambda a, s, y: (None, None),
        f"(1 if {{0}} {sign} {{1}} else 0)",
    )


def _extremum(numpy: Callable[..., Any], name: str, sign: str) -> Operator:
    def derivative(a: tuple[Expr, ...], s: Expr, y: Expr) -> tuple[Expr, Expr]:
        low, high = (a[1], a[0]) if name == "max" else (a[0], a[1])
        shared = op("where", op("eq", a[0], a[1]), op("mul", s, 0.5), s)  # as torch: of ties, and whole to NaN
        return _unless(op("gt", low, high), shared), _unless(op("gt", high, low), shared)

    return Operator(2, numpy, f"dacergnn::{name}imum({{0}}, {{1}})", derivative, _chosen(sign))


def _chosen(sign: str) -> str:
    """An extremum in Python, which hands NaN on."""
    return f"({{0}} if {{0}} {sign} {{1}} or {{0}} != {{0}} else {{1}})"


def _unless(condition: Expr, seed: Expr) -> Expr:
    """The gradient ``seed`` where a condition does not hold, else 0.

    It is chosen, not multiplied: an infinite gradient of what a function hides, sqrt(relu(x)) say, is no NaN.
    """
    return op("where", condition, 0.0, seed)


def _clamp(numpy: Callable[..., Any], name: str, order: tuple[int, int]) -> Operator:
    """Extremum with a constant that lets the whole gradient through where both are equal, as torch.clamp does."""
    i, j = order
    return Operator(
        2,
        numpy,
        f"dacergnn::{name}imum({{1}}, {{0}})",  # of equal ones the operand, with its sign where it is zero
        lambda a, s, y: (op("where", op("ge", a[i], a[j]), s, 0.0), None),
        _chosen(">" if name == "max" else "<"),
    )


def _sigmoid(x: Any) -> Any:
    power = np.exp(-np.abs(x))
    return np.where(x < 0, power, 1.0) / (1.0 + power)


def _sigmoid_slope(x: Expr, y: Expr) -> Expr:
    return op("mul", y, op("sub", 1.0, y))


def _silu_slope(x: Expr, y: Expr) -> Expr:
    share = op("sigmoid", x)
    return op("mul", share, op("add", op("mul", x, op("sub", 1.0, share)), 1.0))


def _gelu_slope(x: Expr, y: Expr) -> Expr:
    cdf = op("mul", 0.5, op("add", 1.0, op("erf", op("mul", x, math.sqrt(0.5)))))
    pdf = op("mul", op("exp", op("mul", op("mul", x, x), -0.5)), 1 / math.sqrt(2 * math.pi))
    return op("add", cdf, op("mul", x, pdf))


def _leaky_slope(x: Expr, slope: Expr, y: Expr) -> Expr:
    x = y if _tells_sign(y, slope) else x
    return op("add", slope, op("mul", op("gt", x, 0.0), op("sub", 1.0, slope)))


def _elu_slope(x: Expr, alpha: Expr, y: Expr) -> Expr:
    negative = op("mul", alpha, op("exp", op("clamp_max", x, 0.0)))  # y + alpha is 0 long before
    return op("add", op("gt", x, 0.0), op("mul", op("sub", 1.0, op("gt", x, 0.0)), negative))


def _tells_sign(y: Expr, constant: Expr) -> bool:
    """Whether a result is at hand, and positive just where the operand is."""
    return isinstance(y, Ref) and isinstance(constant, Const) and constant.value >= 0


SLOPE_OF_EITHER = ("relu", "leakyrelu")
"""Functions whose derivative is found from the result where there is an array of it, or else from the operand."""


OPERATORS: dict[str, Operator] = {
    "add": Operator(2, np.add, "({0} + {1})", lambda a, s, y: (s, s)),
    "sub": Operator(2, np.subtract, "({0} - {1})", lambda a, s, y: (s, op("neg", s))),
    "mul": Operator(2, np.multiply, "({0} * {1})", lambda a, s, y: (op("mul", s, a[1]), op("mul", s, a[0]))),
    "div": Operator(
        2,
        np.divide,
        "({0} / {1})",
        # The square of the divisor may overflow, or be 0, where the slope does not.
        lambda a, s, y: (op("div", s, a[1]), op("mul", op("neg", s), op("div", op("div", *a), a[1]))),
    ),
    "neg": Operator(1, np.negative, "(-{0})", lambda a, s, y: (op("neg", s),)),
    "gt": _compare(np.greater, ">"),
    "ge": _compare(np.greater_equal, ">="),
    "eq": _compare(np.equal, "=="),
    "exp": _unary(np.exp, "dacergnn::exp({0})", lambda x, y: y, "exp({0})"),
    "expm1": _unary(np.expm1, "dacergnn::expm1({0})", lambda x, y: op("exp", x), "expm1({0})"),
    "log": Operator(1, np.log, "std::log({0})", lambda a, s, y: (op("div", s, a[0]),), "log({0})"),
    "log1p": Operator(
        1, np.log1p, "std::log1p({0})", lambda a, s, y: (op("div", s, op("add", a[0], 1.0)),), "log1p({0})"
    ),
    "sqrt": _unary(np.sqrt, "std::sqrt({0})", lambda x, y: op("div", 0.5, y), "sqrt({0})"),
    "abs": _unary(np.abs, "std::abs({0})", lambda x, y: op("sub", op("gt", x, 0.0), op("gt", 0.0, x)), "abs({0})"),
    "erf": _unary(
        special.erf,
        "dacergnn::erf({0})",
        lambda x, y: op("mul", 2 / math.sqrt(math.pi), op("exp", op("neg", op("mul", x, x)))),
        "erf({0})",
    ),
    "tanh": _unary(np.tanh, "dacergnn::tanh({0})", lambda x, y: op("sub", 1.0, op("mul", y, y)), "tanh({0})"),
    "sigmoid": _unary(
        _sigmoid,
        "dacergnn::sigmoid({0})",
        _sigmoid_slope,
        "(exp(min({0}, 0)) / (1 + exp(-abs({0}))))",
    ),
    "silu": _unary(
        lambda x: x * _sigmoid(x),
        "({0} * dacergnn::sigmoid({0}))",
        _silu_slope,
        "({0} * exp(min({0}, 0)) / (1 + exp(-abs({0}))))",
    ),
    "softplus": _unary(
        lambda x: np.logaddexp(x, 0.0),
        "dacergnn::softplus({0})",
        lambda x, y: op("sigmoid", x),
        "(({0} if {0} > 0 else 0) + log1p(exp(-abs({0}))))",
    ),
    "relu": Operator(
        1,
        lambda x: np.maximum(x, 0.0),
        "dacergnn::maximum(Value(0), {0})",
        lambda a, s, y: (_unless(op("ge", 0.0, y if isinstance(y, Ref) else a[0]), s),),
        "(0 if {0} <= 0 else {0})",
    ),
    "gelu": _unary(
        lambda x: 0.5 * x * (1 + special.erf(x * math.sqrt(0.5))),
        "(Value(0.5) * {0} * (Value(1) + dacergnn::erf({0} * Value(0.70710678118654752440))))",
        _gelu_slope,
        "(0.5 * {0} * (1 + erf({0} * 0.70710678118654752440)))",
    ),
    "leakyrelu": Operator(
        2,
        lambda x, slope: np.where(x > 0, x, slope * x),
        "(({0} > 0 ? {0} : Value(0)) + {1} * (Value(0) < {0} ? Value(0) : {0}))",  # no branch; hands NaN on
        lambda a, s, y: (op("mul", s, _leaky_slope(a[0], a[1], y)), None),
        "({0} if {0} > 0 else {1} * {0})",
    ),
    "elu": Operator(
        2,
        lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0.0))),
        "(({0} > 0 ? {0} : Value(0)) + {1} * dacergnn::expm1({0} > 0 ? Value(0) : {0}))",  # no branch; hands NaN on
        lambda a, s, y: (op("mul", s, _elu_slope(a[0], a[1], y)), None),
        "({0} if {0} > 0 else {1} * expm1({0}))",
    ),
    "max": _extremum(np.maximum, "max", ">"),
    "min": _extremum(np.minimum, "min", "<"),
    "clamp_min": _clamp(np.maximum, "max", (0, 1)),
    "clamp_max": _clamp(np.minimum, "min", (1, 0)),
    "where": Operator(
        3,
        lambda c, a, b: np.where(c != 0, a, b),
        "dacergnn::chosen({0}, {1}, {2})",
        lambda a, s, y: (None, op("where", a[0], s, 0.0), _unless(a[0], s)),
        "({1} if {0} != 0 else {2})",
    ),
    "detach": Operator(1, lambda x: x, "{0}", lambda a, s, y: (None,)),
}

# Operators that change the shape; their rules stand in `shape_of`, `interpret`, `differentiate` and the emitter.
STRUCTURAL = {
    "sum": 1, "dot_prd": 2, "sum_heads": 1, "to_heads": 1, "concat": 2, "slice": 1, "expand": 1, "take_rows": 1,
    "pad_rows": 1, "linear": 2, "outer_prod": 2, "compose": 2, "inner": 2,
}  # fmt: skip
WITH_DIMS = ("slice", "expand", "to_heads", "take_rows", "pad_rows", "inner")

CONSTANT_SECOND = ("leakyrelu", "elu", "clamp_min", "clamp_max")


def is_elementwise(expr: Expr) -> bool:
    """Whether an element of the value depends on the same element of every operand of full shape."""
    return not isinstance(expr, Op) or (expr.name in OPERATORS and all(is_elementwise(a) for a in expr.args))


def broadcast(shapes: list[Shape], where: str) -> Shape:
    """The common shape of operands that align along leading axes."""
    longest = max(shapes, key=len)
    for shape in shapes:
        if longest[: len(shape)] != shape:
            raise ProgramError(
                f"{where}: operands of shapes {shape} and {longest} do not agree; shapes align along leading axes, "
                "so a value of shape (H,) goes with one of shape (H, K)."
            )
    return longest


def shape_of(expr: Expr, shapes: ShapeOf) -> Shape:
    """Row shape of an expression; raises ProgramError where operands do not fit."""
    if isinstance(expr, Ref):
        return _ref_shape(expr, shapes)
    if isinstance(expr, Const):
        return ()
    if expr.name == "linear":
        return _linear_shape(expr, shapes)
    args = [shape_of(a, shapes) for a in expr.args]
    if expr.name in WEIGHT_SHAPES:
        return WEIGHT_SHAPES[expr.name](args, expr.dims)
    if expr.name == "outer_prod":
        _check_untransposed(expr)
        x, y = args
        if len(x) != len(y) or len(x) not in (1, 2) or x[:-1] != y[:-1]:
            raise ProgramError(
                f"outer_prod: operands of row shapes {x} and {y}; expected (K,) and (M,) or (H, K) and (H, M)."
            )
        return (*x, y[-1])
    if expr.name in ("sum", "dot_prd"):
        shape = broadcast(args, expr.name)
        if not shape:
            raise ProgramError(f"{expr.name}: reduces the last axis, but the operands are scalars per row.")
        return shape[:-1]
    if expr.name == "sum_heads":
        if len(args[0]) < 2:
            raise ProgramError(f"sum_heads: adds up the rows (K,) of a value (H, K), but the operand is {args[0]}.")
        return args[0][1:]
    if expr.name == "to_heads":
        if len(expr.dims) != 1 or expr.dims[0] < 1:
            raise ProgramError(f"to_heads: takes (x, H), the number of rows (K,) that x is to be, not {expr.dims}.")
        return (*expr.dims, *args[0])
    if expr.name == "concat":
        a, b = args
        if not a or len(a) != len(b) or a[:-1] != b[:-1]:
            raise ProgramError(f"concat: operands of row shapes {a} and {b} may differ in the last axis only.")
        return (*a[:-1], a[-1] + b[-1])
    if expr.name == "slice":
        if not args[0] or len(expr.dims) != 2 or not 0 <= expr.dims[0] < expr.dims[1] <= args[0][-1]:
            raise ProgramError(
                f"slice: takes (x, start, stop) within the last axis of x, not {expr.dims} of {args[0]}."
            )
        return (*args[0][:-1], expr.dims[1] - expr.dims[0])
    if expr.name == "expand":
        if any(d < 1 for d in expr.dims):
            raise ProgramError(f"expand: appends axes of the given positive sizes, not {expr.dims}.")
        return (*args[0], *expr.dims)
    if expr.name in CONSTANT_SECOND and not isinstance(expr.args[1], Const):
        raise ProgramError(f"{expr.name}: the second operand is a constant.")
    return broadcast(args, expr.name)


def _ref_shape(ref: Ref, shapes: ShapeOf) -> Shape:
    shape = shapes(ref)
    if not ref.transposed:
        return shape
    if len(shape) < 2:
        raise ProgramError(f'"{ref.name}" has row shape {shape}; only matrices and stacks of them are transposed.')
    return (*shape[:-2], shape[-1], shape[-2])


def _check_untransposed(expr: Op, operands: int = 2) -> None:
    """Kernels read the rows of a product as they lie."""
    for arg in expr.args[:operands]:
        if isinstance(arg, Ref) and arg.transposed:
            raise ProgramError(f'{expr.name}: "{arg.name}" is a row value, which is not transposed; only weights are.')


def _linear_shape(expr: Op, shapes: ShapeOf) -> Shape:
    _check_untransposed(expr, 1)
    x, w = (shape_of(a, shapes) for a in expr.args)
    weight = expr.args[1]
    if isinstance(weight, Ref) and weight.view is not None:
        raise ProgramError(f'linear: the weights "{weight.name}" are used in the shape that they are declared with.')
    if len(w) != len(x) + 1 or w[:-1] != x:
        raise ProgramError(
            f"linear: rows of shape {x} and weights of shape {w}; expected (K,) with (K, M), or (H, K) with (H, K, M)."
        )
    return (*w[:-2], w[-1])


def scale_fits(gemm: Gemm, shapes: ShapeOf) -> bool:
    """Whether a product is scaled by one value for each row, or for each head of one."""
    if gemm.scale is None:
        return True
    heads, scale = shapes(gemm.x)[:-1], shapes(gemm.scale)
    return scale in ((), heads)


def check_shapes(statement: Statement, shapes: ShapeOf) -> None:
    """Raise ProgramError unless the expression fits the target: equal, of lower rank, or a GEMM of equal size."""
    target = shapes(statement.target)
    value = shape_of(statement.expr, shapes)
    gemm = match_gemm(statement)
    if gemm is not None and not scale_fits(gemm, shapes):
        raise ProgramError(
            f'"{statement.target.name}": a product is scaled by one value for each row or head, '
            f"not by one of row shape {shapes(gemm.scale or gemm.x)}."
        )
    fits = target[: len(value)] == value or (gemm is not None and size(target) == size(value))
    if not fits:
        raise ProgramError(
            f'"{statement.target.name}" has row shape {target}, but is assigned a value of row shape {value}.'
        )

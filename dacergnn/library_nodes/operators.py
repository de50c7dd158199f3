"""Defines the element-wise operators of the program form: a new operator is one record here, and works everywhere.

The parser, the interpreter, kernels, gradients, passes, the features of the learned model, traced layers, and
activations behind layers and in networks all read these records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import special

from dacergnn.library_nodes.form import Const, Expr, Op, Ref, Shape

Derivative = Callable[[tuple[Expr, ...], Expr, Expr], tuple[Expr | None, ...]]
"""A function from operands, gradient of the result, and result to the gradient of every operand (None: no gradient)."""
COSTS = ("add", "multiply", "divide", "exp", "erf", "tanh", "root", "compare", "select")
"""Kinds of operators by the time that they take."""


@dataclass(frozen=True)
class InTorch:
    """Describes the functions and the module of torch that stand for an operator.

    Args:
        functions: Names of functions and of methods of tensors.
        module: Name of the class in `torch.nn`; None for none.
        options: Names of the operands behind the first, in functions and as attributes of the module.
        fixed: Options that must have these values.
    """

    functions: tuple[str, ...] = ()
    module: str | None = None
    options: tuple[str, ...] = ()
    fixed: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True)
class Operator:
    """Describes an operator that works element by element.

    Args:
        arity: Number of operands.
        numpy: A function of whole columns, which are already broadcast against each other.
        code: A scalar C++ expression of the operands.
        derivative: The rule of its gradient.
        python: The expression in Python, if it differs from the C++ one.
        cost: One of `COSTS`.
        constants: Default values of the operands behind the first, if these are constants; None for no default.
        rising: Whether the value never falls as the operand grows, if the constant is not negative.
        zero_at_zero: Whether the value is 0 where the operand is.
        slope_of_either: Whether the derivative is computed from the result, if an array holds it, or else from the
            operand.
        torch: The functions and the module of torch that stand for it.
    """

    arity: int
    numpy: Callable[..., Any]
    code: str
    derivative: Derivative
    python: str | None = None
    cost: str = "add"
    constants: tuple[float | None, ...] = ()
    rising: bool = False
    zero_at_zero: bool = False
    slope_of_either: bool = False
    torch: InTorch = field(default_factory=InTorch)

    @property
    def is_activation(self) -> bool:
        """Returns whether torch has it, and it takes one value and, besides, only constants."""
        return self.arity == 1 + len(self.constants) and self.torch.functions != ()


def op(name: str, *args: Expr | float, dims: Shape = ()) -> Expr:
    """Returns ``Op(name, args)`` with constants wrapped and the trivial cases folded."""
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
    numpy: Callable[..., Any], code: str, slope: Callable[[Expr, Expr], Expr], python: str | None = None, **about: Any
) -> Operator:
    """Returns the operator of an element-wise function y of an operand x with derivative ``slope(x, y)``."""
    return Operator(1, numpy, code, lambda a, s, y: (op("mul", s, slope(a[0], y)),), python, **about)


def _steps(numpy: Callable[..., Any], function: str, *names: str) -> Operator:
    """Returns the operator of a function with steps, which has slope 0 everywhere, as in torch."""
    flat = _unary(numpy, f"std::{function}({{0}})", lambda x, y: Const(0.0), f"{function}({{0}})", cost="select")
    return replace(flat, torch=InTorch(names))


def _compare(numpy: Callable[..., Any], sign: str) -> Operator:
    return Operator(
        2,
        lambda a, b: numpy(a, b).astype(np.float64),
        f"({{0}} {sign} {{1}} ? Value(1) : Value(0))",
        lambda a, s, y: (None, None),
        f"(1 if {{0}} {sign} {{1}} else 0)",
        cost="compare",
    )


def _extremum(numpy: Callable[..., Any], name: str, sign: str) -> Operator:
    def derivative(a: tuple[Expr, ...], s: Expr, y: Expr) -> tuple[Expr, Expr]:
        low, high = (a[1], a[0]) if name == "max" else (a[0], a[1])
        shared = op("where", op("eq", a[0], a[1]), op("mul", s, 0.5), s)  # as torch: half at ties, all at NaN
        return _unless(op("gt", low, high), shared), _unless(op("gt", high, low), shared)

    code = f"dacergnn::{name}imum({{0}}, {{1}})"
    torch = InTorch((f"{name}imum",))
    return Operator(2, numpy, code, derivative, _chosen(sign), cost="select", torch=torch)


def _chosen(sign: str) -> str:
    """Returns the Python code of an extremum that passes NaN on."""
    return f"({{0}} if {{0}} {sign} {{1}} or {{0}} != {{0}} else {{1}})"


def _unless(condition: Expr, seed: Expr) -> Expr:
    """Returns the gradient ``seed`` where a condition does not hold, else 0.

    The gradient is selected, not multiplied: 0 times an infinite gradient, as in sqrt(relu(x)), would be NaN.
    """
    return op("where", condition, 0.0, seed)


def _clamp(numpy: Callable[..., Any], name: str, order: tuple[int, int]) -> Operator:
    """Returns an extremum with a constant, whose whole gradient passes where both are equal, as in torch.clamp."""
    i, j = order
    return Operator(
        2,
        numpy,
        f"dacergnn::{name}imum({{1}}, {{0}})",  # if both are equal, the operand, which keeps the sign of zero
        lambda a, s, y: (op("where", op("ge", a[i], a[j]), s, 0.0), None),
        _chosen(">" if name == "max" else "<"),
        cost="select",
        constants=(None,),
        torch=InTorch((f"clamp_{'min' if name == 'max' else 'max'}",), options=("min" if name == "max" else "max",)),
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
    negative = op("mul", alpha, op("exp", op("clamp_max", x, 0.0)))  # y + alpha would round to 0 much earlier
    return op("add", op("gt", x, 0.0), op("mul", op("sub", 1.0, op("gt", x, 0.0)), negative))


def _tells_sign(y: Expr, constant: Expr) -> bool:
    """Returns whether an array holds the result, and the result is positive exactly where the operand is."""
    return isinstance(y, Ref) and isinstance(constant, Const) and constant.value >= 0


def power(x: Expr, exponent: Expr | float) -> Expr:
    """Returns a power, by simpler operators for some exponents."""
    match exponent.value if isinstance(exponent, Const) else exponent:
        case 1.0:
            return x
        case 2.0:
            return op("mul", x, x)
        case 0.5:
            return op("sqrt", x)
        case -1.0:
            return op("div", 1.0, x)
        case _:
            return op("pow", x, exponent)


def _power_slope(x: Expr, exponent: Expr) -> Expr:
    assert isinstance(exponent, Const)
    # A power of 0 is 1 everywhere, also where other powers have no slope.
    return Const(0.0) if exponent.value == 0.0 else op("mul", exponent, power(x, exponent.value - 1))


def _functions(*names: str, **others: Any) -> InTorch:
    return InTorch(names, **others)


OPERATORS: dict[str, Operator] = {
    "add": Operator(2, np.add, "({0} + {1})", lambda a, s, y: (s, s), torch=_functions("add")),
    "sub": Operator(
        2,
        np.subtract,
        "({0} - {1})",
        lambda a, s, y: (s, op("neg", s)),
        torch=_functions("sub", "subtract"),
    ),
    "mul": Operator(
        2,
        np.multiply,
        "({0} * {1})",
        lambda a, s, y: (op("mul", s, a[1]), op("mul", s, a[0])),
        cost="multiply",
        torch=_functions("mul", "multiply"),
    ),
    "div": Operator(
        2,
        np.divide,
        "({0} / {1})",
        # The square of the divisor may overflow, or be 0, where the slope does not.
        lambda a, s, y: (op("div", s, a[1]), op("mul", op("neg", s), op("div", op("div", *a), a[1]))),
        cost="divide",
        torch=_functions("div", "divide", "true_divide"),
    ),
    "neg": Operator(1, np.negative, "(-{0})", lambda a, s, y: (op("neg", s),), torch=_functions("neg", "negative")),
    "gt": _compare(np.greater, ">"),
    "ge": _compare(np.greater_equal, ">="),
    "eq": _compare(np.equal, "=="),
    "exp": _unary(
        np.exp, "dacergnn::exp({0})", lambda x, y: y, "exp({0})", cost="exp", rising=True, torch=_functions("exp")
    ),
    "expm1": _unary(
        np.expm1,
        "dacergnn::expm1({0})",
        lambda x, y: op("exp", x),
        "expm1({0})",
        cost="exp",
        torch=_functions("expm1"),
    ),
    "log": Operator(
        1,
        np.log,
        "std::log({0})",
        lambda a, s, y: (op("div", s, a[0]),),
        "log({0})",
        cost="root",
        torch=_functions("log"),
    ),
    "log1p": Operator(
        1,
        np.log1p,
        "std::log1p({0})",
        lambda a, s, y: (op("div", s, op("add", a[0], 1.0)),),
        "log1p({0})",
        cost="root",
        torch=_functions("log1p"),
    ),
    "sqrt": _unary(
        np.sqrt, "std::sqrt({0})", lambda x, y: op("div", 0.5, y), "sqrt({0})", cost="root", torch=_functions("sqrt")
    ),
    "pow": Operator(
        2,
        np.power,
        "std::pow({0}, {1})",
        lambda a, s, y: (op("mul", s, _power_slope(a[0], a[1])), None),
        "({0} ** {1})",
        cost="tanh",
        constants=(None,),
    ),
    "sin": _unary(
        np.sin,
        "std::sin({0})",
        lambda x, y: op("cos", x),
        "sin({0})",
        cost="tanh",
        torch=_functions("sin"),
    ),
    "cos": _unary(
        np.cos,
        "std::cos({0})",
        lambda x, y: op("neg", op("sin", x)),
        "cos({0})",
        cost="tanh",
        torch=_functions("cos"),
    ),
    "abs": _unary(
        np.abs,
        "std::abs({0})",
        lambda x, y: op("sub", op("gt", x, 0.0), op("gt", 0.0, x)),
        "abs({0})",
        cost="select",
        torch=_functions("abs", "absolute"),
    ),
    "round": _steps(np.round, "rint", "round"),  # half to even
    "floor": _steps(np.floor, "floor", "floor"),
    "ceil": _steps(np.ceil, "ceil", "ceil"),
    "trunc": _steps(np.trunc, "trunc", "trunc", "fix"),
    "erf": _unary(
        special.erf,
        "dacergnn::erf({0})",
        lambda x, y: op("mul", 2 / math.sqrt(math.pi), op("exp", op("neg", op("mul", x, x)))),
        "erf({0})",
        cost="erf",
        rising=True,
        zero_at_zero=True,
        torch=_functions("erf"),
    ),
    "tanh": _unary(
        np.tanh,
        "dacergnn::tanh({0})",
        lambda x, y: op("sub", 1.0, op("mul", y, y)),
        "tanh({0})",
        cost="tanh",
        rising=True,
        zero_at_zero=True,
        torch=_functions("tanh", module="Tanh"),
    ),
    "sigmoid": _unary(
        _sigmoid,
        "dacergnn::sigmoid({0})",
        _sigmoid_slope,
        "(exp(min({0}, 0)) / (1 + exp(-abs({0}))))",
        cost="exp",
        rising=True,
        torch=_functions("sigmoid", module="Sigmoid"),
    ),
    "silu": _unary(
        lambda x: x * _sigmoid(x),
        "({0} * dacergnn::sigmoid({0}))",
        _silu_slope,
        "({0} * exp(min({0}, 0)) / (1 + exp(-abs({0}))))",
        cost="exp",
        torch=_functions("silu", module="SiLU"),
    ),
    "softplus": _unary(
        lambda x: np.logaddexp(x, 0.0),
        "dacergnn::softplus({0})",
        lambda x, y: op("sigmoid", x),
        "(({0} if {0} > 0 else 0) + log1p(exp(-abs({0}))))",
        cost="exp",
        # Above torch's threshold, the function and its operand round to the same float32.
        torch=_functions("softplus", module="Softplus", fixed={"beta": 1.0, "threshold": 20.0}),
    ),
    "relu": Operator(
        1,
        lambda x: np.maximum(x, 0.0),
        "dacergnn::maximum(Value(0), {0})",
        lambda a, s, y: (_unless(op("ge", 0.0, y if isinstance(y, Ref) else a[0]), s),),
        "(0 if {0} <= 0 else {0})",
        cost="select",
        rising=True,
        zero_at_zero=True,
        slope_of_either=True,
        torch=_functions("relu", module="ReLU"),
    ),
    "gelu": _unary(
        lambda x: 0.5 * x * (1 + special.erf(x * math.sqrt(0.5))),
        "(Value(0.5) * {0} * (Value(1) + dacergnn::erf({0} * Value(0.70710678118654752440))))",
        _gelu_slope,
        "(0.5 * {0} * (1 + erf({0} * 0.70710678118654752440)))",
        cost="erf",
        torch=_functions("gelu", module="GELU", fixed={"approximate": "none"}),
    ),
    "leakyrelu": Operator(
        2,
        lambda x, slope: np.where(x > 0, x, slope * x),
        "(({0} > 0 ? {0} : Value(0)) + {1} * (Value(0) < {0} ? Value(0) : {0}))",  # no branch; passes NaN on
        lambda a, s, y: (op("mul", s, _leaky_slope(a[0], a[1], y)), None),
        "({0} if {0} > 0 else {1} * {0})",
        cost="select",
        constants=(0.01,),
        rising=True,
        zero_at_zero=True,
        slope_of_either=True,
        torch=_functions("leaky_relu", module="LeakyReLU", options=("negative_slope",)),
    ),
    "elu": Operator(
        2,
        lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0.0))),
        "(({0} > 0 ? {0} : Value(0)) + {1} * dacergnn::expm1({0} > 0 ? Value(0) : {0}))",  # no branch; passes NaN on
        lambda a, s, y: (op("mul", s, _elu_slope(a[0], a[1], y)), None),
        "({0} if {0} > 0 else {1} * expm1({0}))",
        cost="exp",
        constants=(1.0,),
        rising=True,
        zero_at_zero=True,
        torch=_functions("elu", module="ELU", options=("alpha",)),
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
        cost="select",
    ),
    "detach": Operator(1, lambda x: x, "{0}", lambda a, s, y: (None,), cost="select"),
}

STRUCTURAL = {
    "sum": 1, "dot_prd": 2, "sum_heads": 1, "to_heads": 1, "concat": 2, "slice": 1, "expand": 1, "take_rows": 1,
    "pad_rows": 1, "linear": 2, "outer_prod": 2, "compose": 2, "inner": 2,
}  # fmt: skip
"""Operators that change the shape, and their arity: their rules are in `shape_of`, `interpret`, `differentiate` and the
emitter."""
WITH_DIMS = ("slice", "expand", "to_heads", "take_rows", "pad_rows", "inner")
"""The operators in `STRUCTURAL` that also take numbers."""

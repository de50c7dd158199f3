"""Computes the row shapes of expressions, and checks that they fit their targets."""

from __future__ import annotations

from dacergnn.errors import ProgramError
from dacergnn.library_nodes.form import Const, Expr, Gemm, Op, Ref, Shape, ShapeOf, Statement, size
from dacergnn.library_nodes.operators import OPERATORS
from dacergnn.library_nodes.weight_shapes import WEIGHT_SHAPES


def is_elementwise(expr: Expr) -> bool:
    """Returns whether an element of the value depends only on the same element of each operand of full shape."""
    return not isinstance(expr, Op) or (expr.name in OPERATORS and all(is_elementwise(a) for a in expr.args))


def broadcast(shapes: list[Shape], where: str) -> Shape:
    """Returns the common shape of operands that align along leading axes."""
    longest = max(shapes, key=len)
    for shape in shapes:
        if longest[: len(shape)] != shape:
            raise ProgramError(
                f"{where}: operands of shapes {shape} and {longest} do not agree; shapes align along leading axes, "
                "so a value of shape (H,) goes with one of shape (H, K)."
            )
    return longest


def shape_of(expr: Expr, shapes: ShapeOf) -> Shape:
    """Returns the row shape of an expression; raises ProgramError where operands do not fit."""
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
    constants = OPERATORS[expr.name].constants if expr.name in OPERATORS else ()
    if constants and not all(isinstance(a, Const) for a in expr.args[-len(constants) :]):
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
    """Raises ProgramError for transposed row values, because kernels read the rows of a product as they are stored."""
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
    """Returns whether a product has no scale, or is scaled by one value for each row, or for each head of a row."""
    if gemm.scale is None:
        return True
    heads, scale = shapes(gemm.x)[:-1], shapes(gemm.scale)
    return scale in ((), heads)


def check_shapes(statement: Statement, shapes: ShapeOf) -> None:
    """Raises ProgramError unless the expression fits the target: equal, of lower rank, or a GEMM of equal size."""
    target = shapes(statement.target)
    value = shape_of(statement.expr, shapes)
    gemm = statement.gemm
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


def row_elements(shapes: ShapeOf, exprs: list[Expr]) -> int:
    """Returns how many elements are touched to evaluate expressions for one row, which measures the work of a row."""
    total = 1
    for expr in exprs:
        stack: list[Expr] = [expr]
        while stack:
            item = stack.pop()
            total += size(shapes(item)) if isinstance(item, Ref) else 0
            stack.extend(item.args if isinstance(item, Op) else ())
    return total

"""Computes gradients of the operands of operators that change the shape of a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from dacergnn.library_nodes.form import Const, Expr, Op, Ref, Shape, ShapeOf
from dacergnn.library_nodes.operators import op
from dacergnn.library_nodes.shapes import shape_of


def structural_gradients(
    expr: Op, seed: Expr, shapes: ShapeOf, array: Callable[[Expr, Shape], Ref]
) -> Iterator[tuple[Expr, Expr, Shape]]:
    """Yields the operands of ``expr`` with their gradients and the row shapes that these nominally have.

    Args:
        seed: Gradient of the result; of lower rank where it is the same along the last axes.
        shapes: Row shapes of references.
        array: Makes an array of the given row shape that holds a value.
    """
    shape, args = shape_of(expr, shapes), expr.args
    wide = shape_of(args[0], shapes)
    match expr.name:
        case "sum":
            yield args[0], seed, wide
        case "expand":
            yield args[0], seed, shape
        case "sum_heads":
            yield args[0], Op("to_heads", (_full(seed, shape, shapes),), wide[:1]), wide
        case "to_heads":
            yield args[0], op("sum" if len(shape) == 1 else "sum_heads", _full(seed, shape, shapes)), wide
        case "dot_prd":
            a, b = args
            both = shape_of(Op("mul", args), shapes)
            yield a, op("mul", seed, b), both
            yield b, op("mul", seed, a), both
        case "outer_prod" if len(shape) == 2:
            a, b = args
            full = _full(seed, shape, shapes)
            yield a, op("dot_prd", full, Op("to_heads", (b,), shape[:1])), shape[:1]
            yield b, Op("sum_heads", (op("mul", a, full),)), shape[1:]
        case "outer_prod":
            seeds = array(seed, shape)
            for arg, other, seen in ((*args, seeds), (*args[::-1], replace(seeds, transposed=True))):
                own = shape_of(arg, shapes)
                spread = Op("outer_prod", (Op("expand", (Const(1.0),), own), other))
                yield arg, op("dot_prd", seen, spread), own
        case "concat":
            first, total = wide[-1], shape[-1]
            full = len(shape_of(seed, shapes)) == len(shape)
            for arg, dims in zip(args, ((0, first), (first, total)), strict=True):
                yield arg, Op("slice", (seed,), dims) if full else seed, shape_of(arg, shapes)
        case "slice":
            padded = _full(seed, shape, shapes)
            before, after = expr.dims[0], wide[-1] - expr.dims[1]
            padded = Op("concat", (_zeros((*wide[:-1], before)), padded)) if before else padded
            yield args[0], Op("concat", (padded, _zeros((*wide[:-1], after)))) if after else padded, wide
        case "take_rows":
            rows = expr.dims[0], wide[-2] - expr.dims[1]
            yield args[0], Op("pad_rows", (_full(seed, shape, shapes),), rows), wide
        case "pad_rows":
            rows = expr.dims[0], expr.dims[0] + wide[-2]
            yield args[0], Op("take_rows", (_full(seed, shape, shapes),), rows), wide
        case _:
            raise NotImplementedError(expr.name)


def _full(value: Expr, shape: Shape, shapes: ShapeOf) -> Expr:
    """Returns the value with all axes of ``shape``."""
    rank = len(shape_of(value, shapes))
    return Op("expand", (value,), shape[rank:]) if rank < len(shape) else value


def _zeros(shape: Shape) -> Expr:
    return Op("expand", (Const(0.0),), shape)

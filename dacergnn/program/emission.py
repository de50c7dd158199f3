"""Turns statements of any depth into operators; products and reductions inside expressions get their own."""

from __future__ import annotations

from dataclasses import replace

from dacergnn.errors import ProgramError
from dacergnn.graph.spaces import TYPE_PATHS
from dacergnn.library_nodes.form import GEMM_OPERATORS, Expr, Op, Ref, Shape, Statement, size
from dacergnn.library_nodes.node import Typeclass
from dacergnn.library_nodes.place import Place
from dacergnn.library_nodes.shapes import scale_fits, shape_of
from dacergnn.program.view import Program

_OF_TYPES = "multiplies the weights of one type, in a loop over g.edge_types(), g.node_types() or g.once()"
_PRODUCTS = {
    "linear": "the weights are chosen by a type, as in W[e.etype] or W[n.ntype], or an array of one row",
    "compose": _OF_TYPES,
    "inner": _OF_TYPES,
}
MOST_AXES = 3
"""The most axes of the rows that a statement computes (`library_nodes.form`)."""
OWN_STATEMENT = (*GEMM_OPERATORS, "dot_prd", "sum")


class Emission:
    """Adds operators to a program."""

    def __init__(self, program: Program, dtype: Typeclass) -> None:
        self.program = program
        self.dtype = dtype
        self.place: Place | None = None
        """The place of the statement whose operators are added."""

    def emit(self, space: str, path: str, operation: str, value: Expr, name: str, owner: str) -> str:
        """Adds operators for one statement, with products in operators of their own; returns the array written."""
        view: Shape | None = None
        if isinstance(value, Op) and value.name == "reshape":
            product = self._operands(value.args[0], space, path)
            if self._is_product(Statement(space, Ref(name, path), operation, product)):
                view, value = value.dims, product
        value = self._operands(value, space, path)
        if not self._is_product(Statement(space, Ref(name, path), operation, value)):
            if path == "" and isinstance(value, Op) and value.name in GEMM_OPERATORS and not is_plain(value):
                raise ProgramError(f"{value.name}: {_PRODUCTS[value.name]}.")
            value = self._hoist(value, space, top=not _is_gemm_operator(value))
        shape = shape_of(value, self.program.shape)
        if view is not None and size(view) != size(shape):
            raise ProgramError(f"reshape: {shape} has {size(shape)} elements, {view} has {size(view)}.")
        if len(shape) > MOST_AXES:
            raise ProgramError(
                f"Rows of shape {shape} have more than {MOST_AXES} axes; join some of them by a reshape."
            )
        array = self.program.add_array(name, owner, shape if view is None else view, self.dtype)
        self.program.insert(Statement(space, Ref(array, path), operation, value, self.place))
        return array

    def _is_product(self, statement: Statement) -> bool:
        """Tells whether one SegmentGemm can run the statement."""
        gemm = statement.gemm
        return gemm is not None and scale_fits(gemm, self.program.shape)

    def _operands(self, expr: Expr, space: str, path: str) -> Expr:
        """Returns the expression with the operands of products in arrays.

        An outer product, alone or scaled, is such a product if it is summed over types: for targets along a type path.
        """
        if not isinstance(expr, Op):
            return expr
        args = [self._operands(a, space, path if expr.name == "mul" else "") for a in expr.args]
        if expr.name in GEMM_OPERATORS and (path in TYPE_PATHS or not is_plain(expr)):
            args = [self._row(a, space) for a in args]
        if expr.name == "reshape":
            (inner,) = args
            return replace(self._row(inner, space), view=expr.dims)
        return replace(expr, args=tuple(args))

    def _hoist(self, expr: Expr, space: str, top: bool = False) -> Expr:
        """Returns the expression with products and reductions inside it moved into operators of their own.

        A score of two dot products then has them as arrays, which its gradient reads instead of the features.
        """
        if not isinstance(expr, Op):
            return expr
        expr = replace(expr, args=tuple(self._hoist(a, space) for a in expr.args))
        stays = top or expr.name not in OWN_STATEMENT or is_plain(expr)
        return expr if stays else self.temporary(expr, space)

    def _row(self, expr: Expr, space: str) -> Ref:
        """Returns the value of an expression as rows of an array."""
        return expr if isinstance(expr, Ref) else self.temporary(expr, space)

    def temporary(self, expr: Expr, space: str) -> Ref:
        """Adds an array with the value of an expression for every row of a space, and returns its reference."""
        return Ref(self.emit(space, "", "=", expr, "tmp", space))


def is_plain(expr: Op) -> bool:
    """Tells whether a product may be among element-wise operators: the outer product of two values of one row."""
    return expr.name == "outer_prod"


def _is_gemm_operator(expr: Expr) -> bool:
    return isinstance(expr, Op) and expr.name in GEMM_OPERATORS

"""What recorded values are in terms of the program form: a graph of expressions, shared where values are."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import TYPE_CHECKING, Any

from torch import Tensor

from dacergnn.library_nodes.form import Shape

if TYPE_CHECKING:
    from dacergnn.frontends.symbolic.edges import EdgeSet


_SERIAL = count()


class Expr:
    """A row value of the program form, not yet bound to a row space.

    Args:
        op: "leaf", "const", "gather", "aggregate", "degree", "pair_mean" (1 / number of edges with the same destination
            and type), or an operator of the program form.
        args: The operands.
        data: What else tells it apart: "row" or "one" of a leaf, the number of a constant, the end point ("src",
            "dst") of a gather, end point and reduction of an aggregation, the integers of an operator.
        shape: Row shape without axes of size one, so that there are fewer forms of the same value.
        tensor: What a leaf holds.
    """

    __slots__ = ("args", "data", "edges", "on_edges", "op", "serial", "shape", "tensor", "uniform", "version")

    def __init__(
        self,
        op: str,
        args: tuple[Expr, ...] = (),
        data: tuple[Any, ...] = (),
        shape: Shape = (),
        tensor: Tensor | None = None,
    ) -> None:
        self.op, self.data, self.shape, self.tensor = op, data, shape, tensor
        self.args: tuple[Expr, ...] = args
        self.version = version(tensor)
        self.serial = next(_SERIAL)
        self.edges: EdgeSet | None = None
        """The edges that it depends on by a gather or an aggregation."""
        self.on_edges = False
        """Tells whether it has one row for each edge by a gather; a leaf that does is not known yet."""
        self.uniform = op == "const" or data == ("one",)
        """Tells whether all rows are the same."""
        if args:
            self.edges = next((a.edges for a in args if a.edges is not None), None)
            self.on_edges = True in [a.on_edges for a in args]
            self.uniform = False not in [a.uniform for a in args]

    def becomes_leaf(self, tensor: Tensor) -> None:
        """Hold the computed rows from now on, for everybody that refers to this value."""
        self.op, self.args, self.data, self.tensor = "leaf", (), ("row",), tensor
        self.version = version(tensor)
        self.edges, self.on_edges, self.uniform = None, False, False


def reached(exprs: Iterable[Expr]) -> list[Expr]:
    """Expressions and all that they are made of, operands first."""
    by_serial: dict[int, Expr] = {}
    waiting = list(exprs)
    while waiting:
        expr = waiting.pop()
        if expr.serial not in by_serial:
            by_serial[expr.serial] = expr
            waiting += expr.args
    return [by_serial[serial] for serial in sorted(by_serial)]


def version(tensor: Tensor | None) -> int:
    """Returns how often a tensor was written to; 0 where nobody counts."""
    return 0 if tensor is None or tensor.is_inference() else tensor._version


def const(number: float) -> Expr:
    """The same number in every row."""
    return Expr("const", (), (float(number),))


def squeezed(shape: Shape) -> Shape:
    """Row shape without axes of size one, of a shape with rows in front."""
    return tuple([d for d in shape[1:] if d != 1])

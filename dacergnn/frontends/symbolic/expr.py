"""Expressions of the program form for recorded values: a graph, in which shared values are shared expressions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

from torch import Tensor

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.symbolic.callers import Caller
from dacergnn.frontends.symbolic.edges import EdgeSet
from dacergnn.library_nodes.form import Shape

WITHOUT_GRADIENT = ("detach", "gt", "ge", "eq")
_SERIAL = count()


class Several(frozenset[EdgeSet]):
    """Holds the sets of edges whose values of nodes are added."""


class Expr:
    """Represents a row value of the program form that is not bound to a row space yet.

    Args:
        op: "leaf", "const", "gather", "aggregate", "degree", "pair_mean" (1 / number of edges with the same destination
            and type), or an operator of the program form.
        args: The operands.
        data: Its other parts: "row" or "one" of a leaf, the number of a constant, the end point ("src",
            "dst") of a gather, end point and reduction of an aggregation and, if its rows are no edges, their space;
            the integers of an operator.
        shape: Row shape without axes of size one, so that there are fewer forms of the same value.
        tensor: The tensor of a leaf.
    """

    __slots__ = ("args", "caller", "data", "edges", "on_edges", "op", "serial", "shape", "tensor", "uniform", "version")

    def __init__(
        self,
        op: str,
        args: tuple[Expr, ...] = (),
        data: tuple[Any, ...] = (),
        shape: Shape = (),
        tensor: Tensor | None = None,
    ) -> None:
        self.op, self.shape, self.tensor = op, shape, tensor
        self.data: tuple[Any, ...] = data
        self.args: tuple[Expr, ...] = args
        self.version = version(tensor)
        self.serial = next(_SERIAL)
        self.caller: Caller | None = None
        """The instruction of the layer's code that made it; None for a part of what that made."""
        self.edges: EdgeSet | Several | None = None
        """The edges that it depends on by a gather or an aggregation; a sum of values of nodes may have several."""
        self.on_edges = False
        """Tells whether a gather gives it one row for each edge; for a leaf this is not known yet."""
        self.uniform = op == "const" or data == ("one",)
        """Tells whether all rows are the same."""
        if args:
            self.edges = _edges_of(args)
            self.on_edges = True in [a.on_edges for a in args]
            self.uniform = False not in [a.uniform for a in args]

    def becomes_leaf(self, tensor: Tensor) -> None:
        """Turns the expression into a leaf with its computed rows, also for all expressions that use it."""
        self.op, self.args, self.data, self.tensor = "leaf", (), ("row",), tensor
        self.version = version(tensor)
        self.edges, self.on_edges, self.uniform = None, False, False


def _edges_of(args: Iterable[Expr]) -> EdgeSet | Several | None:
    found = {a.edges: None for a in args if a.edges is not None}
    if len(found) < 2:
        return next(iter(found), None)
    return Several(s for edges in found for s in (edges if isinstance(edges, Several) else (edges,)))


def reached(exprs: Iterable[Expr]) -> list[Expr]:
    """Returns expressions and all of their operands, operands first."""
    by_serial: dict[int, Expr] = {}
    waiting = list(exprs)
    while waiting:
        expr = waiting.pop()
        if expr.serial not in by_serial:
            by_serial[expr.serial] = expr
            waiting += expr.args
    return [by_serial[serial] for serial in sorted(by_serial)]


def settle(expr: Expr) -> None:
    """Finds anew which edges a value of nodes depends on, after some that it is computed from have become leaves."""
    for one in reached([expr]):
        if one.args and one.op not in ("gather", "aggregate"):
            one.edges = _edges_of(one.args)


def with_gradients(exprs: Iterable[Expr]) -> Iterator[Expr]:
    """Yields expressions and all that leads to them by more than detached values."""
    waiting, seen = [*exprs], set[int]()
    while waiting:
        one = waiting.pop()
        if one.op not in WITHOUT_GRADIENT and one.serial not in seen:
            seen.add(one.serial)
            yield one
            waiting += one.args


def has_gradient(expr: Expr) -> bool:
    """Returns whether a tensor that requires a gradient leads to an expression by more than detached values."""
    return any(one.tensor is not None and one.tensor.requires_grad for one in with_gradients([expr]))


def version(tensor: Tensor | None) -> int:
    """Returns how often a tensor was written to; 0 for None and for inference tensors, which do not count it."""
    return 0 if tensor is None or tensor.is_inference() else tensor._version


def check_unwritten(tensor: Tensor | None, before: int) -> None:
    """Raises UnsupportedCallError if a tensor was written to since it had this version."""
    if version(tensor) != before:
        raise UnsupportedCallError("a tensor is written to in place after it has been used.")


def const(number: float) -> Expr:
    """Returns the expression for the same number in every row."""
    return Expr("const", (), (float(number),))


def squeezed(shape: Shape) -> Shape:
    """Returns the row shape of a shape that begins with the rows, without axes of size one."""
    return tuple([d for d in shape[1:] if d != 1])

"""The arguments of a recorded function as operands of the program form."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dacergnn.frontends.symbolic.expr import Expr, Untranslatable, apply, const, squeezed
from dacergnn.frontends.symbolic.value import Value
from dacergnn.library_nodes.form import Shape

if TYPE_CHECKING:
    from dacergnn.frontends.symbolic.trace import Trace


FEW = 32
"""The largest number of parts of a row for which a missing operator is written out part by part."""


class LayerCall:
    """Holds a call that is being recorded: the shapes of its results, and its arguments as operands.

    torch aligns shapes at their ends, the program form at their beginnings. Operands of lower rank than the result
    must agree with its first axes, or hold one row, which torch spreads.
    """

    def __init__(self, trace: Trace, shapes: list[tuple[torch.Size, torch.dtype]], dtype: torch.dtype) -> None:
        self.trace = trace
        self.shapes = [shape for shape, _ in shapes]
        self.shape = self.shapes[0]
        """The shape of the result, or of the first of several results."""
        self.dtype = dtype
        self.call: tuple[Any, ...] = ()
        """The call of torch that computes the result, with nodes for values, if it is not the recorded one."""

    def value(self, argument: Any) -> Expr:
        """Returns the expression of a recorded value; raises Untranslatable for other arguments."""
        if type(argument) is not Value:
            raise Untranslatable
        expr = argument.node.expr
        if argument.node.elements == self.dtype or expr.op == "const":
            return expr
        if expr.tensor is None:
            raise Untranslatable
        tensor = self._converted(expr.tensor)
        return self.trace.leaf(tensor, "row", tensor.shape)

    def elementwise(self, name: str, *arguments: Any) -> Expr:
        """Applies an operator to arguments, which are spread over the shape of the result."""
        return self.fitted(apply(name, *[self.operand(a) for a in arguments]), self.shape)

    def operand(self, argument: Any, shape: torch.Size | None = None) -> Expr:
        """Returns an argument as operand of an element-wise operator with results of a shape, by default the call's."""
        shape = self.shape if shape is None else shape
        if type(argument) is Value:
            expr, own = self.value(argument), argument.node.shape
            if expr.uniform and not expr.shape:
                return expr
            if len(own) != len(shape) or own[:1] != shape[:1]:
                return self._tensor(self.tensor(argument), shape)
            while expr.op == "expand":  # operands are spread anyway
                expr = expr.args[0]
            return expr if _prefix(own[1:], shape[1:]) else _repeated(expr, own[1:], shape[1:])
        if isinstance(argument, Tensor):
            return self._tensor(argument, shape)
        if isinstance(argument, int | float) and not isinstance(argument, bool) and isfinite(argument):
            return const(argument)
        raise Untranslatable

    def fitted(self, expr: Expr, shape: torch.Size) -> Expr:
        """Spreads an expression over the last axes of a shape, where it lacks them."""
        wanted = squeezed(shape)
        if expr.shape == wanted or (expr.uniform and not expr.shape):
            return expr
        return Expr("expand", (expr,), wanted[len(expr.shape) :], wanted)

    def parameter(self, tensor: Any, shape: Shape | None = None) -> Expr:
        """Returns the leaf for a tensor that is the same for all rows, spread over a shape."""
        tensor = self._converted(self.tensor(tensor))
        if shape is not None and tensor.shape != shape:
            tensor = self.trace.torch(Tensor.expand, tensor, shape)
        return self.trace.leaf(tensor, "one", torch.Size((1, *tensor.shape)))

    def tensor(self, argument: Any) -> Tensor:
        """Returns the tensor of an argument; a recorded argument may be a tensor that all rows share."""
        tensor = argument
        if type(argument) is Value:
            waits = argument.node.real is None and argument.node.expr.edges is None
            tensor = self.trace.results(argument) if waits else argument.node.real
        if not isinstance(tensor, Tensor):
            raise Untranslatable
        return tensor

    def _tensor(self, tensor: Tensor, shape: torch.Size) -> Expr:
        tensor = self._converted(tensor)
        own_shape = self.trace.shape(tensor)
        if tensor.dim() == len(shape) and own_shape[0] == shape[0] != 1:
            expr = self.trace.leaf(tensor, "row", own_shape)
            return expr if _prefix(tensor.shape[1:], shape[1:]) else _repeated(expr, tensor.shape[1:], shape[1:])
        own = (1,) * (len(shape) - tensor.dim()) + tuple(own_shape)
        if len(own) != len(shape) or own[0] != 1:
            raise Untranslatable
        if _prefix(own[1:], shape[1:]):
            return self.trace.leaf(tensor, "one", torch.Size(own))
        row = self.trace.torch(Tensor.squeeze, tensor, 0) if tensor.dim() == len(shape) else tensor
        return self.parameter(row, shape[1:])

    def _converted(self, tensor: Tensor) -> Tensor:
        if tensor.layout is not torch.strided or tensor.is_complex():
            raise Untranslatable
        if tensor.device != self.trace.device:
            if tensor.dim() or not tensor.is_cpu:
                raise Untranslatable
            tensor = self.trace.torch(Tensor.to, tensor, self.trace.device)  # as torch does with single numbers
        if tensor.dtype == self.dtype:
            return tensor
        if tensor.dim() and torch.promote_types(tensor.dtype, self.dtype) != self.dtype:
            raise Untranslatable
        return self.trace.torch(Tensor.to, tensor, self.dtype)


def _prefix(own: Shape, full: Shape) -> bool:
    """Returns whether an operand agrees with the first axes of the result; axes of size one do not count."""
    rest = False
    for a, b in zip(own, full, strict=True):
        if b == 1:
            continue
        if a == b and not rest:
            continue
        if a != 1:
            return False
        rest = True
    return True


def _repeated(expr: Expr, own: Shape, full: Shape) -> Expr:
    """Repeats rows that have the last axes of a shape along the axes before these."""
    axes = [(a, b) for a, b in zip(own, full, strict=True) if b != 1]
    count = 0
    while count < len(axes) and axes[count][0] == 1:
        count += 1
    times = prod(b for _, b in axes[:count])
    if times > FEW or any(a != b for a, b in axes[count:]):
        raise Untranslatable
    flat = reshaped(expr, (prod(expr.shape),))
    return reshaped(concat([flat] * times), tuple(b for _, b in axes))


def concat(parts: Sequence[Expr]) -> Expr:
    """Concatenates expressions along the last axis."""
    total, *rest = parts
    for part in rest:
        total = Expr("concat", (total, part), (), (*total.shape[:-1], total.shape[-1] + part.shape[-1]))
    return total


def reshaped(x: Expr, shape: Shape) -> Expr:
    """Returns the numbers of every row in another row shape."""
    if x.shape == shape or (x.uniform and not x.shape):
        return x
    if x.op == "reshape":
        return reshaped(x.args[0], shape)
    return Expr("reshape", (x,), shape, shape)

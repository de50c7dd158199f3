"""Gathers operations that compute each row from the same row into programs, which the compiler fuses and vectorizes.

`Linear`, norms, activations, residuals and concatenations are such operations. They are recorded like those of a layer
(`frontends.symbolic`), with sizes in place of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves

from dacergnn.config import Config
from dacergnn.deploy.network import Array, Constant, RunProgram
from dacergnn.deploy.sizes import Size, size_of
from dacergnn.errors import ProgramError, UnsupportedCallError
from dacergnn.frontends.symbolic.call import Untranslatable
from dacergnn.frontends.symbolic.expr import Expr
from dacergnn.frontends.symbolic.names import Names
from dacergnn.frontends.symbolic.record import apply_rule
from dacergnn.frontends.symbolic.region import region
from dacergnn.frontends.symbolic.table import RULES
from dacergnn.frontends.symbolic.trace import Trace
from dacergnn.frontends.symbolic.value import Value
from dacergnn.graph.profile import TYPICAL
from dacergnn.modules.programs import compiled_program

_ELEMENTS = (torch.float32, torch.float64)


class _Recording:
    """Is the surroundings of a trace: nothing is computed while rows are recorded."""

    tape = None
    names = Names()
    in_torch = False

    def elements(self, device: torch.device) -> tuple[torch.dtype, ...]:
        return _ELEMENTS

    def find_graph(self, edges: Any) -> Any:
        raise Untranslatable

    def run(self, program: Any, graph: Any, arrays: Any) -> Any:
        raise Untranslatable


@dataclass(eq=False)
class Rows:
    """Holds operations over equally many rows that have not become a step yet."""

    count: Size
    values: dict[fx.Node, Value] = field(default_factory=dict[fx.Node, Value])


def _prelu(x: Tensor, weight: Tensor) -> Tensor:
    slope = weight if weight.numel() == 1 else weight.view(1, -1, *[1] * (x.dim() - 2))
    return torch.sub(torch.relu(x), torch.mul(torch.relu(torch.neg(x)), slope))


def _vector_norm(x: Tensor, order: float = 2, dim: Any = None, keepdim: bool = False) -> Tensor:
    if order == 2:
        return torch.sqrt(torch.sum(torch.mul(x, x), dim, keepdim))
    if order == 1:
        return torch.sum(torch.abs(x), dim, keepdim)
    raise Untranslatable


def _batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, variance: Tensor, *rest: Any
) -> Tensor:
    eps = [number for number in rest if isinstance(number, float)][-1]
    scale = (variance + eps).rsqrt() * (1 if weight is None else weight)
    shift = -mean * scale if bias is None else bias - mean * scale
    shape = (1, -1, *[1] * (x.dim() - 2))
    return torch.add(torch.mul(x, scale.view(shape)), shift.view(shape))


def _addmm(bias: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    return torch.add(torch.mm(x, weight), bias)


def _narrow(x: Tensor, dim: int = 0, start: int | None = 0, end: int | None = None, step: int = 1) -> Tensor:
    if step != 1:
        raise Untranslatable
    size = x.shape[dim]
    start, end = _place(start or 0, size), size if end is None else _place(end, size)
    return torch.narrow(x, dim, start, max(end - start, 0))


def _place(index: int, size: int) -> int:
    return min(max(index + size, 0) if index < 0 else index, size)


_FORMS: dict[str, Callable[..., Any]] = {
    "prelu": _prelu,
    "_prelu_kernel": _prelu,
    "linalg_vector_norm": _vector_norm,
    "batch_norm": _batch_norm,
    "_native_batch_norm_legit_no_training": lambda *args: (_batch_norm(*args),),
    "layer_norm": lambda x, shape, weight=None, bias=None, eps=1e-5, *_: F.layer_norm(x, shape, weight, bias, eps),
    "addmm": _addmm,
    "slice": _narrow,
    "split_with_sizes": torch.split,
    "_softmax": lambda x, dim, half: torch.softmax(x, dim),
    "relu6": lambda x: torch.clamp(x, 0.0, 6.0),
    "hardtanh": lambda x, low=-1.0, high=1.0: torch.clamp(x, low, high),
    "rsub": lambda x, y: torch.sub(y, x) if isinstance(y, Tensor) else torch.add(torch.neg(x), y),
    "_unsafe_view": Tensor.view,
}
"""Operations without a rule of their own, as other functions of torch, by their names in ATen."""


def _function(target: Any) -> Callable[..., Any] | None:
    """Returns the function of torch that an operation of ATen stands for, if it may have a form in programs."""
    name: str = target._schema.name.partition("::")[2]
    if name in _FORMS:
        return _FORMS[name]
    for owner in (torch, F, Tensor):
        function = getattr(owner, name, None)
        if function is not None and function in RULES:
            return function
    return None


class RowPrograms:
    """Records operations on rows, and makes steps of them.

    Args:
        constant: Makes a constant of a tensor.
        config: How programs are compiled.
    """

    def __init__(self, constant: Callable[[Tensor], Constant], config: Config) -> None:
        self._constant, self._config = constant, config
        self._trace = Trace(_Recording())  # pyright: ignore[reportArgumentType]
        self._sizes: dict[Any, int] = {}
        self._stand_ins: dict[Array, Value] = {}
        self._arrays: dict[int, Array] = {}
        self._label = ""

    def concrete(self, size: Any) -> int:
        """Returns a number that stands for a size while rows are recorded; different sizes have different numbers."""
        expr = size if isinstance(size, sympy.Expr) else size_of(size)
        for symbol in expr.free_symbols:
            if symbol not in self._sizes:
                self._sizes[symbol] = int(sympy.nextprime(10**6 + 10**4 * len(self._sizes)))
        return int(expr.subs([*self._sizes.items()]))  # pyright: ignore[reportArgumentType]

    def stand_in(self, array: Array) -> Any:
        """Returns what stands for an array: the tensor of a constant, or a value without numbers."""
        if isinstance(array, Constant):
            return array.value
        if array.dtype not in _ELEMENTS or not array.shape:
            raise Untranslatable
        value = self._stand_ins.get(array)
        if value is None:
            # What is made of it, other than a value, shows by its numbers that it is none of the constants.
            number = torch.full((), math.nan, dtype=array.dtype)
            tensor = number.expand([self.concrete(size) for size in array.shape])
            value = self._stand_ins[array] = self._trace.value(tensor)
            self._arrays[id(tensor)] = array
        return value

    def record(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns the value of an operation, a tuple of them for several results.

        Raises:
            Untranslatable: The operation has no form in a program of rows.
        """
        function = _function(target)
        if function is None:
            raise Untranslatable
        with _Recorder(self._trace):
            return function(*args, **kwargs)

    def step(self, rows: Rows, wanted: Sequence[fx.Node], made: Sequence[Array], label: str) -> RunProgram | None:
        """Returns the step that computes the values of some nodes; None if all of them show other arrays.

        Args:
            made: The arrays of these values, which get a source where they show another array.
        """
        self._label = label
        exprs: list[Expr] = []
        places: list[tuple[Array, int]] = []
        for node, array in zip(wanted, made, strict=True):
            expr = rows.values[node].node.expr
            while expr.op == "reshape":
                (expr,) = expr.args
            if expr.op == "leaf":
                array.source, array.start = self._array(expr), sympy.Integer(0)
                continue
            known = [e.serial for e in exprs]
            if expr.serial in known:
                places.append((array, known.index(expr.serial)))
            else:
                places.append((array, len(exprs)))
                exprs.append(expr)
        if not exprs:
            return None
        program, outputs, leaves, _ = region(exprs, bipartite=False, names=Names())
        compiled = compiled_program(program, made[0].dtype, torch.int32, self._config, TYPICAL)
        try:
            results: list[Array | None] = [None] * len(compiled.outputs)
        except ProgramError as error:
            raise UnsupportedCallError(f"{label}: {error.message}") from error
        inputs = dict(zip(compiled.inputs, [self._array(leaf) for leaf in leaves], strict=True))
        for array, place in places:
            position = outputs[place][0]
            first = results[position]
            if first is None:
                results[position] = array
            else:
                array.source, array.start = first, sympy.Integer(0)
        return RunProgram(compiled, None, rows.count, inputs, [r for r in results if r is not None], label)

    def _array(self, leaf: Expr) -> Array:
        tensor = leaf.tensor
        assert tensor is not None
        known = self._arrays.get(id(tensor))
        if known is None:
            if bool(tensor.isnan().any()):
                raise UnsupportedCallError(
                    f"{self._label}: a matrix that the model computes, or a weight that is NaN, has no form in a C "
                    "library here. Use a layer of docs/deployment.md in its place, or export the program with "
                    "torch.export."
                )
            # Held by its leaf, so that no other tensor gets its id.
            known = self._arrays[id(tensor)] = self._constant(tensor)
        return known


class _Recorder(torch.overrides.TorchFunctionMode):
    """Records functions of values by their rules alone: nothing falls back to torch."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        values = [a for a in tree_leaves((args, kwargs)) if type(a) is Value]
        if not values:
            return func(*args, **kwargs)
        if func in (Tensor.dim, Tensor.size) or func.__name__ == "__get__":
            return func(*args, **kwargs)
        rule = RULES.get(func)
        if rule is None:
            raise Untranslatable
        return apply_rule(self._trace, rule, func, args, kwargs, values)

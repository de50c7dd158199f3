"""Collects the steps of a call while it is recorded (`steps.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dacergnn.frontends.frontend import ProgramSource
from dacergnn.frontends.symbolic.sizes import Guard, Number, Role, Size, number
from dacergnn.frontends.symbolic.steps import (
    Extent,
    Input,
    Output,
    Own,
    ProgramRun,
    Slot,
    Step,
    TorchCall,
    slots_made,
)


class Unrepeatable(Exception):
    """Signals that a call does something that the tape has no form for."""


class Tape:
    """Collects the steps of one call while it is recorded.

    Args:
        leaves: Arguments that are tensors or other objects, each with the axes whose sizes may differ in other calls.
        own: Tensors that are the same in all calls, by their ids.
    """

    def __init__(self, leaves: Sequence[tuple[Any, tuple[int, ...]]], own: Mapping[int, Tensor]) -> None:
        self.steps: list[Step] = []
        self.guards: dict[Guard, None] = {}
        self.integers = 0
        """Tells how many of the first steps compute integers and sizes from nothing else."""
        self.problem: str | None = None
        """The reason why the call cannot be repeated, if there is one."""
        self._own = own
        self._leaves = len(leaves)
        self._slots: dict[int, int] = {}
        self._axes: dict[int, tuple[int, ...]] = {}
        self._tensors: list[Any] = []  # holds them, so that their ids stay their own
        self._sizes: dict[Role, Size] = {}
        self._objects = {id(leaf): i for i, (leaf, _) in enumerate(leaves) if not isinstance(leaf, Tensor)}
        for leaf, axes in leaves:
            self._axes[len(self._tensors)] = axes
            self._slots.setdefault(id(leaf), len(self._tensors))
            self._tensors.append(leaf)

    def refuse(self, problem: str) -> None:
        """Notes why the call cannot be repeated; the first reason stays."""
        self.problem = self.problem or problem

    def shape(self, tensor: Tensor) -> torch.Size:
        """Returns the shape of a tensor, with sizes that note what is done with them."""
        slot = self._slots.get(id(tensor))
        axes = () if slot is None else self._axes.get(slot, range(tensor.dim()))
        if slot is None or not axes:
            return tensor.shape
        return torch.Size([self._size(slot, i, n) if i in axes else n for i, n in enumerate(tensor.shape)])

    def _size(self, slot: int, axis: Any, size: int) -> Size:
        role = slot, axis
        if role not in self._sizes:
            self._sizes[role] = Size.of(size, role, self.guards)
        return self._sizes[role]

    def tie(self, tensor: object, axes: Mapping[int, int | None]) -> None:
        """Notes which axes of a tensor may have other sizes in other calls, and what these are, if that is known."""
        slot = self._slots.get(id(tensor))
        if slot is not None:
            self._axes[slot] = tuple([axis for axis, size in axes.items() if size is None or type(size) is Size])
            self._sizes.update({(slot, axis): size for axis, size in axes.items() if type(size) is Size})

    def derived(self, function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any], result: int) -> Size:
        """Notes a number that a function has computed from sizes, and returns it as a size."""
        made = Number(number(result))
        self.steps.append(
            TorchCall(function, self.template(tuple(args)), self.template(dict(kwargs)), (self._slot_for(made),), True)
        )
        return self._size(self._slots[id(made)], 0, result)

    def given(self, leaf: Number) -> Size:
        """Returns a number that the call was given, as a size."""
        return self._size(self._slots[id(leaf)], 0, leaf.shape[0])

    def same_size(self, tensor: Tensor, axis: int, other: Tensor, other_axis: int) -> None:
        """Notes that an axis of a tensor always has the size of an axis of another tensor."""
        slot = self._slots.get(id(tensor))
        size = self.shape(other)[other_axis]
        if slot is not None and type(size) is Size:
            self._sizes[slot, axis] = size

    @property
    def sizes(self) -> dict[Role, int]:
        """Returns the sizes that were asked for, by their roles."""
        return {size.role: number(size) for size in self._sizes.values()}

    def made(self, slot: int) -> object:
        """Returns the tensor or object of a slot."""
        return self._tensors[slot]

    def is_known_early(self, size: int) -> bool:
        """Returns whether a size follows from the arguments and their integers, before any other step."""
        slot = size.role[0] if type(size) is Size else 0
        return slot < self._leaves or any(slot in slots_made(step) for step in self.steps[: self.integers])

    @property
    def slots(self) -> int:
        """Returns how many tensors there are, arguments first."""
        return len(self._tensors)

    def called(self, function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any], result: Any) -> None:
        """Notes that a function of torch was called with tensors that hold numbers."""
        try:
            arguments, options = self.template(tuple(args)), self.template(dict(kwargs))
            results = () if function is Tensor.__setitem__ else self._results(result)
        except Unrepeatable as reason:
            self.refuse(f"{reason} by {_name(function)}")
            return
        self.steps.append(TorchCall(function, arguments, options, results, torch.is_grad_enabled()))

    def _results(self, result: Any) -> tuple[int, ...]:
        if type(result) in (Tensor, torch.nn.Parameter):
            return (self._slot_for(result),)
        if isinstance(result, tuple | list) and all(r is None or type(r) is Tensor for r in result):
            return tuple([self._slot_for(object() if r is None else r) for r in result])
        raise Unrepeatable("numbers are read")

    def _slot_for(self, tensor: object) -> int:
        slot = self._slots.get(id(tensor))
        if slot is None:
            slot = self._slots[id(tensor)] = len(self._tensors)
            self._tensors.append(tensor)
        return slot

    def ran(
        self,
        program: ProgramSource,
        edges: Any,
        inputs: Sequence[tuple[Any, bool]],
        outputs: Sequence[tuple[Tensor, int, bool, Sequence[Tensor]]],
    ) -> None:
        """Notes that a program has run.

        Args:
            edges: An `EdgeForm`, or the graph itself where it has none.
            inputs: Tensors or data of the graph, each with whether its rows are in the order of the user's edges.
            outputs: Tensors, their positions, whether they are in the order of the user's edges, and their views.
        """
        try:
            form = self.template(edges)
            made = [Input(self.reference(x), on) if isinstance(x, Tensor) else Input(None, on, x) for x, on in inputs]
        except Unrepeatable as reason:
            self.refuse(f"{reason} by a program")
            return
        results = [
            Output(position, on, self._slot_for(tensor), tuple([self._view(tensor, v) for v in views]))
            for tensor, position, on, views in outputs
        ]
        self.steps.append(ProgramRun(program, form, tuple(made), tuple(results), torch.is_grad_enabled()))

    def _view(self, tensor: Tensor, view: Tensor) -> tuple[int, tuple[int, ...] | None]:
        return self._slot_for(view), None if view.shape == tensor.shape else tuple(view.shape[1:])

    def reference(self, tensor: Tensor) -> Slot | Own:
        """Returns the `Slot` or `Own` that stands for a tensor."""
        slot = self._slots.get(id(tensor))
        if slot is not None:
            return Slot(slot)
        if id(tensor) in self._own:
            return Own(tensor)
        raise Unrepeatable("a tensor that was made elsewhere is used")

    def template(self, tree: Any) -> Any:
        """Returns a structure with `Slot`, `Own` and `Extent` in place of tensors and sizes."""
        kind = type(tree)
        if isinstance(tree, Tensor):
            return self.reference(tree)
        if kind is Size:
            return Extent(tree.role)
        if id(tree) in self._objects:
            return Slot(self._objects[id(tree)])
        if kind is torch.Size or kind is tuple:
            return tuple([self.template(v) for v in tree])
        if kind is list:
            return [self.template(v) for v in tree]
        if kind is dict:
            return {k: self.template(v) for k, v in tree.items()}
        if kind is slice:
            return slice(*[self.template(v) for v in (tree.start, tree.stop, tree.step)])
        if hasattr(kind, "_fields"):
            return kind(*map(self.template, tree))
        if isinstance(tree, tuple | list):  # of torch, as the results of max
            return [self.template(v) for v in tree]
        return tree


def _name(function: Any) -> str:
    """Returns the name by which users know a function of torch, or an attribute of tensors."""
    name = function.__self__.__name__ if function.__name__ == "__get__" else function.__name__
    return f"torch.Tensor.{name}" if hasattr(Tensor, name) else f"torch.{name}"

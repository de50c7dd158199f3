"""Holds what recorded values, and the edges between them, know of the call that records them, and tell it."""

from __future__ import annotations

import operator
import weakref
from abc import ABC, abstractmethod
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.symbolic.sizes import Size, number
from dacergnn.frontends.symbolic.tape import Tape

_functorch_level: Any = torch._C._functorch.maybe_current_level  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage]


def transforms() -> tuple[int | None, int]:
    """Returns the levels of torch.func's transforms and of forward differentiation."""
    return _functorch_level(), forward_ad._current_level  # pyright: ignore[reportPrivateUsage]


class Notes(ABC):
    """Holds the modes and the device of a call that is recorded, and notes on a tape what its results depend on.

    Args:
        tape: Notes the steps of the call, so that it can be repeated; None if it is not to be repeated.
    """

    def __init__(self, tape: Tape | None) -> None:
        self.tape = tape
        self.grad, self._inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        self.values: list[weakref.ref[Any]] = []
        """Weak references to all values."""
        self._arguments: dict[int, tuple[Tensor, Tensor]] = {}
        """Tensors that were passed to the call, by their ids, each with what stands for it."""
        self._products: dict[object, int] = {}
        self._device: torch.device | None = None

    @abstractmethod
    def results(self, tree: Any) -> Any:
        """Replaces all values and end points in a structure with tensors."""

    def in_use(self) -> list[Any]:
        """Returns the values that something of the call still holds."""
        return [value for reference in self.values if (value := reference()) is not None]

    @contextmanager
    def outermost(self) -> Generator[None]:
        """Sets the modes of gradients and of inference that the call began in: values wait longer than the layer's own.

        What is recorded without gradients is detached in the program.
        """
        if torch.is_inference_mode_enabled() == self._inference and torch.is_grad_enabled() == self.grad:
            yield
            return
        with torch.inference_mode(self._inference), torch.set_grad_enabled(self.grad):
            yield

    def given(self, tensor: Tensor | None) -> bool:
        """Returns whether a tensor was passed to the call, so that the caller may hold it."""
        return id(tensor) in self._arguments

    def place(self, device: torch.device) -> None:
        """Notes the device of an object of the call, which must be the same for all."""
        if self._device is None:
            self._device = device
        elif self._device != device:
            raise UnsupportedCallError(
                f"there are tensors on {self._device} and on {device}; move them to one device with .to()."
            )

    def shape(self, tensor: Tensor) -> torch.Size:
        """Returns the shape of a tensor; the tape notes the uses of sizes that may differ in other calls."""
        tape = self.tape
        return tensor.shape if tape is None else tape.shape(tensor)

    def times(self, a: int, b: int) -> int:
        """Returns a product of sizes, which the tape notes as a size of its own."""
        result, tape = number(a) * number(b), self.tape
        if tape is None or not (type(a) is Size or type(b) is Size):
            return result
        key = tuple(sorted([str(size.role) if type(size) is Size else str(size) for size in (a, b)]))
        if key not in self._products:
            self._products[key] = tape.derived(operator.mul, (a, b), {}, result)
        return self._products[key]

    def torch(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls a function of torch on tensors that hold numbers; the tape notes the call."""
        result = function(*args, **kwargs)
        if self.tape is not None:
            self.tape.called(function, args, kwargs, result)
        return result

    def same_size(self, tensor: Tensor, axis: int, other: Tensor, other_axis: int) -> None:
        """Notes that an axis of a tensor always has the size of an axis of another tensor."""
        if self.tape is not None:
            self.tape.same_size(tensor, axis, other, other_axis)

    def once(self, reason: str) -> None:
        """Notes why the call cannot be repeated."""
        if self.tape is not None:
            self.tape.refuse(reason)

    @property
    def device(self) -> torch.device:
        """Returns the device of the tensors of the call."""
        return self._device or torch.device("cpu")

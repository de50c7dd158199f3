"""Arguments that are written to between a call and its backward, as by ``x += layer(x)``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from dacergnn.modules.autograd import Invocation

Watched = tuple[int, Tensor, int]
"""Position of an argument, a tensor that shares its memory and its version, and the version at the call."""


class Writes:
    """Learns which arguments of a layer's steps are written to before the backward, and hands out copies of these.

    A reordered program may read features in its backward that the original reads no more. The first step copies all
    hidden features; its backward tells which of them the user has written to, and later steps copy no others.
    """

    def __init__(self) -> None:
        self._written: dict[Any, frozenset[int]] = {}

    def protected(self, invocation: Invocation, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """Returns the arguments of a step, with copies in place of those that may be written to."""
        written = self._written.get((invocation.program, invocation.mask))
        if written is not None and not written:
            return inputs
        result = list(inputs)
        for position in invocation.variant.kept if written is None else written:
            tensor = inputs[position]
            if tensor.is_leaf:
                continue  # parameters, which autograd lets nobody write to, and data that models compute nothing of
            result[position] = tensor.clone()
            invocation.watched.append((position, tensor.detach(), tensor._version))
        return result

    def note(self, invocation: Invocation) -> None:
        """Learns from a backward which arguments have been written to since the call."""
        key = invocation.program, invocation.mask
        found = {position for position, tensor, version in invocation.watched if tensor._version != version}
        self._written[key] = self._written.get(key, frozenset()) | found
        invocation.watched.clear()

    def expect(self, invocation: Invocation) -> None:
        """Has later steps copy all hidden features, since an argument that was not copied has been written to."""
        self._written.pop((invocation.program, invocation.mask), None)

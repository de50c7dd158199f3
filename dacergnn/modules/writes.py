"""Arguments that are written to between a call and its backward, as by ``x += layer(x)``."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence

from torch import Tensor

Watched = tuple[int, Tensor, int]
"""Position of an argument, a tensor that shares its memory and its version, and the version at the call."""


class Writes:
    """Learns which arguments of a layer's steps are written to before the backward, and hands out copies of these.

    A reordered program may read features in its backward that the original reads no more. The first step copies all
    hidden features; its backward tells which of them the user has written to, and later steps copy no others. Steps
    with the same key are alike.
    """

    def __init__(self) -> None:
        self._written: dict[Hashable, frozenset[int]] = {}

    def protected(
        self, key: Hashable, kept: Collection[int], inputs: Sequence[Tensor]
    ) -> tuple[Sequence[Tensor], list[Watched]]:
        """Returns the arguments of a step, with copies in place of those that may be written to, and what was copied.

        Args:
            kept: The positions of the arguments that the backward reads.
        """
        watched: list[Watched] = []
        written = self._written.get(key)
        if written is not None and not written:
            return inputs, watched
        result = list(inputs)
        for position in kept if written is None else written:
            tensor = inputs[position]
            if tensor.is_leaf:
                continue  # parameters, which autograd lets nobody write to, and data that models compute nothing of
            result[position] = tensor.clone()
            watched.append((position, tensor.detach(), tensor._version))
        return result, watched

    def note(self, key: Hashable, watched: Sequence[Watched]) -> None:
        """Learns from a backward which arguments have been written to since the call."""
        found = {position for position, tensor, version in watched if tensor._version != version}
        self._written[key] = self._written.get(key, frozenset()) | found

    def expect(self, key: Hashable) -> None:
        """Has later steps copy all hidden features, since an argument that was not copied has been written to."""
        self._written.pop(key, None)

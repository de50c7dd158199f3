"""Describes arrays of a program that calls pass in parts, such as one tensor for each type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from dacergnn.runtime.typed_rows import join_rows

Gate = Callable[[Tensor, Sequence[int]], None]
"""A function of an array that torch has joined from parts, and of the positions of these parts."""


@dataclass(frozen=True)
class Stack:
    """Describes arrays that are made of the same parts.

    Args:
        names: The arrays. Each part holds an equal share of every array, one share after the other.
        count: Number of parts.
        typed: A part is one row of each array. Otherwise there is one array, and each part holds some of its rows, as
            in `torch.cat`.
    """

    names: tuple[str, ...]
    count: int
    typed: bool = True


class Stacks:
    """Describes how a list of tensors makes up arrays; objects compare by identity, so get one from `stacks_of`."""

    def __init__(self, stacks: Sequence[Stack]) -> None:
        self.stacks = tuple(stacks)
        self.names = frozenset(name for stack in stacks for name in stack.names)
        self.count = sum(stack.count for stack in stacks)

    def split(self, parts: Sequence[Tensor]) -> list[tuple[Stack, Sequence[Tensor]]]:
        """Returns the stacks, each with its parts."""
        pairs: list[tuple[Stack, Sequence[Tensor]]] = []
        start = 0
        for stack in self.stacks:
            pairs.append((stack, parts[start : start + stack.count]))
            start += stack.count
        return pairs

    def arrays(self, parts: Sequence[Tensor], gate: Gate | None = None) -> dict[str, Tensor]:
        """Returns the arrays, which torch joins, so that autograd reaches the parts.

        Args:
            gate: Called with the joined array of each stack.
        """
        arrays: dict[str, Tensor] = {}
        start = 0
        for stack, own in self.split(parts):
            joined = torch.stack(list(own)) if stack.typed else join_rows(own)
            if gate is not None:
                gate(joined, range(start, start + stack.count))
            start += stack.count
            if len(stack.names) == 1:
                arrays[stack.names[0]] = joined
            else:
                shares = joined.unflatten(1, (len(stack.names), -1)).transpose(0, 1).contiguous()
                arrays.update(zip(stack.names, shares, strict=True))
        return arrays


@lru_cache(maxsize=1024)
def stacks_of(*stacks: Stack) -> Stacks:
    """Returns one object for equal stacks, so that layers share what is prepared for them."""
    return Stacks(stacks)

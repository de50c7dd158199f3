"""Arrays of a program that a call has in parts: one tensor for each type, say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from dacergnn.runtime.typed_rows import join_rows

Gate = Callable[[Tensor, Sequence[int]], None]
"""Takes what torch has made of some parts, and the positions of these."""


@dataclass(frozen=True)
class Stack:
    """Arrays that are made of the same parts.

    Args:
        names: The arrays. Each part holds the same share of every one, one share after the other.
        count: How many parts there are.
        typed: A part is one row of each array. Otherwise there is one array, and parts are some of its rows, as
            `torch.cat` takes them.
    """

    names: tuple[str, ...]
    count: int
    typed: bool = True


class Stacks:
    """Describes how a list of tensors makes up arrays of a program; compared by identity, get one from `stacks_of`."""

    def __init__(self, stacks: Sequence[Stack]) -> None:
        self.stacks = tuple(stacks)
        self.names = frozenset(name for stack in stacks for name in stack.names)
        self.count = sum(stack.count for stack in stacks)

    def split(self, parts: Sequence[Tensor]) -> list[tuple[Stack, Sequence[Tensor]]]:
        """The parts of each stack."""
        pairs: list[tuple[Stack, Sequence[Tensor]]] = []
        start = 0
        for stack in self.stacks:
            pairs.append((stack, parts[start : start + stack.count]))
            start += stack.count
        return pairs

    def arrays(self, parts: Sequence[Tensor], gate: Gate | None = None) -> dict[str, Tensor]:
        """The arrays, put together by torch, so that autograd reaches the parts.

        Args:
            gate: Is shown what each stack is joined to.
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
    """The one object for some stacks, so that layers with equal ones share what is prepared for them."""
    return Stacks(stacks)

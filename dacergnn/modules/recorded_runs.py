"""Keeps what autograd has recorded of runs inside operators, until their backwards.

An operator returns tensors alone. So it returns a token besides its results: a tensor that stands for a run, which
lives as long as torch holds the memory of the token. The run of a token that was copied is not found any more.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from dacergnn.modules.saved_arrays import is_retained

_C: Any = torch._C  # pyright: ignore[reportPrivateUsage]


@contextmanager
def recording() -> Generator[None]:
    """Lets autograd record what runs within the context, also inside of an operator, where it sees nothing else."""
    with torch.enable_grad(), _C._SetExcludeDispatchKeyGuard(_C.DispatchKey.AutogradFunctionality, False):
        yield


class RecordedRun:
    """Holds the graph that leads from the results of a run to the inputs that need gradients.

    Args:
        given: All inputs of the operator.
        leaves: What the run has taken in place of the inputs that need gradients, by their positions.
        results: The results, whose memory is not kept.
    """

    def __init__(self, given: Sequence[Tensor], leaves: dict[int, Tensor], results: Sequence[Tensor]) -> None:
        self._places = [_place(t) for t in given]
        self._leaves = leaves
        self._edges = [get_gradient_edge(t) if t.requires_grad else None for t in results]

    def covers(self, given: Sequence[Tensor], wanted: Sequence[int]) -> bool:
        """Tells whether the run has read these very inputs, and leads to those at the positions ``wanted``.

        A program that torch has compiled may compute an input again for the backward, and reuse its memory meanwhile.
        """
        return self._places == [_place(t) for t in given] and self._leaves.keys() >= {*wanted}

    def gradients(self, wanted: Sequence[int], seeds: Sequence[Tensor]) -> list[Tensor]:
        """Returns the gradients of the inputs at the positions ``wanted`` for those of the results."""
        leaves = [self._leaves[i] for i in wanted]
        pairs = [(edge, seed) for edge, seed in zip(self._edges, seeds, strict=True) if edge is not None]
        if not pairs:
            return [t.new_zeros(t.shape) for t in leaves]
        edges, seeds = zip(*pairs, strict=True)
        found: Any = torch.autograd.grad(edges, leaves, seeds, is_retained(), allow_unused=True)
        found = [t.new_zeros(t.shape) if g is None else g.data for t, g in zip(leaves, found, strict=True)]
        return owned(found)


def owned(tensors: list[Tensor]) -> list[Tensor]:
    """Returns contiguous tensors that share no memory, as operators must; copies where something else holds it.

    Args:
        tensors: Tensors that are no views; the caller holds their memory by nothing else.
    """
    return [
        t if t.is_contiguous() and _is_alone(t) else t.clone(memory_format=torch.contiguous_format) for t in tensors
    ]


def _is_alone(tensor: Tensor) -> bool:
    """Tells whether a tensor has its memory to itself, which not even a graph has saved."""
    storage: Any = tensor.untyped_storage()
    whole = storage.nbytes() == tensor.nbytes
    return whole and _C._storage_Use_Count(storage._cdata) <= 2  # those of the tensor, and of ``storage``


def _place(tensor: Tensor) -> int | None:
    return tensor.data_ptr() if tensor.layout is torch.strided else None


class _Token(ctypes.c_int64):
    """Represents the memory of a token, which torch holds as long as any tensor shows it."""

    memory: Tensor
    """Is at the place that torch expects of its own tensors, a multiple of 64."""
    run: RecordedRun


_TOKENS: weakref.WeakValueDictionary[int, _Token] = weakref.WeakValueDictionary()


def token_of(run: RecordedRun) -> Tensor:
    """Returns a tensor by whose place in memory `take_run` finds a run."""
    memory = torch.zeros(1, dtype=torch.int64)
    token = _Token.from_address(memory.data_ptr())
    token.memory, token.run = memory, run
    _TOKENS[memory.data_ptr()] = token
    return torch.frombuffer(token, dtype=torch.int64)


def take_run(tensor: Tensor) -> RecordedRun | None:
    """Returns the run of a token, and forgets it unless the running backward may run again; None if it is gone."""
    token = _TOKENS.get(tensor.data_ptr())
    if token is None:
        return None
    run = token.run
    if not is_retained():
        del _TOKENS[tensor.data_ptr()], token.run
    return run

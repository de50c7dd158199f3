"""Tells whether tensors of edges have changed since a graph was made of them (docs/graphs.md, "Graphs that change")."""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Sequence
from operator import is_
from typing import Any

import torch
from torch import Tensor

from dacergnn.config import CheckGraph
from dacergnn.native import calls
from dacergnn.native.exchange import DESCRIBE

_SMALL = 1 << 15
"""Bytes up to which a checksum costs no more than a sample."""
_SAMPLE = 64
_VERSION = "_version"


class Seen:
    """Describes tensors at one moment: their identity, address, shape and version, and numbers in them.

    Args:
        tensors: Dense or sparse tensors, which are not kept alive.
        check: When all numbers are compared, by a checksum: always, never, or only if torch may miss writes. In the
            last case a sample is compared otherwise.
        shared: Others may write to the memory of the tensors without being counted by torch.
    """

    def __init__(self, tensors: Sequence[Tensor], check: CheckGraph = "auto", *, shared: bool = False) -> None:
        self._references = [weakref.ref(t) for t in tensors]
        self._plain = all(type(t) is Tensor and t.layout is torch.strided for t in tensors)
        tensors = [*tensors] if self._plain else self._parts(tensors)
        self._numbers: array[int] | None = None
        self._forms: list[Any] = []
        self._steps = steps = [checked_step(tensor, check, shared=shared) for tensor in tensors]
        self._sampled = [i for i, step in enumerate(steps) if step > 1]
        if DESCRIBE is not None:
            numbers = array("q", [DESCRIBE, id(_VERSION), len(tensors)])
            for tensor, step in zip(tensors, steps, strict=True):
                numbers.extend([step, *[0] * (5 + 2 * tensor.dim() + (step > 0))])
            self._address, self._same = numbers.buffer_info()[0], calls.function("same_edges")
            if self._same(tensors, self._address, True):
                self._numbers = numbers
        if self._numbers is None:
            self._forms = [*map(_form, tensors, steps)]

    @property
    def is_alive(self) -> bool:
        """Tells whether all of the tensors still exist."""
        return all(reference() is not None for reference in self._references)

    def same(self, tensors: Sequence[Tensor]) -> bool:
        """Tells whether these are the very same tensors, and nobody has written to them."""
        known = [r() for r in self._references]
        return len(tensors) == len(known) and all(map(is_, tensors, known)) and self.unwritten(tensors)

    def unwritten(self, tensors: Sequence[Tensor]) -> bool:
        """Tells whether tensors have the same content as these had, in the same memory."""
        parts = [*tensors] if self._plain else self._parts(tensors)
        if len(parts) != len(self._steps) or any(is_taken(parts[i]) for i in self._sampled):
            return False
        if self._numbers is None:
            return [*map(_form, parts, self._steps)] == self._forms
        return self._same(parts, self._address, False)

    def _parts(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Returns the dense tensors that hold the numbers."""
        return [part for t in tensors for part in _parts_of(t)]


def _parts_of(tensor: Tensor) -> Sequence[Tensor]:
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout is torch.sparse_csr:
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout is torch.sparse_csc:
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    as_tensor: Any = getattr(tensor, "as_tensor", None)  # of PyG's indices, which wrap a tensor
    return (tensor if as_tensor is None else as_tensor(),)


def checked_step(tensor: Tensor, check: CheckGraph, *, shared: bool = False) -> int:
    """Returns the step between numbers of a tensor that are compared, 0 if none are (see `Seen`)."""
    if check == "never" or not tensor.is_cpu:
        return 0
    if check == "always" or shared or tensor.nbytes <= _SMALL or not _counts_writes(tensor):
        return 1
    return max(1, tensor.numel() // _SAMPLE)


def is_taken(tensor: Tensor) -> bool:
    """Tells whether others share the memory of a tensor, as NumPy does once an array of it has been made.

    Then torch no longer counts all writes, and comparing a sample of the numbers is not enough.
    """
    return not tensor.untyped_storage().resizable()


def _counts_writes(tensor: Tensor) -> bool:
    """Tells whether torch counts all writes to a tensor: NumPy or other processes may share its memory."""
    if tensor.is_inference():
        return False
    return not is_taken(tensor) and not tensor.untyped_storage().is_shared()


def _form(tensor: Tensor, step: int) -> list[object]:
    """Returns what `same_edges` compares, where torch cannot describe the tensor to C code."""
    version = None if tensor.is_inference() else tensor._version
    try:
        form: list[object] = [tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, version]
        if step:  # of a copy, or NumPy would share the memory from then on
            numbers = tensor.detach().flatten()[::step].clone().view(torch.uint8)
            form.append(hash(numbers.numpy().tobytes()))
        return form
    except RuntimeError:  # a sparse tensor, or a tensor without memory
        return [tensor.shape, tensor.dtype, version]

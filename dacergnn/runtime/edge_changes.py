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

_VERSION = "_version"


class Seen:
    """Describes tensors at one moment: their identity, address, shape and version, and numbers in them.

    Args:
        tensors: Dense or sparse tensors, which are not kept alive.
        check: Whether all numbers are compared, by a checksum.
    """

    def __init__(self, tensors: Sequence[Tensor], check: CheckGraph = "always") -> None:
        self._references = [weakref.ref(t) for t in tensors]
        self._plain = all(type(t) is Tensor and t.layout is torch.strided for t in tensors)
        tensors = [*tensors] if self._plain else self._parts(tensors)
        self._numbers: array[int] | None = None
        self._forms: list[Any] = []
        self._compared = [is_compared(tensor, check) for tensor in tensors]
        if DESCRIBE is not None:
            numbers = array("q", [DESCRIBE, id(_VERSION), len(tensors)])
            for tensor, compared in zip(tensors, self._compared, strict=True):
                numbers.extend([compared, *[0] * (5 + 2 * tensor.dim() + compared)])
            self._address, self._same = numbers.buffer_info()[0], calls.function("same_edges")
            if self._same(tensors, self._address, True):
                self._numbers = numbers
        if self._numbers is None:
            self._forms = [*map(_form, tensors, self._compared)]

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
        if len(parts) != len(self._compared):
            return False
        if self._numbers is None:
            return [*map(_form, parts, self._compared)] == self._forms
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


def is_compared(tensor: Tensor, check: CheckGraph) -> bool:
    """Tells whether the numbers of a tensor are compared (see `Seen`): those of devices would have to be waited for."""
    return check == "always" and tensor.is_cpu


def _form(tensor: Tensor, compared: bool) -> list[object]:
    """Returns what `same_edges` compares, where torch cannot describe the tensor to C code."""
    version = None if tensor.is_inference() else tensor._version
    try:
        form: list[object] = [tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, version]
        if compared:  # of a copy, since torch would allow no change of its size while NumPy shares the memory
            numbers = tensor.detach().flatten().clone().view(torch.uint8)
            form.append(hash(numbers.numpy().tobytes()))
        return form
    except RuntimeError:  # a sparse tensor, or a tensor without memory
        return [tensor.shape, tensor.dtype, version]

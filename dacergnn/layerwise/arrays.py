"""Rows that are read from arrays in memory or in files, and results that are written there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dacergnn.errors import ArrayError
from dacergnn.scratch import zeros_in_file

Array = Tensor | npt.NDArray[Any]
Target = Array | str | os.PathLike[str]


def check_array(name: str, array: object) -> None:
    """Raises ArrayError unless rows can be taken of this array."""
    if not isinstance(array, Tensor | np.ndarray):
        raise ArrayError(name, f"is a {type(array).__name__}; give a tensor or a NumPy array, which may lie in a file")
    if isinstance(array, Tensor) and array.layout != torch.strided:
        raise ArrayError(name, f"is a {array.layout} tensor; give a dense one")
    if array.ndim == 0:
        raise ArrayError(name, "is a single number; give an array with a row for each node or edge")
    if isinstance(array, np.ndarray):
        try:
            torch.from_numpy(np.empty(0, array.dtype))
        except (TypeError, ValueError):
            raise ArrayError(name, f"has elements of type {array.dtype}, which torch does not have") from None


def element_type(array: Array) -> torch.dtype:
    """Returns the type of an array's elements, as torch names it."""
    return array.dtype if isinstance(array, Tensor) else torch.from_numpy(np.empty(0, array.dtype)).dtype


def take(array: Array, rows: Tensor, device: torch.device) -> Tensor:
    """Returns some rows of an array on a device; nothing else of the array is read."""
    if isinstance(array, Tensor):
        return array[rows.to(array.device)].to(device)
    return torch.from_numpy(array[rows.cpu().numpy()]).to(device)


class Results:
    """Holds the results for all nodes of a type; their shape is known once the first of them are written.

    Args:
        rows: The number of nodes.
        target: An array or the path of a ``.npy`` file that takes the results; None for a tensor in memory.
        scratch: A folder for a temporary file in place of memory; None for memory.
        device: The device of a tensor in memory.
    """

    def __init__(self, rows: int, target: Target | None, scratch: Path | None, device: torch.device) -> None:
        self._rows, self._target, self._scratch, self._device = rows, target, scratch, device
        self._partial: Path | None = None
        self._written: Tensor | None = None

    def write(self, start: int, rows: Tensor) -> None:
        """Writes the results of the nodes from ``start`` on.

        Raises:
            ArrayError: The given array has another shape or dtype, or a file cannot have this dtype.
        """
        if self._written is None:
            self._written = self._allocated((self._rows, *rows.shape[1:]), rows.dtype)
        self._written[start : start + len(rows)] = rows.to(self._written.device)

    @property
    def rows(self) -> Tensor:
        """Returns what is written by now."""
        assert self._written is not None
        return self._written

    def finished(self) -> Tensor:
        """Returns the results; a file gets its name only now, so that it is never seen half written."""
        if self._partial is not None and isinstance(self._target, str | os.PathLike):
            self._partial.replace(self._target)
            self._partial = None
        return self.rows

    def drop(self) -> None:
        """Removes a file that was not finished."""
        if self._partial is not None:
            self._partial.unlink(missing_ok=True)

    def _allocated(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        if isinstance(self._target, str | os.PathLike):
            return self._in_named_file(Path(self._target), shape, dtype)
        if self._target is not None:
            tensor = self._target if isinstance(self._target, Tensor) else torch.from_numpy(self._target)
            if tensor.shape != shape or tensor.dtype != dtype:
                asked = f"{tensor.dtype} {list(tensor.shape)}"
                raise ArrayError("out", f"is {asked}, but the results are {dtype} {list(shape)}")
            return tensor
        if self._scratch is not None:
            return zeros_in_file(self._scratch, shape, dtype)
        return torch.empty(shape, dtype=dtype, device=self._device)

    def _in_named_file(self, path: Path, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        try:
            elements = torch.empty(0, dtype=dtype).numpy().dtype
        except TypeError:
            raise ArrayError("out", f"cannot be a .npy file of {dtype}; give a tensor") from None
        self._partial = path.with_name(path.name + ".partial")
        return torch.from_numpy(np.lib.format.open_memmap(self._partial, "w+", elements, shape))


def share_memory(a: Array, b: Array) -> bool:
    """Returns whether two arrays lie in the same memory or the same file."""
    files = [getattr(array, "filename", None) for array in (a, b)]
    (start, stop), (other_start, other_stop) = _span(a), _span(b)
    return (files[0] is not None and files[0] == files[1]) or max(start, other_start) < min(stop, other_stop)


def _span(array: Array) -> tuple[int, int]:
    if isinstance(array, Tensor):
        storage = array.untyped_storage()
        return storage.data_ptr(), storage.data_ptr() + storage.nbytes()
    return array.ctypes.data, array.ctypes.data + array.nbytes

"""Reads the arrays of a dataset file, and checks each array when it is taken."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any, NoReturn
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
import torch
from numpy.lib.npyio import NpzFile
from torch import Tensor

from dacergnn.errors import DatasetError
from dacergnn.graph.formats import largest_array

Array = npt.NDArray[Any]
_UNREADABLE = (OSError, ValueError, EOFError, RuntimeError, MemoryError, BadZipFile, zlib.error)
"""Errors of NumPy for files that are damaged or encrypted, or have an array that is larger than the memory."""


class Archive:
    """Holds the arrays of an `.npz` file; raises DatasetError with the file and the array if one is invalid."""

    def __init__(self, path: Path) -> None:
        """Reads all arrays."""
        self.path = path
        try:
            with path.open("rb") as stream:
                self._arrays = _arrays(np.load(stream, allow_pickle=False))
        except _UNREADABLE as error:
            raise DatasetError(f"{path} cannot be read ({error}); replace the file.") from error

    def __contains__(self, key: str) -> bool:
        return key in self._arrays

    @property
    def left(self) -> tuple[str, ...]:
        """Returns the names of the arrays that have not been taken."""
        return tuple(self._arrays)

    def fail(self, key: str, problem: str) -> NoReturn:
        """Raises DatasetError for an array."""
        raise DatasetError(f"{self.path}: {key} {problem}; correct or replace the file.")

    def check_room(self, key: str, cells: int, width: int) -> None:
        """Raises DatasetError if the ``cells`` of ``width`` bytes that an array describes do not fit into memory."""
        if cells * width > largest_array():
            self.fail(key, f"asks for {cells * width / 2**30:,.0f} GiB, more than half of the memory of this machine")

    def names(self, key: str) -> list[str]:
        """Takes strings, which must all differ."""
        names = [str(name) for name in self._take(key, "U", 1, "strings")]
        twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
        if twice is not None:
            self.fail(key, f"holds {twice!r} twice")
        return names

    def string(self, key: str) -> str:
        """Takes one string."""
        return str(self._take(key, "U", 0, "a string"))

    def integers(
        self, key: str, *, length: int | None = None, least: int = 0, limit: int | None = None, what: str = ""
    ) -> Tensor:
        """Takes int64 [length] with numbers from ``least`` on, below ``limit``; ``what`` names them in errors."""
        values = self._take(key, "iu", 1, "integers")
        if length is not None and len(values) != length:
            self.fail(key, f"has {len(values)} entries; it must have {length} ({what})")
        if len(values):
            low, high = int(values.min()), int(values.max())
            if low < least:
                self.fail(key, f"holds {low}; it must hold no less than {least}")
            if limit is not None and high >= limit:
                self.fail(key, f"holds {high}, but there are {limit} {what}")
            if high > np.iinfo(np.int64).max:
                self.fail(key, f"holds {high}, which has more than 63 bits")
        return torch.from_numpy(values.astype(np.int64))

    def numbers(self, key: str, dimensions: int) -> Array:
        """Takes real numbers, as float32."""
        return self._take(key, "iufb", dimensions, "real numbers").astype(np.float32)

    def other_integers(self) -> dict[str, Tensor]:
        """Takes all remaining arrays of integers, of any shape."""
        keys = [key for key, values in self._arrays.items() if values.dtype.kind in "iu"]
        return {key: torch.from_numpy(self._arrays.pop(key).astype(np.int64)) for key in keys}

    def _take(self, key: str, kinds: str, dimensions: int, meaning: str) -> Array:
        values = self._arrays.pop(key)
        if values.dtype.kind not in kinds or values.ndim != dimensions:
            row = {0: "", 1: " in one dimension", 2: " in two dimensions"}[dimensions]
            self.fail(key, f"has dtype {values.dtype} and shape {list(values.shape)}; it must hold {meaning}{row}")
        return values


def _arrays(file: object) -> dict[str, Array]:
    """Returns all arrays of an archive, without other members; raises ValueError for other files that NumPy reads."""
    if not isinstance(file, NpzFile):
        raise ValueError("it is a lone array, no archive of arrays as numpy.savez makes")
    members: dict[str, Any] = {key: file[key] for key in file.files}
    return {key: values for key, values in members.items() if isinstance(values, np.ndarray)}

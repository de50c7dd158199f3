"""Checks index arrays, with errors that name the argument, the first wrong position and the remedy."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence, Set
from reprlib import repr as short
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dacergnn.errors import ArrayError, GraphError
from dacergnn.graph import native_sorting, sorting
from dacergnn.graph.sorting import INT64_LIMIT

DEVICES = ("cpu", "cuda")
"""Types of devices for which there are kernels."""


def has_kernels(device: torch.device) -> bool:
    """Tells whether layers run on a device."""
    return device.type in DEVICES


def as_index_vector(name: str, values: object) -> Tensor:
    """Returns `values` (torch or NumPy, 1-D, int32 or int64) as a torch tensor, in the same memory if possible."""
    if isinstance(values, np.ndarray):
        values = _from_numpy(name, cast("npt.NDArray[Any]", values))
    if not isinstance(values, Tensor):
        raise ArrayError(name, f"must be a torch tensor or a NumPy array, got {type(values).__name__}")
    if values.dtype not in (torch.int32, torch.int64):
        raise ArrayError(name, f"has dtype {values.dtype}; indices must be int32 or int64, convert with .long()")
    if values.layout is not torch.strided:
        raise ArrayError(name, f"has the layout {values.layout}; convert it with .to_dense()")
    if values.ndim != 1:
        raise ArrayError(name, f"has shape {list(values.shape)}; it must have one dimension")
    return values if type(values) is Tensor else values.detach()  # a parameter, say


def as_count(name: str, value: object, things: str, argument: object = None) -> int:
    """Returns `value` as a count, such as of nodes; raises GraphError unless it is an integer from 0 on.

    Args:
        things: The name of one counted thing, such as "node".
        argument: The argument that contains the value, for the error message; the value itself if None.
    """
    try:
        count = None if isinstance(value, bool) else operator.index(cast("Any", value))
    except (TypeError, ValueError, RuntimeError):  # torch refuses tensors that hold no integer by any of these
        count = None
    if count is not None and 0 <= count < INT64_LIMIT:
        return count
    shown = short(value if argument is None else argument)
    if count is None:
        raise GraphError(f"{name} is {shown}; pass an integer.")
    if count < 0:
        raise GraphError(f"{name} is {shown}; {things} counts cannot be negative.")
    raise GraphError(f"{name} is {shown}; indices have 64 bits, so pass the number that there really are.")


def as_names(name: str, values: object) -> tuple[str, ...] | None:
    """Returns `values` as names of types, None for None; raises GraphError unless they are strings in a sequence."""
    if values is None:
        return None
    if isinstance(values, str | bytes | Mapping | Set) or not isinstance(values, Iterable):
        raise GraphError(f"{name} is {short(values)}; pass a list with one name for each type.")
    names: tuple[Any, ...] = tuple(values)
    for position, entry in enumerate(names):
        if not isinstance(entry, str):
            raise GraphError(f"{name} holds {short(entry)} at position {position}; names are strings.")
    return names


def as_flag(name: str, value: object) -> bool:
    """Returns `value` as a bool; raises GraphError for other types, since any nonempty string would be true."""
    if not isinstance(value, bool | np.bool_):
        raise GraphError(f"{name} is {short(value)}; pass True or False.")
    return bool(value)


def _from_numpy(name: str, values: npt.NDArray[Any]) -> Tensor:
    if str(values.dtype) not in ("int32", "int64"):
        raise ArrayError(
            name, f"has dtype {values.dtype}; indices must be int32 or int64, convert with .astype('int64')"
        )
    # torch shares memory with NumPy, but only with arrays that are writable and have no negative strides.
    shareable = values.flags.writeable and all(stride >= 0 for stride in values.strides)
    return torch.from_numpy(values if shareable else values.copy())


def check_length(name: str, vector: Tensor, length: int, meaning: str) -> None:
    """Raises ArrayError unless `vector` has `length` entries; `meaning` completes 'it must have 5 (...)'."""
    if vector.numel() != length:
        raise ArrayError(name, f"has {len(vector)} entries; it must have {length} ({meaning})")


def check_kernels(name: str, device: torch.device) -> None:
    """Raises ArrayError unless there are kernels for `device`, where the array or graph called `name` is."""
    if not has_kernels(device):
        raise ArrayError(
            name, f"is on {device}, but layers run on the CPU and on CUDA devices; move it with .to('cpu')"
        )


def check_device(name: str, vector: Tensor, device: torch.device) -> None:
    """Raises ArrayError unless `vector` is on `device`, the device of the edge list."""
    if vector.device != device:
        raise ArrayError(name, f"is on {vector.device}, the edge list on {device}; move it with .to({str(device)!r})")


class IndexRange(NamedTuple):
    """Holds an index vector and its bound: ``argument`` says that there are ``limit`` ``things``."""

    name: str
    vector: Tensor
    limit: int
    things: str
    argument: str


def extremes(*vectors: Tensor) -> Tensor:
    """Returns the smallest and the largest entry of each vector, int64 [2 n]; 0 and -1 for an empty vector."""
    ends = [torch.stack(v.aminmax()).long() if len(v) else torch.tensor([0, -1], device=v.device) for v in vectors]
    return torch.cat(ends)


def extremes_at_hand(vectors: Sequence[Tensor]) -> list[int] | None:
    """Returns the `extremes` of vectors on the host; None if they are on a device, or there is no compiler."""
    return native_sorting.extremes(vectors) if all(map(sorting.at_hand, vectors)) else None


def check_ranges(*ranges: IndexRange) -> None:
    """Raises GraphError unless 0 <= vector < limit for all of them; reads from a device only once.

    While torch.export traces, nothing is known; the operators of `dacergnn.graph.traced` check indices when they run.
    """
    if torch.compiler.is_exporting():
        return
    asked = [r for r in ranges if r.vector.numel() and not r.vector.is_meta]
    if asked:
        vectors = [r.vector for r in asked]
        ends = extremes_at_hand(vectors) or extremes(*vectors).tolist()
        for index_range, low, high in zip(asked, ends[::2], ends[1::2], strict=True):
            check_extremes(index_range, low, high)


def check_extremes(index_range: IndexRange, low: int, high: int) -> None:
    """Raises GraphError unless 0 <= low and high < limit; the error names the first wrong position and the remedy."""
    name, vector, limit, things, argument = index_range
    if low >= 0 and high < limit:
        return
    position = int(((vector < 0) | (vector >= limit)).nonzero()[0])
    value = int(vector[position])
    said = f"{name} holds {value} at position {position}"
    if value < 0:
        raise GraphError(f"{said}; indices count from 0, so remove padding and shift indices that start elsewhere.")
    raise GraphError(f"{said}, but there are {limit} {things}; correct it or pass {argument} of at least {high + 1}.")

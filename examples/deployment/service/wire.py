"""Bodies of requests and answers of the service: JSON, or arrays in the format of safetensors.

A body in JSON is an object of nested lists by the names of arrays. A body in the format of safetensors is shorter and
faster to read: the length of a header in 8 bytes, the header in JSON, and the numbers of all arrays.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

JSON, BINARY = "application/json", "application/octet-stream"
_TYPES = {
    "F32": "float32", "F64": "float64", "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8",
    "BOOL": "bool",
}  # fmt: skip
_NAMES = {name: short for short, name in _TYPES.items()}
Arrays = dict[str, np.ndarray]
Described = Sequence[Mapping[str, Any]]
"""The inputs or the outputs of a manifest."""


class BadBody(ValueError):
    """Tells what is wrong with the body of a request."""


def decode(body: bytes, kind: str, inputs: Described) -> Arrays:
    """Returns the arrays of a body.

    Raises:
        BadBody: The body is not of this kind, or an array has another type of elements than the model takes.
    """
    try:
        return _from_json(body, inputs) if kind == JSON else _from_binary(body)
    except BadBody:
        raise
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError, AttributeError) as error:
        raise BadBody(f"The body cannot be read as {kind}: {error}") from error


def encode(arrays: Mapping[str, np.ndarray], kind: str) -> bytes:
    """Returns the body with arrays."""
    if kind == JSON:
        return json.dumps({name: array.tolist() for name, array in arrays.items()}).encode()
    described: dict[str, Any] = {}
    pieces: list[bytes] = []
    end = 0
    for name, array in arrays.items():
        pieces.append(np.ascontiguousarray(array).tobytes())
        start, end = end, end + len(pieces[-1])
        described[name] = {"dtype": _NAMES[array.dtype.name], "shape": array.shape, "data_offsets": [start, end]}
    header = json.dumps(described).encode()
    header += b" " * (-len(header) % 8)
    return b"".join([len(header).to_bytes(8, "little"), header, *pieces])


def _from_json(body: bytes, inputs: Described) -> Arrays:
    values = json.loads(body)
    types = {described["name"]: described for described in inputs}
    if not isinstance(values, dict):
        raise BadBody("The body is no JSON object; pass an array as nested lists for each name.")
    return {name: _array(name, value, types[name]) for name, value in values.items() if name in types or _unknown(name)}


def _unknown(name: str) -> bool:
    raise BadBody(f"The model takes no array {name!r}.")


def _array(name: str, value: Any, described: Mapping[str, Any]) -> np.ndarray:
    dtype = np.dtype(described["dtype"])
    array = np.array(value)
    if array.size == 0:  # lists do not tell the sizes of what is empty
        return np.zeros([size if isinstance(size, int) else 0 for size in described["shape"]], dtype)
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        raise BadBody(f"{name} has numbers of type {array.dtype}; the model takes {dtype}.")
    numbers = array.astype(dtype)
    if dtype.kind in "iu" and (numbers != array).any():
        raise BadBody(f"{name} has numbers that are too large for {dtype}.")
    return numbers


def _from_binary(body: bytes) -> Arrays:
    length = int.from_bytes(body[:8], "little")
    if len(body) < 8 or length > len(body) - 8:
        raise BadBody(f"The body has {len(body)} bytes, fewer than its header tells.")
    header: dict[str, Any] = json.loads(body[8 : 8 + length])
    header.pop("__metadata__", None)
    numbers = memoryview(body)[8 + length :]
    arrays: Arrays = {}
    for name, described in header.items():
        dtype, shape = np.dtype(_TYPES[described["dtype"]]), [int(size) for size in described["shape"]]
        start, end = (int(offset) for offset in described["data_offsets"])
        if any(size < 0 for size in shape) or not 0 <= start <= end <= len(numbers):
            raise BadBody(f"{name} lies outside of the body, or has a negative size.")
        if end - start != math.prod(shape) * dtype.itemsize:
            raise BadBody(f"{name} has {end - start} bytes, which do not fit its shape {shape}.")
        own = np.frombuffer(numbers[start:end], np.uint8).copy()  # aligned
        if dtype.kind == "b" and own.max(initial=0) > 1:
            raise BadBody(f"{name} has bytes that are neither 0 nor 1.")
        arrays[name] = own.view(dtype).reshape(shape)
    return arrays

"""Types of elements in exported models."""

from __future__ import annotations

import torch

from dacergnn.errors import UnsupportedCallError

_TYPES: dict[torch.dtype, str] = {
    torch.float32: "float", torch.float64: "double", torch.int64: "std::int64_t", torch.int32: "std::int32_t",
    torch.bool: "bool", torch.uint8: "std::uint8_t", torch.int16: "std::int16_t", torch.int8: "std::int8_t",
}  # fmt: skip

COMPUTED = (torch.float32, torch.float64)
"""Types that programs compute with."""


def check_dtype(dtype: torch.dtype, name: str) -> None:
    """Raises UnsupportedCallError, with the name of the array, unless exported models have elements of this type."""
    if dtype not in _TYPES:
        known = ", ".join(str(t).removeprefix("torch.") for t in _TYPES)
        remedy = "use model.float() and features in float32"
        raise UnsupportedCallError(f"{name} is of {dtype}; a C library takes {known}: {remedy}.")


def c_type(dtype: torch.dtype) -> str:
    """Returns a type of elements in C++; raises UnsupportedCallError for others."""
    check_dtype(dtype, "an array of the model")
    return _TYPES[dtype]

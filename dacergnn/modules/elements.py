"""Element types that programs are compiled for, and casts to one of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dace
import torch
from torch import Tensor

from dacergnn.errors import ArrayError
from dacergnn.library_nodes.node import Typeclass
from dacergnn.target import find

ELEMENTS: dict[torch.dtype, Typeclass] = {
    torch.float32: dace.float32,
    torch.float64: dace.float64,
    torch.bfloat16: dace.bfloat16,
    torch.float16: dace.float16,
}


def known_elements(implementation: str | None, device: str = "cpu") -> tuple[torch.dtype, ...]:
    """Returns the element types that there are kernels for.

    Kernels of devices compute in float32 for all types but float64, and store rows in the type of the arrays.
    """
    return tuple(
        dtype for dtype in ELEMENTS if str(dtype).removeprefix("torch.") in find(implementation, device).elements
    )


def check_elements(name: str, dtype: torch.dtype, implementation: str | None, device: str = "cpu") -> None:
    """Raises ArrayError, with the name of the array, unless there are kernels for its element type."""
    known = known_elements(implementation, device)
    if dtype not in known:
        *most, last = map(str, known)
        where = "" if len(known) == len(ELEMENTS) else " on the CPU"
        taken = f"compiled layers take {', '.join(most)} or {last}{where}"
        raise ArrayError(name, f"has dtype {dtype}; {taken}; convert it with .float()")


def cast(value: Any, dtype: torch.dtype) -> Any:
    """Returns ``value`` with all floating-point tensors in it, also in dictionaries and tuples, cast to a type."""
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.to(dtype)
    if isinstance(value, dict):
        return {k: cast(v, dtype) for k, v in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if type(value) is tuple:
        return tuple(cast(v, dtype) for v in value)  # pyright: ignore[reportUnknownVariableType]
    return value


def with_parameters(module: Any, parameters: Mapping[str, Tensor], prefix: str = "") -> Any:
    """Returns a shallow copy of ``module`` whose parameters are the given tensors.

    The copy shares everything else, also what the module's own copies and pickles would leave out.
    """
    stand_in = object.__new__(type(module))
    own = {n: parameters.get(prefix + n, p) for n, p in module._parameters.items()}
    children = {n: m and with_parameters(m, parameters, f"{prefix}{n}.") for n, m in module._modules.items()}
    vars(stand_in).update(vars(module), _parameters=own, _modules=children)
    return stand_in

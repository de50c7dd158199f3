"""Makes functions operators of torch, which stay calls in what torch.export writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dacergnn.errors import DacergnnError


def operator(name: str) -> Callable[[Callable[..., Any]], Any]:
    """Returns the decorator that makes a function, which writes to no argument, the operator ``dacergnn::name``.

    Raises:
        DacergnnError: A library in C++ has made the operator already.
    """

    def make(function: Callable[..., Any]) -> Any:
        try:
            return torch.library.custom_op(f"dacergnn::{name}", mutates_args=())(function)
        except RuntimeError as error:
            if "multiple times" not in str(error):
                raise
            raise DacergnnError(
                f"The operator dacergnn::{name} comes from a library of an exported model, which this process has "
                "loaded. Import dacergnn before such a library is loaded, or run that model in a process of its own."
            ) from error

    return make

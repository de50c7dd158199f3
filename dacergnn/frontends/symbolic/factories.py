"""Records tensors that a forward makes with a row for each edge, since it may write rows of some edges to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from dacergnn.frontends.symbolic.expr import const
from dacergnn.frontends.symbolic.trace import Trace

_NUMBERS: dict[Any, float] = {torch.zeros: 0.0, torch.ones: 1.0}


class Factories(TorchFunctionMode):
    """Makes `torch.zeros` and `torch.ones` return recorded values, while active, if they have a row for each edge.

    Args:
        counts: The numbers of edges of the relations.
    """

    def __init__(self, trace: Trace, counts: set[int]) -> None:
        super().__init__()
        self._trace, self._counts = trace, counts

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        number = _NUMBERS.get(func)
        if number is None or type(result) is not Tensor or result.dim() < 2 or result.size(0) not in self._counts:
            return result
        if result.requires_grad or result.device != self._trace.device or not self._trace.takes(result.dtype):
            return result
        return self._trace.record(const(number), result.shape, result.dtype, (func, args, kwargs, None))

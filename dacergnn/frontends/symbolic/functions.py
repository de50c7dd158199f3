"""Runs the layer's own Python, and subclasses of `torch.autograd.Function` in it on tensors that hold numbers.

Programs have no backward of theirs.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch

from dacergnn.errors import UnsupportedCallError, raises_what_is_caught
from dacergnn.frontends.symbolic.callers import caller_text
from dacergnn.frontends.symbolic.trace import Trace

_Function: Any = torch.autograd.Function
_APPLY = _Function.__dict__["apply"]
_lock = threading.Lock()
_local = threading.local()
_active = 0


@contextmanager
def running(trace: Trace) -> Generator[None]:
    """Surrounds the layer's own Python, whose effects and functions are noticed."""
    with raises_what_is_caught(), _applied_to_numbers(trace):
        yield


@contextmanager
def _applied_to_numbers(trace: Trace) -> Generator[None]:
    """Within the context, functions that this thread applies get the numbers of recorded values, as one step each.

    torch offers no other way to notice them: `Function.apply` calls neither `__torch_function__` nor a mode.
    """
    global _active
    outer, _local.trace = getattr(_local, "trace", None), trace
    with _lock:
        _active += 1
        _Function.apply = classmethod(_apply)
    try:
        yield
    finally:
        _local.trace = outer
        with _lock:
            _active -= 1
            if not _active:
                _Function.apply = _APPLY


def _apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
    apply, trace = _APPLY.__get__(None, cls), getattr(_local, "trace", None)
    if trace is None or not torch._C._is_torch_function_enabled():  # pyright: ignore[reportPrivateUsage]
        return apply(*args, **kwargs)
    if trace.has_edge_values((args, kwargs)):
        raise UnsupportedCallError(
            f"{cls.__name__}, a torch.autograd.Function of a value per edge, has no form in a program "
            f"({caller_text()})."
        )
    return trace.alone(apply, args, kwargs)

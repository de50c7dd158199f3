"""Runs functions in another thread, so that autograd records them although they run inside an operator."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import torch

from dacergnn.runtime.cuda_device import on_this_stream

_Result = TypeVar("_Result")
_DEEPEST = 64
"""Number of threads: as many operators may wait for each other, or be differentiated at once."""


@cache
def _worker(_process: int) -> ThreadPoolExecutor:
    """Returns threads beside the calling one; each process has its own, since a fork copies no other threads.

    A thread is made only where all others are at work: a layer inside of a layer differentiates in a further one.
    """
    return ThreadPoolExecutor(max_workers=_DEEPEST, thread_name_prefix="dacergnn")


def beside(function: Callable[[], _Result], device: torch.device) -> _Result:
    """Returns the result of a function that differentiates.

    Inside an operator, autograd does not see what the calling thread does; another thread is recorded as usual.
    """
    return _worker(os.getpid()).submit(on_this_stream(function, device)).result()

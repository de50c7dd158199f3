"""Starts builds ahead of the calls that need them, so that several are made at the same time."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from dacergnn.modules.compiled import CompiledProgram
from dacergnn.modules.variant import Mask

_MOST = 16
"""Builds under way at a time, each with compilers of its own, whose memory is limited by this."""
_local = threading.local()


class Builds:
    """Makes builds in threads."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(min(os.cpu_count() or 1, _MOST), thread_name_prefix="dacergnn")
        self._started: dict[tuple[CompiledProgram, Mask], Future[Any]] = {}

    def start(self, program: CompiledProgram, mask: Mask) -> None:
        """Starts the build of a program for calls in which the inputs in ``mask`` need gradients."""
        if (program, mask) not in self._started:
            self._started[program, mask] = self._pool.submit(program.variant, mask)

    def wait(self) -> None:
        """Waits for all builds; raises the error of the first that failed."""
        for build in self._started.values():
            build.result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


@contextmanager
def ahead() -> Generator[None]:
    """Lets calls of this thread start the builds that they lack, and return zeros; waits for these builds at the end.

    The zeros have the shapes, the type and the device of the results, and need gradients where these would.
    """
    before, builds = started(), Builds()
    _local.builds = builds
    try:
        yield
        builds.wait()
    finally:
        _local.builds = before
        builds.close()


def started() -> Builds | None:
    """Returns the builds that calls of this thread start; None outside `ahead`."""
    return getattr(_local, "builds", None)


def zeros_of(
    shapes: Iterable[tuple[int, ...]], dtype: torch.dtype, device: torch.device, *, differentiated: bool
) -> tuple[Tensor, ...]:
    """Returns zeros in place of results; they need gradients if the results are ``differentiated``."""
    zeros = [torch.zeros(shape, dtype=dtype, device=device, requires_grad=differentiated) for shape in shapes]
    return tuple([tensor.clone() for tensor in zeros])  # no leaves, which could not be written to

"""Keeps what modules' buffers hold through a call that should leave no trace in them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch
from torch import nn


class Buffers:
    """Holds copies of a module's buffers, as norms write in training."""

    def __init__(self, module: nn.Module) -> None:
        self._before = [(buffer, buffer.clone()) for buffer in module.buffers() if not buffer.is_meta]

    @torch.no_grad()
    def restore(self) -> None:
        """Gives buffers that have changed their numbers back; a backward may need the others unwritten."""
        for buffer, value in self._before:
            if not torch.equal(buffer, value):
                buffer.copy_(value)


@contextmanager
def buffers_kept(module: nn.Module) -> Generator[None]:
    """Restores a module's buffers at the end of the context."""
    buffers = Buffers(module)
    try:
        yield
    finally:
        buffers.restore()

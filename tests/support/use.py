"""Provides what tests of layers as models use them share, in emulation and on devices."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor


def shifted(tensor: Tensor) -> Tensor:
    """The same numbers, in memory that no 16 bytes are aligned to."""
    room = torch.empty(tensor.numel() + 1, dtype=tensor.dtype, device=tensor.device)
    room[1:] = tensor.flatten()
    return room[1:].view(tensor.shape)


@contextmanager
def lone_process(backend: str, folder: Path) -> Generator[None]:
    """Provides torch's process group of this process alone."""
    store = f"file://{folder / 'store'}"
    torch.distributed.init_process_group(backend, init_method=store, rank=0, world_size=1)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()

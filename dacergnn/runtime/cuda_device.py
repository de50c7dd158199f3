"""What CUDA programs take from torch: the stream of the moment, memory of its allocator, properties of devices."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

from dacergnn.errors import BuildError

_HAS_PRECISION = hasattr(torch.backends.cuda.matmul, "fp32_precision")


@contextmanager
def current_stream(device: torch.device) -> Generator[int]:
    """Make ``device`` the current one; gives the handle of torch's current stream there."""
    with torch.cuda.device(device):
        yield torch.cuda.current_stream(device).cuda_stream


@cache
def multiprocessors(device: torch.device) -> int:
    """Number of multiprocessors of a device."""
    return torch.cuda.get_device_properties(device).multi_processor_count


def architectures(chosen: tuple[int, ...] | None) -> tuple[int, ...]:
    """The compute capabilities to build for: those ``chosen``, else those of the devices here.

    Raises:
        BuildError: None is chosen, and there is no device.
    """
    if chosen is not None:
        return chosen
    found = {torch.cuda.get_device_capability(i) for i in range(torch.cuda.device_count())}
    if not found:
        raise BuildError("This machine has no CUDA device to build for; name some in Config(cuda_arch=(80, 90)).")
    return tuple(sorted(10 * major + minor for major, minor in found))


def allows_tf32() -> bool:
    """Whether torch lets products of float32 on CUDA devices round their factors to TF32 at the moment."""
    matmul: Any = torch.backends.cuda.matmul
    # Where torch has the newer setting, the older one raises an error after the newer one was set.
    return matmul.fp32_precision == "tf32" if _HAS_PRECISION else matmul.allow_tf32


class DeviceMemory:
    """Memory of torch's allocator, which orders its reuse by the streams; where a `Lease` comes from."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def take(self, size: int) -> Tensor:
        """A buffer of ``size`` bytes with any content."""
        return torch.empty(size, dtype=torch.uint8, device=self.device)

    def give(self, buffer: Tensor) -> None:
        """Hand a buffer back: the allocator takes it when the last reference is gone."""

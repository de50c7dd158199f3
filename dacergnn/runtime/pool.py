"""Large buffers kept between calls: fresh memory costs a page fault for every 4 KiB, more than most kernels."""

from __future__ import annotations

import ctypes
import threading
from typing import Protocol

import torch
from torch import Tensor

SMALL = 1 << 20
LARGE = 32 << 20
"""From this size on, allocators take memory from the system at every request."""
_KEPT = 4
_HUGE_PAGE = 1 << 21
_MADV_HUGEPAGE = 14
_madvise = getattr(ctypes.CDLL(None), "madvise", None)


def in_huge_pages(fresh: Tensor) -> Tensor:
    """The tensor, in huge pages where the system lets us ask: fewer faults to fill it, fewer misses to gather rows."""
    if _madvise is not None:
        start = -(-fresh.data_ptr() // _HUGE_PAGE) * _HUGE_PAGE
        length = (fresh.data_ptr() + fresh.nbytes - start) // _HUGE_PAGE * _HUGE_PAGE
        if length > 0:
            _madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), _MADV_HUGEPAGE)
    return fresh


class Pool:
    """Byte buffers that were given back, ready to be taken again; holds at most as much as was in use at once."""

    def __init__(self) -> None:
        self._free: list[Tensor] = []
        # Reentrant: the garbage collector may return a lease while this thread takes a buffer.
        self._lock = threading.RLock()

    def take(self, size: int) -> Tensor:
        """A buffer of at least ``size`` bytes with any content."""
        if size < SMALL:
            return torch.empty(size, dtype=torch.uint8)
        with self._lock:
            fitting = [b for b in self._free if b.numel() >= size]
            if fitting:
                best = min(fitting, key=Tensor.numel)
                self._free = [b for b in self._free if b is not best]
                return best
            self._free.clear()  # too small for this program; the next ones may be as large
        return in_huge_pages(torch.empty(size, dtype=torch.uint8))

    def give(self, buffer: Tensor) -> None:
        """Hand a buffer back; nobody may use it any more."""
        if buffer.numel() >= SMALL:
            with self._lock:
                self._free = [*self._free[-_KEPT + 1 :], buffer]

    def clear(self) -> None:
        """Return the free buffers to the system."""
        self._free.clear()


class Memory(Protocol):
    """Where buffers come from."""

    def take(self, size: int) -> Tensor: ...
    def give(self, buffer: Tensor) -> None: ...


class Lease:
    """Holds a buffer until it is dropped itself, then gives it back."""

    def __init__(self, pool: Memory, size: int) -> None:
        self.pool = pool
        self.buffer = pool.take(size)

    def __del__(self) -> None:
        self.pool.give(self.buffer)


POOL = Pool()

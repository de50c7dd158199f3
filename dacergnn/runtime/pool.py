"""Keeps large buffers between calls: fresh memory costs a page fault for every 4 KiB, more than most kernels."""

from __future__ import annotations

import ctypes
import sys
import threading
import weakref
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from math import prod
from typing import Protocol

import torch
from torch import Tensor

from dacergnn.runtime.arena import Arena
from dacergnn.runtime.forked import in_children

SMALL = 1 << 20
_WORKSPACE = SMALL
"""Bytes of a buffer that serves all calls with small workspaces, one after the other."""
LARGE = 32 << 20
"""From this size on, allocators take memory from the system at every request."""
_LARGEST = 2
"""Limit of a buffer's size, as a multiple of the request; larger buffers wait for larger requests."""
_HUGE_PAGE = 1 << 21
_MADV_HUGEPAGE = 14
_madvise = None if sys.platform == "win32" else getattr(ctypes.CDLL(None), "madvise", None)


def has_memory(made: Tensor) -> bool:
    """Tells whether the CPU can write to a new tensor: not in FakeTensorMode, or on other devices."""
    return type(made) is Tensor and made.is_cpu


def _bytes(buffer: Tensor) -> int:
    return buffer.nbytes  # `numel` would become a part of what torch.jit.trace writes down meanwhile


def in_huge_pages(fresh: Tensor) -> Tensor:
    """Returns the tensor, in huge pages if the system allows: fewer faults to fill it, fewer misses to gather rows."""
    if _madvise is not None:
        start = -(-fresh.data_ptr() // _HUGE_PAGE) * _HUGE_PAGE
        length = (fresh.data_ptr() + fresh.nbytes - start) // _HUGE_PAGE * _HUGE_PAGE
        if length > 0:
            _madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), _MADV_HUGEPAGE)
    return fresh


class Pool:
    """Holds byte buffers that were given back, ready to be taken again.

    Free buffers and those in use take together at most `room` times the most that was in use at once.
    """

    def __init__(self) -> None:
        self.limited: weakref.WeakSet[object] = weakref.WeakSet()
        """Holds the limits of memory in force: memory counts more than faults of fresh pages then."""
        self._given: deque[Tensor] = deque()  # those that were given back last, which `_settle` counts
        self._free: list[Tensor] = []  # in the order in which they were given back
        self._used = self._most = 0  # bytes in use, now and at most
        self._workspaces: list[Tensor] = []
        self._within = threading.local()
        self._parts: dict[int, Arena] = {}  # by the addresses of the parts that arenas have handed out
        self.unlock()

    def unlock(self) -> None:
        """Makes a new lock: in a child of a fork, nobody would release a lock that another thread held."""
        self._lock = threading.Lock()

    @property
    def room(self) -> float:
        """Returns how many times the bytes that were in use at most the pool may keep."""
        return 1.0 if self.limited else 1.125

    def _settle(self) -> None:
        """Counts the buffers that were given back; the caller holds the lock."""
        while self._given:
            buffer = self._given.popleft()
            self._used -= _bytes(buffer)
            self._free.append(buffer)

    def take(self, size: int, *, beside: bool = False) -> Tensor:
        """Returns a buffer of at least ``size`` bytes with any content.

        Args:
            beside: Whether the buffer outlasts the arena that this thread takes its buffers from, if any.
        """
        if size < SMALL:
            return torch.empty(size, dtype=torch.uint8)
        arena: Arena | None = getattr(self._within, "arena", None)
        if arena is not None and not beside:
            part = arena.take(size)
            if part is not None:
                self._parts[part.data_ptr()] = arena
                return part
        with self._lock:
            self._settle()
            fitting = [b for b in self._free if size <= _bytes(b) <= _LARGEST * size]
            taken = min(fitting, key=_bytes, default=None)
            if taken is None:
                taken = torch.empty(size, dtype=torch.uint8)
                if not has_memory(taken):
                    return taken
                in_huge_pages(taken)
            self._free = [b for b in self._free if b is not taken]
            self._used += _bytes(taken)
            self._most = max(self._most, self._used)
            while self._free and self._used + sum(map(_bytes, self._free)) > self.room * self._most:
                self._free.pop(0)
        return taken

    def give(self, buffer: Tensor) -> None:
        """Takes a buffer back; nobody may use it any more."""
        if _bytes(buffer) < SMALL:
            return
        arena = self._parts.pop(buffer.data_ptr(), None)
        if arena is not None:
            arena.give(buffer)
            for waiting in arena.released():
                self.give(waiting)
        else:
            # The garbage collector may give a lease back while this very thread holds the lock.
            self._given.append(buffer)
            if self._lock.acquire(blocking=False):
                try:
                    self._settle()
                finally:
                    self._lock.release()

    def workspace(self, size: int) -> Tensor:
        """Returns a buffer for the time of a call; a small one is that of the last call, which caches still hold."""
        if size >= SMALL:
            return self.take(size)
        try:
            return self._workspaces.pop()
        except IndexError:
            return torch.empty(_WORKSPACE, dtype=torch.uint8)

    def give_workspace(self, buffer: Tensor, size: int) -> None:
        """Takes a buffer back that was requested with this size."""
        if size >= SMALL:
            self.give(buffer)
        else:
            self._workspaces.append(buffer)

    @contextmanager
    def arena(self, size: int) -> Generator[None]:
        """Lets this thread take its buffers from one of ``size`` bytes, and only what does not fit from the pool.

        The pool would keep buffers of different sizes for calls of different sizes, which take more together.
        """
        outer: Arena | None = getattr(self._within, "arena", None)
        self._within.arena = arena = Arena(self.take(size, beside=True))
        try:
            yield
        finally:
            self._within.arena = outer
            arena.end()
            for buffer in arena.released():
                self.give(buffer)

    @property
    def used(self) -> int:
        """Returns the bytes of the buffers in use."""
        with self._lock:
            self._settle()
            return self._used

    @property
    def free(self) -> int:
        """Returns the bytes of the buffers that are ready to be taken."""
        with self._lock:
            self._settle()
            return sum(map(_bytes, self._free))

    def clear(self) -> None:
        """Returns the free buffers to the system."""
        with self._lock:
            self._settle()
            self._free, self._most = [], self._used


class Memory(Protocol):
    """Describes an allocator of buffers."""

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
in_children(POOL.unlock)


def leased(shape: tuple[int, ...], dtype: torch.dtype, *, beside: bool = False) -> Tensor:
    """Returns a tensor with any content, whose buffer goes back to `POOL` with the last tensor that shares it.

    Where torch makes tensors without memory of the CPU, the result is such a tensor.

    Args:
        beside: Whether the tensor outlasts the arena of this thread, if there is one.
    """
    size = prod(shape) * dtype.itemsize
    buffer = POOL.take(size, beside=beside)
    if not has_memory(buffer):
        return buffer
    memory = (ctypes.c_char * size).from_address(buffer.data_ptr())
    weakref.finalize(memory, POOL.give, buffer).atexit = False  # torch holds `memory`
    return torch.frombuffer(memory, dtype=dtype).resize_(shape)  # a view could not be written to under autograd

"""Measures the peak memory of a call: on devices that of torch's allocator, else resident memory.

The peak of resident memory is Linux's own high-water mark.
The mark (VmHWM of /proc/self/status) is reset through /proc/self/clear_refs just before the call; where the
kernel forbids that, a thread samples /proc/self/statm every half millisecond instead.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from dacergnn.runtime.free_memory import return_freed_memory

_SELF = Path("/proc/self")
_MMAP_THRESHOLD = -3
_PROCESSOR = torch.device("cpu")


def resident() -> int:
    """Returns the bytes of the process that are in memory now."""
    return int((_SELF / "statm").read_text().split()[1]) * mmap.PAGESIZE


def settle() -> None:
    """Collects garbage and returns freed memory to the system, so that resident() counts what is alive."""
    gc.collect()
    return_freed_memory()


def return_freed() -> None:
    """Makes the C library return blocks of 128 KiB and more as soon as they are freed, so that peaks count live memory.

    Otherwise it keeps more and more of them, depending on what was freed before, and peaks differ from run to run.
    """
    choose = getattr(ctypes.CDLL(None), "mallopt", None)
    if choose is not None:
        choose(_MMAP_THRESHOLD, 128 << 10)


def settle_device(device: torch.device) -> int:
    """Frees unused memory of a CUDA device, and returns the bytes that are still in use, from which peaks count.

    Nothing is done on the processor, and 0 is returned.
    """
    if device.type == "cpu":
        return 0
    gc.collect()
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)


def peak_growth(call: Callable[[], Any], device: torch.device = _PROCESSOR) -> tuple[int, str]:
    """Returns the bytes by which a call's peak exceeds what was in use before it, and how the peak was read."""
    if device.type == "cuda":
        before = settle_device(device)
        call()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before, "torch.cuda"
    settle()
    before = resident()
    try:
        (_SELF / "clear_refs").write_text("5")
    except OSError:
        return sampled_peak(call) - before, "sampled"
    call()
    return _high_water() - before, "VmHWM"


def _high_water() -> int:
    lines = (_SELF / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024


def sampled_peak(call: Callable[[], Any], read: Callable[[], int] = resident) -> int:
    """Returns the most bytes while a call runs, as ``read`` tells them from time to time."""
    peak, done = read(), threading.Event()

    def sample() -> None:
        nonlocal peak
        while not done.is_set():
            peak = max(peak, read())
            time.sleep(0.0005)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        call()
    finally:
        done.set()
        thread.join()
    return max(peak, read())

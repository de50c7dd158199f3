"""Reads how much memory is free, and frees what the C library keeps."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import torch

_FIGURES = Path("/proc/meminfo")

_trim = None if sys.platform == "win32" else getattr(ctypes.CDLL(None), "malloc_trim", None)


def return_freed_memory() -> None:
    """Returns memory that the C library has kept of freed arrays to the system."""
    if _trim is not None:
        _trim(0)


def free_memory(device: str = "cpu") -> float:
    """Returns the bytes that are free on a type of device ("cpu", "cuda") now; infinite if the system does not say."""
    if device == "cuda":
        return float(torch.cuda.mem_get_info()[0]) if torch.cuda.is_available() else float("inf")
    lines = _FIGURES.read_text().splitlines() if _FIGURES.exists() else []
    kilobytes = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return 1024.0 * int(kilobytes[0]) if kilobytes else float("inf")

"""The library of the sample kernels, and arrays for them."""

from __future__ import annotations

import ctypes
import re
from functools import cache
from pathlib import Path

import numpy as np

from tests.support.emulated import Array, EmulatedLibrary, compile_emulated, device

SOURCE = Path(__file__).with_name("emulation_samples.cu")
SEEDS = range(8)


@cache
def library() -> EmulatedLibrary:
    """All sample kernels; the seed is set anew by each test that depends on it."""
    return compile_emulated(SOURCE.read_text())


def fault(name: str) -> int:
    """Value of an enumerator of ``Fault``."""
    return re.findall(r"^    (k\w+),$", SOURCE.read_text(), re.MULTILINE).index(name)


def line(text: str) -> int:
    """Number of the line of the samples with this text."""
    return next(n for n, code in enumerate(SOURCE.read_text().split("\n"), 1) if text in code)


def pointer(array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def numbers(*shape: int) -> Array:
    """float32 in [1, 2)."""
    return device(np.random.default_rng(3).uniform(1, 2, shape).astype(np.float32))

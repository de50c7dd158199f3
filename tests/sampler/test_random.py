"""The generator of random numbers is SplitMix64, and numbers below a bound have the same chance."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from dacergnn.native.build import build

pytest.importorskip("torch_geometric")
import dacergnn.sampler

CODE = """
#include "sampling/random.h"
extern "C" void draw(std::uint64_t key, std::uint64_t bound, std::int64_t count, std::uint64_t *into) {
  dacergnn::sampling::Random random(key);
  for (std::int64_t i = 0; i < count; ++i) into[i] = bound ? random.below(bound) : random.next();
}
"""


@cache
def library() -> ctypes.CDLL:
    headers = Path(dacergnn.sampler.__file__).parent / "include"
    return ctypes.CDLL(str(build("random_numbers", CODE, headers=headers)))


def draw(key: int, count: int, bound: int = 0) -> np.ndarray:
    found = np.empty(count, np.uint64)
    library().draw(
        ctypes.c_uint64(key), ctypes.c_uint64(bound), ctypes.c_int64(count), ctypes.c_void_p(found.ctypes.data)
    )
    return found


def test_numbers_are_those_of_splitmix64() -> None:
    """As its reference implementation gives them."""
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert draw(1234567, 4).tolist() == expected


@pytest.mark.parametrize("bound", [3, 10, 3 << 62])
def test_numbers_below_a_bound_have_the_same_chance(bound: int) -> None:
    """Of a large bound, one remainder in three would come up twice as often if no number were drawn again."""
    found = draw(1, 30000, bound)
    assert int(found.max()) < bound
    kinds = min(bound, 10) if bound < 100 else 3
    assert stats.chisquare(np.bincount((found % kinds).astype(np.int64), minlength=kinds)).pvalue > 1e-3

"""Divisors in place of divisions: results for all numbers that there are, also where reciprocals overflow or vanish."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from tests.support.emulated import compile_emulated, device

SOURCE = """
#include "dacergnn/cuda/divisor.cuh"
using namespace dacergnn::cuda;
template <class T>
struct Divide {
    const T *x, *y;
    T* z;
    __device__ void operator()(int64_t = 0) const {
        const Divisor<T> by(y[threadIdx.x]);
        for (int i = 0; i < 32; ++i) z[threadIdx.x * 32 + i] = x[i] / by;
    }
};
template <class T>
void divide(const T* x, const T* y, T* z) { launch<32>(1, 0, Divide<T>{x, y, z}); }
extern "C" void divide_float(const float* x, const float* y, float* z) { divide(x, y, z); }
extern "C" void divide_double(const double* x, const double* y, double* z) { divide(x, y, z); }
"""


@pytest.mark.parametrize(("name", "dtype"), [("float", np.float32), ("double", np.float64)])
def test_same_as_divisions(name: str, dtype: type[np.floating]) -> None:
    facts = np.finfo(dtype)
    special = [0.0, np.inf, -np.inf, np.nan, facts.tiny, facts.smallest_subnormal, facts.max, -facts.max, 1.0, -3.0]
    powers = np.logspace(np.log10(float(facts.tiny)), np.log10(float(facts.max)) - 1, 22)
    numbers = device(np.array([*special, *powers]).astype(dtype))
    found = device(np.zeros((32, 32), dtype))
    arrays = [ctypes.c_void_p(a.ctypes.data) for a in (numbers, numbers, found)]
    getattr(compile_emulated(SOURCE), f"divide_{name}")(*arrays)
    with np.errstate(all="ignore"):
        expected = numbers[None, :] / numbers[:, None]
    # Numbers without all digits may round to their neighbours.
    np.testing.assert_allclose(found, expected, rtol=4 * float(facts.eps), atol=4 * float(facts.smallest_subnormal))

"""The exponential function of traversal bodies: accuracy over its whole range, limits, and loops that vectorize."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from scipy import special

from tests.kernels.harness import FLAGS, INCLUDE

SOURCE = """
#include "dacergnn/scalar.h"
extern "C" void exp_float(int64_t n, const float* x, float* y)
{ _Pragma("omp simd") for (int64_t i = 0; i < n; ++i) y[i] = dacergnn::exp(x[i]); }
extern "C" void exp_double(int64_t n, const double* x, double* y)
{ _Pragma("omp simd") for (int64_t i = 0; i < n; ++i) y[i] = dacergnn::exp(x[i]); }
extern "C" void erf_float(int64_t n, const float* x, float* y)
{ _Pragma("omp simd") for (int64_t i = 0; i < n; ++i) y[i] = dacergnn::erf(x[i]); }
"""
Array = npt.NDArray[np.floating]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder: Path = tmp_path_factory.mktemp("scalar")
    source = folder / "scalar.cpp"
    source.write_text(SOURCE)
    made = folder / "scalar.so"
    subprocess.run(["g++", *FLAGS, "-shared", "-I", str(INCLUDE), str(source), "-o", str(made)], check=True)
    return ctypes.CDLL(str(made))


def exp(library: ctypes.CDLL, x: Array) -> Array:
    y = np.empty_like(x)
    function = library.exp_float if x.dtype == np.float32 else library.exp_double
    function(ctypes.c_int64(len(x)), ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data))
    return y


def test_float(library: ctypes.CDLL) -> None:
    x = np.concatenate([np.linspace(-87, 88.7, 2_000_001), np.linspace(-1, 1, 500_001)]).astype(np.float32)
    reference = np.exp(x.astype(np.float64))
    error = np.abs(exp(library, x) - reference) / np.spacing(reference.astype(np.float32))
    assert error.max() < 2


def test_double(library: ctypes.CDLL) -> None:
    x = np.concatenate([np.linspace(-708, 709.7, 1_000_001), np.linspace(-1, 1, 500_001)])
    reference = np.exp(x.astype(np.longdouble))
    assert (np.abs(exp(library, x) - reference) / reference).max() < 5e-16


@pytest.mark.parametrize(("dtype", "large"), [(np.float32, 89), (np.float64, 710)])
def test_limits(library: ctypes.CDLL, dtype: type[np.floating], large: float) -> None:
    x = np.array([0, -0.0, np.inf, -np.inf, np.nan, large, 1e30, -1e30, 1e4, -1e4, -3 * large], dtype=dtype)
    expected = [1, 1, np.inf, 0, np.nan, np.inf, np.inf, 0, np.inf, 0, 0]
    np.testing.assert_array_equal(exp(library, x), np.array(expected, dtype=dtype))
    # Results below the smallest normal number are rounded, not flushed or garbage.
    tiny = np.linspace(-1.19, -0.98, 1000).astype(dtype) * dtype(large)
    with np.errstate(under="ignore"):
        reference = np.exp(tiny.astype(np.longdouble))
    info = np.finfo(dtype)
    assert (np.abs(exp(library, tiny) - reference) <= 2 * info.smallest_subnormal + 2 * info.eps * reference).all()


def test_erf(library: ctypes.CDLL) -> None:
    x = np.concatenate([np.linspace(-6, 6, 2_000_001), np.linspace(-1e-3, 1e-3, 10_001)]).astype(np.float32)
    y, reference = np.empty_like(x), special.erf(x.astype(np.float64))
    arguments = ctypes.c_int64(len(x)), ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data)
    library.erf_float(*arguments)
    assert (np.abs(y - reference) / np.spacing(np.abs(reference).astype(np.float32))).max() < 3
    x[:4] = y[:4] = np.inf, -np.inf, np.nan, -0.0
    library.erf_float(*arguments)
    np.testing.assert_array_equal(y[:4], np.array([1, -1, np.nan, -0.0], dtype=np.float32))

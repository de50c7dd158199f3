"""Scalar functions of traversal bodies: accuracy over their whole range, limits, and loops that vectorize."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from scipy import special

from tests.kernels.harness import BY_COMPILER, INCLUDE, command

SOURCE = """
#include "dacergnn/scalar.h"
extern "C" void exp_float(int64_t n, const float* x, float* y)
{ _Pragma("omp simd") for (int64_t i = 0; i < n; ++i) y[i] = dacergnn::exp(x[i]); }
extern "C" void exp_double(int64_t n, const double* x, double* y)
{ _Pragma("omp simd") for (int64_t i = 0; i < n; ++i) y[i] = dacergnn::exp(x[i]); }
extern "C" void erf_float(int64_t n, const float* x, float* y)
{ _Pragma("omp simd") for (int64_t i = 0; i < n; ++i) y[i] = dacergnn::erf(x[i]); }
extern "C" void expm1_float(int64_t n, const float* x, float* y)
{ _Pragma("omp simd") for (int64_t i = 0; i < n; ++i) y[i] = dacergnn::expm1(x[i]); }
extern "C" void tanh_float(int64_t n, const float* x, float* y)
{ _Pragma("omp simd") for (int64_t i = 0; i < n; ++i) y[i] = dacergnn::tanh(x[i]); }
"""
SOURCE += "".join(
    f"""extern "C" void {name}_{kind}(int64_t n, const {kind}* x, {kind}* y)
{{ _Pragma("omp simd") for (int64_t i = 0; i < n; ++i) y[i] = dacergnn::{name}(x[i]); }}
"""
    for name in ("sigmoid", "softplus")
    for kind in ("float", "double")
)
Array = npt.NDArray[np.floating]


@pytest.fixture(scope="module", params=BY_COMPILER)
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder: Path = tmp_path_factory.mktemp("scalar")
    source = folder / "scalar.cpp"
    source.write_text(SOURCE)
    made = folder / "scalar.so"
    options = ["-shared", "-I", str(INCLUDE), str(source), "-o", str(made)]
    subprocess.run([*command(request.param), *options], check=True)
    return ctypes.CDLL(str(made))


def applied(library: ctypes.CDLL, name: str, x: Array) -> Array:
    y = np.empty_like(x)
    function = library[f"{name}_{'float' if x.dtype == np.float32 else 'double'}"]
    function(ctypes.c_int64(len(x)), ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data))
    return y


def exp(library: ctypes.CDLL, x: Array) -> Array:
    return applied(library, "exp", x)


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


@pytest.mark.parametrize(
    ("name", "function", "low", "high", "ulp"),
    [("erf", special.erf, -6, 6, 3), ("expm1", np.expm1, -90, 88.7, 3), ("tanh", np.tanh, -20, 20, 3)],
)
def test_functions_of_floats(
    library: ctypes.CDLL, name: str, function: Callable[[Array], Array], low: float, high: float, ulp: float
) -> None:
    parts = [np.linspace(low, high, 2_000_001), np.linspace(-1e-3, 1e-3, 10_001), np.geomspace(1e-30, 1, 10_001)]
    x = np.concatenate(parts).astype(np.float32)
    reference = function(x.astype(np.float64))
    error = np.abs(applied(library, name, x) - reference) / np.spacing(np.abs(reference).astype(np.float32))
    assert error.max() < ulp


def logistic(x: Array) -> Array:
    power = np.exp(-np.abs(x))
    return np.where(x < 0, power, 1) / (1 + power)


@pytest.mark.parametrize(("dtype", "far"), [(np.float32, 103), (np.float64, 744)])
@pytest.mark.parametrize(
    ("name", "function"),
    [("sigmoid", logistic), ("softplus", lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))],
)
def test_functions_of_powers(
    library: ctypes.CDLL, name: str, function: Callable[[Array], Array], dtype: type[np.floating], far: float
) -> None:
    """Down to where their values are the smallest numbers that there are."""
    x = np.concatenate([np.linspace(-far, far, 1_000_001), np.linspace(-3, 3, 500_001)]).astype(dtype)
    reference = function(x.astype(np.longdouble))
    assert (np.abs(applied(library, name, x) - reference) / np.spacing(reference.astype(dtype))).max() < 4
    limits = np.array([np.inf, -np.inf, np.nan, 1e30, -1e30], dtype=dtype)
    high, huge = (1, 1) if name == "sigmoid" else (np.inf, 1e30)
    np.testing.assert_array_equal(applied(library, name, limits), np.array([high, 0, np.nan, huge, 0], dtype=dtype))


def test_how_near_tanh_is_to_one(library: ctypes.CDLL) -> None:
    """Slopes are 1 - y^2."""
    x = np.linspace(0.55, 9, 1_000_001).astype(np.float32)
    error = np.abs(applied(library, "tanh", x) - np.tanh(x.astype(np.float64)))
    assert (error[x < 2] / 2.0**-24).max() < 1.6
    assert (error[x > 2] / 2.0**-24).max() < 0.6  # to the nearest, but for a tenth


@pytest.mark.parametrize(
    ("name", "expected"),
    [("erf", [1, -1, np.nan, 0, 1, -1]), ("expm1", [np.inf, -1, np.nan, 0, np.inf, -1]),
     ("tanh", [1, -1, np.nan, 0, 1, -1])],
)  # fmt: skip
def test_limits_of_functions_of_floats(library: ctypes.CDLL, name: str, expected: list[float]) -> None:
    x = np.array([np.inf, -np.inf, np.nan, -0.0, 1e30, -1e30], dtype=np.float32)
    np.testing.assert_array_equal(applied(library, name, x), np.array(expected, dtype=np.float32))


@pytest.mark.parametrize("name", ["erf", "tanh"])
def test_odd_functions_keep_the_sign_of_zero(library: ctypes.CDLL, name: str) -> None:
    assert np.signbit(applied(library, name, np.array([-0.0], dtype=np.float32)))[0]

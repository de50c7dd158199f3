"""nvcc compiles the sample kernels without warnings; what it says of registers and spills is read."""

from __future__ import annotations

import pytest

from tests.cuda.samples import SOURCE
from tests.support.nvcc import compile_nvcc

SPILLING = """
struct Spilling {
    float* y;
    __device__ void operator()() const {
        float values[100];
#pragma unroll
        for (int i = 0; i < 100; ++i) values[i] = y[i * 1024 + threadIdx.x];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 100; ++i) y[i * 1024 + threadIdx.x + 1] = values[i];
    }
};
void spill(float* y) { dacergnn::cuda::launch<1024>(1, 0, Spilling{y}); }
"""


def test_the_samples_compile_for_every_architecture() -> None:
    usages = compile_nvcc(SOURCE.read_text(), (80, 90))
    products = [u for u in usages if "Product" in u.name]
    assert [u.arch for u in products] == ["sm_80", "sm_90"]
    assert all(u.name == "void dacergnn::cuda::run<256, Product>(Product)" for u in products)
    assert all(0 < u.registers <= 255 for u in usages)
    assert all(u.shared == 16 * 17 * 4 for u in products)
    assert all((u.spilled, u.stack > 0) == (0, "Deep" in u.name) for u in usages)


def test_spills_are_seen() -> None:
    (usage,) = compile_nvcc(SPILLING, (80,))
    assert usage.registers <= 64
    assert usage.spilled > 0


def test_warnings_are_errors() -> None:
    with pytest.raises(AssertionError, match="unused"):
        compile_nvcc("void f() { int unused; }", (80,))

"""The machine code of kernels: loads of several rows under way at once, stores of 16 bytes, no calls in inner loops."""

from __future__ import annotations

from functools import cache

import dace
import pytest

from dacergnn.native import nvcc
from dacergnn.native.ptxas import KernelUsage
from tests.cuda.test_nvcc import layer
from tests.support.nvcc import needs_nvcc
from tests.support.sass import Kernel, kernels_of

pytestmark = pytest.mark.check

ARCHITECTURES = (80, 90)
SLOW = """
struct Slow {
    const int* next;
    float* y;
    int64_t rows;
    __device__ void operator()(int64_t = 0) const {
        const float by = y[rows];
        int at = 0;
        for (int64_t i = 0; i < rows; ++i) {
            at = next[at];
            y[i] = y[i] / by + at;
        }
    }
};
void slow(const int* next, float* y, int64_t rows) { dacergnn::cuda::launch<32>(1, 0, Slow{next, y, rows}); }
"""
"""A kernel with all that the others may not have."""


@cache
def compiled(name: str, arch: int) -> tuple[list[Kernel], list[KernelUsage]]:
    needs_nvcc()
    if nvcc.known() and arch not in nvcc.known():
        pytest.skip(f"this nvcc does not know compute capability {arch / 10}")
    return kernels_of(layer(name, dace.float32), arch)


def kernel(name: str, arch: int, start: str, end: str) -> Kernel:
    """The only kernel of a layer whose name begins so and has that part."""
    (found,) = [k for k in compiled(name, arch)[0] if k.name.startswith(start) and end in k.name]
    return found


def calls_in_loops(code: Kernel) -> list[str]:
    """The functions that inner loops call, such as divisions, but not the barriers of a part of a warp."""
    calls = [i.operands for loop in code.inner_loops for i in loop if i.name.startswith("CALL")]
    return [name for name in calls if "warpsync" not in name]


def test_slow_code_is_seen() -> None:
    (slow,), _ = kernels_of(SLOW, 90)
    assert slow.under_way("LDG.E") <= 2  # the next element, and one that the loop changes
    assert any("div" in name for name in calls_in_loops(slow))
    assert slow.count("STG.E.128") == 0


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_rows_of_edges_are_loaded_together(arch: int) -> None:
    """The sum weighted by attention: four rows of 64 elements, which lanes load by 16 bytes, and no division."""
    aggregation = kernel("rgat", arch, "GroupKernel<16", "rgat#1, none>")
    assert aggregation.under_way("LDG.E.128") >= 4
    assert not calls_in_loops(aggregation)
    assert aggregation.count("STG.E.128") > 0


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_finished_rows_are_read_together(arch: int) -> None:
    """Two rows of 64 elements for each of four finished rows: 16 loads of 4 bytes a lane."""
    product = kernel("rgat", arch, "SegmentProduct<Tiling<float, float, 1, 64, 64,", "FinishRows<4, rgat#1>>")
    assert product.under_way("LDG.E") >= 16
    assert product.count("STG.E.128") > 0


def test_weights_arrive_during_the_product_before() -> None:
    """All copies to shared memory are asynchronous, those of the next type's weight too."""
    product = kernel("rgat", 90, "SegmentProduct<Tiling<float, float, 1, 64, 64,", "FinishRows<4, rgat#1>>")
    assert product.count("LDGSTS") > 0
    assert product.count("LDG.E.128") == 0


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_nothing_spills(arch: int) -> None:
    assert not [usage for usage in compiled("rgat", arch)[1] if usage.spilled]


def test_indices_of_summed_rows_come_first() -> None:
    """Messages of HGT are added up before the product with the weight of their type: four rows at once."""
    product = kernel("hgt", 90, "SegmentProduct<Tiling<float, float, 8, 8, 8,", "SummedRows")
    assert product.under_way("LDG.E.128") >= 4


def test_sums_of_rows_are_stored_by_lanes_that_have_neighbours() -> None:
    """Lanes have two elements of a row of 64: all stores but those of epilogues have 8 bytes."""
    sums = kernel("rgcn", 90, "RowSums<float, float, 64, 0, int, none, Keep", "none>")
    assert sums.count("STG.E") == sums.count("STG.E.64") > 0

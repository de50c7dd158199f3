"""How many launches layers take, and kernels that share one."""

from __future__ import annotations

import ctypes
import random
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from dacergnn import Config
from dacergnn.library_nodes.launch_order import launched_together
from dacergnn.runtime.cuda_executable import CUDAExecutable
from tests.cuda.test_layers import LAYERS
from tests.support.emulated import compile_emulated, device
from tests.support.emulated_device import emulated_device
from tests.support.random_graphs import joined_graph

__all__ = ["emulated_device"]


UNPRICED = (
    "canonical_form", "compact_materialization", "gemm_scale_fusion", "narrow_products", "gemm_epilogue_fusion",
    "traversal_fusion",
)  # fmt: skip
"""Passes whose choices do not go by the cost model, so that the operators are the same whatever that says."""


def test_launches_of_a_layer(monkeypatch: pytest.MonkeyPatch, emulated_device: Config) -> None:
    """Of HGT, which has products of several weights that share a launch."""
    libraries: list[ctypes.CDLL] = []
    load = CUDAExecutable._load

    def noted(self: CUDAExecutable, library: ctypes.CDLL) -> None:
        libraries.append(library)
        load(self, library)

    def launched() -> int:
        return sum(library.dacergnn_emulation_launches() for library in libraries)

    monkeypatch.setattr(CUDAExecutable, "_load", noted)
    raw = joined_graph(random.Random(3), 60, 300, 4, 3)
    config = replace(emulated_device, passes=UNPRICED)
    layer: Any = LAYERS["hgt"](raw.num_node_types, raw.num_edge_types, config)
    output = layer(torch.randn(60, 16, requires_grad=True), raw.hetero())
    found = [launched()]
    output.sum().backward()
    assert [*found, launched() - found[0]] == [4, 13]


@dataclass(eq=False)
class Operator:
    written_arrays: list[str]
    read_arrays: list[str]


def test_order() -> None:
    """Of operators of one step all that can start do; those of two wait, those that nobody awaits longest."""
    product, bias = Operator(["h"], ["x", "W"]), Operator(["grad_bias"], ["dy"])
    loop, weights, other = Operator(["g"], ["dy", "h"]), Operator(["dW"], ["x", "g"]), Operator(["a"], ["dW", "g"])
    operators: Any = [product, bias, loop, weights, other]
    steps = dict(zip(operators, (1, 2, 1, 2, 1), strict=True))
    assert launched_together(operators, steps) == [[product], [loop], [weights], [other], [bias]]
    assert launched_together(operators, {**steps, weights: 1, bias: 1}) == [[product, bias], [loop], [weights], [other]]


TOGETHER = """#include "dacergnn/cuda/sums.cuh"
using namespace dacergnn::cuda;
template <int Room, int Bytes = 8>
struct Mark {
    static constexpr int kLeastBlocks = Room;
    int* out;
    int by, more[Bytes / 4];
    __device__ void operator()(int64_t block = blockIdx.x) const {
        out[block * 32 + threadIdx.x] += by * int(block + 1);
    }
};
template <int Room, int Bytes = 8>
auto mark(int* out, int64_t blocks, int by) {
    return one_launch<32>(blocks, 0, Mark<Room, Bytes>{out, by, {}});
}
extern "C" void same(int* a) { start(mark<4>(a, 2, 1), mark<4>(a + 64, 0, 9), mark<4>(a + 64, 3, 10)); }
extern "C" void alike(int* a) { start(mark<4>(a, 1, 1), mark<4, 16>(a + 32, 2, 10), mark<4, 32>(a + 96, 2, 100)); }
extern "C" void unlike(int* a) { start(mark<4>(a, 1, 1), mark<3>(a + 32, 2, 10), mark<0>(a, 0, 7)); }
extern "C" void large(int* a) { start(mark<4, 3000>(a, 1, 1), mark<4, 2000>(a + 32, 2, 10), mark<4>(a + 96, 1, 5)); }
extern "C" void steps(int* a) {
    start(in_order(mark<4>(a, 1, 1), mark<4>(a, 2, 10)), mark<4>(a + 64, 1, 100), mark<4>(a + 96, 0, 1));
}
extern "C" void nothing(int* a) { start(mark<4>(a, 0, 1), mark<4>(a, 0, 1)); }
"""


@pytest.mark.parametrize(
    ("function", "launches", "expected"),
    [
        ("same", 1, [1, 2, 10, 20, 30]),
        ("alike", 1, [1, 10, 20, 100, 200]),
        ("unlike", 2, [1, 10, 20, 0, 0]),
        ("large", 2, [1, 10, 20, 5, 0]),
        ("steps", 2, [11, 20, 100, 0, 0]),
        ("nothing", 0, [0, 0, 0, 0, 0]),
    ],
)
def test_kernels_share_a_launch(function: str, launches: int, expected: list[int]) -> None:
    """Of one type, of several with the same room; not of different room, or with more arguments than a launch takes."""
    library = compile_emulated(TOGETHER)
    library.seed(launches)
    out = device(np.zeros((len(expected), 32), np.int32))
    before = library.dacergnn_emulation_launches()
    getattr(library, function)(ctypes.c_void_p(out.ctypes.data))
    assert library.dacergnn_emulation_launches() - before == launches
    np.testing.assert_array_equal(out, np.broadcast_to(np.array(expected)[:, None], out.shape))

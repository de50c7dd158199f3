"""What the CUDA expansions share: the headers, type aliases, and the tasklet around generated calls."""

from __future__ import annotations

from typing import Any

import dace
import dace.library
from dace.sdfg import nodes

from dacergnn.library_nodes.cpu import CPUHeaders, cpp_tasklet, index_alias

HEADERS = (
    "dacergnn/scalar.h",
    "dacergnn/cuda/segment_gemm.cuh",
    "dacergnn/cuda/segment_outer.cuh",
    "dacergnn/cuda/weight_product.cuh",
    "dacergnn/cuda/traversal.cuh",
)


@dace.library.environment
class CUDAHeaders(CPUHeaders):
    """Makes the kernel headers visible to generated code."""

    headers = {"frame": [f"include/{h}" for h in HEADERS]}


def cuda_tasklet(node: Any, arrays: dict[str, Any], code: str) -> nodes.Tasklet:
    """A tasklet of host code that launches kernels, in which types have names.

    ``Storage`` is the type of elements in memory, ``Value`` that of everything computed, ``Index`` that of encodings.
    """
    alias = index_alias(arrays).replace("Value", "Storage")
    return cpp_tasklet(node, arrays, f"{alias}using Value = dacergnn::cuda::Accumulator<Storage>;\n{code}")

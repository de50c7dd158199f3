"""Defines the target of CUDA devices: host code that launches kernels from templates in ``include/dacergnn/cuda``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dace
import dace.library
from dace.sdfg import nodes

from dacergnn.library_nodes.node import GraphOperator
from dacergnn.library_nodes.segment_gemm.device_plan import plan_device_gemm
from dacergnn.library_nodes.segment_gemm.plan import GemmPlan
from dacergnn.library_nodes.targets.cpp import Headers, cpp_tasklet, element_types, index_alias
from dacergnn.library_nodes.targets.cuda.gemm import gemm_launches
from dacergnn.library_nodes.targets.cuda.launches import Launches, started
from dacergnn.library_nodes.targets.cuda.nest import nest_launches
from dacergnn.library_nodes.traversal.device_nests import plan_device_nest
from dacergnn.library_nodes.traversal.device_plan import DevicePlan
from dacergnn.target import Target

HEADERS = (
    "dacergnn/scalar.h",
    "dacergnn/cuda/segment_gemm.cuh",
    "dacergnn/cuda/segment_outer.cuh",
    "dacergnn/cuda/weight_product.cuh",
    "dacergnn/cuda/traversal.cuh",
)
CALL = """
#include "include/dacergnn/cuda/packed_call.cuh"
extern "C" const char *call_{name}(const std::int64_t *packed) {{
  return dacergnn::cuda::packed_call(__program_{name}, packed);
}}
"""


@dace.library.environment
class CUDAHeaders(Headers):
    """Makes the headers of kernels visible to generated code."""

    headers = {"frame": [f"include/{h}" for h in HEADERS]}


def launches(operator: GraphOperator, arrays: Mapping[str, Any]) -> Launches:
    """Returns the host code that runs an operator."""
    plan = operator.plan(TARGET.name, arrays)
    if isinstance(plan, GemmPlan):
        return gemm_launches(plan)
    assert isinstance(plan, DevicePlan)
    return nest_launches(plan)


def _expand(operators: Sequence[GraphOperator], arrays: Sequence[Mapping[str, Any]]) -> nodes.Tasklet:
    """Returns a tasklet of host code that launches the kernels of operators that do not wait for each other.

    In it ``Storage`` is the type of elements in memory, ``Value`` is the type of all computed values, and ``Index`` is
    the type of encodings.
    """
    every = {name: desc for own in arrays for name, desc in own.items()}
    (storage,) = element_types(every)
    alias = f"using Storage = {storage.ctype};\n{index_alias(every)}"
    code = started([launches(o, own) for o, own in zip(operators, arrays, strict=True)])
    return cpp_tasklet(operators, every, f"{alias}using Value = dacergnn::cuda::Accumulator<Storage>;\n{code}")


TARGET = Target(
    name="cuda",
    device="cuda",
    elements=("float32", "float64", "bfloat16", "float16"),
    plan_nest=plan_device_nest,
    plan_gemm=plan_device_gemm,
    expand=_expand,
    environment=CUDAHeaders,
    executable="dacergnn.runtime.cuda_executable:CUDAExecutable",
    call=CALL,
    prelude='#include <cstdint>\n#define DACE_EXPORTED extern "C"',
    clock="include/dacergnn/cuda/clock.cuh",
    schedule_options={
        "schedule_by": ("groups", "edges"),
        "split_hubs": ("no", "yes"),
        "row_tile": ("0", "32", "128"),
        "least_blocks": ("0", "2", "4"),
    },
    hub_parts=2048,
    hub_rows=1024,
    starts_together=True,
    divides_inner_loops=False,
    has_architectures=True,
    has_tf32=True,
    start=1e6,
)

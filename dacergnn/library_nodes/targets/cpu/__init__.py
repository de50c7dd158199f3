"""Defines the target of processors: C++ with OpenMP, from the templates in ``include/dacergnn``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dace
import dace.library
from dace.sdfg import nodes

from dacergnn.library_nodes.node import GraphOperator
from dacergnn.library_nodes.segment_gemm.plan import GemmPlan, plan_gemm
from dacergnn.library_nodes.targets.cpp import Headers, cpp_tasklet, element_types, index_alias
from dacergnn.library_nodes.targets.cpu.gemm import gemm_code
from dacergnn.library_nodes.targets.cpu.nest import nest_code
from dacergnn.library_nodes.targets.cpu.shared_sum import shared_sum_code
from dacergnn.library_nodes.traversal.formats import FORMATS
from dacergnn.library_nodes.traversal.plan import NestPlan, SharedSumPlan
from dacergnn.library_nodes.traversal.planner import plan_nest
from dacergnn.native.precompiled import KERNELS
from dacergnn.native.processor import NATIVE_FLAGS
from dacergnn.target import Target

PRELUDE = """#include <cstdint>
#define DACE_EXPORTED extern "C"
namespace dacergnn { struct bfloat16; struct float16; }
namespace dace { using dacergnn::bfloat16; using dacergnn::float16; }"""
CALL = """
#include "include/dacergnn/packed_call.h"
extern "C" void call_{name}(const std::int64_t *packed) {{ dacergnn::packed_call(__program_{name}, packed); }}
"""


@dace.library.environment
class CPUHeaders(Headers):
    """Makes the headers of kernels visible to generated code."""

    headers = {"frame": [KERNELS]}


def kernel_code(operator: GraphOperator, arrays: Mapping[str, Any]) -> str:
    """Returns the kernel of an operator, C++ that uses the types Value and Index."""
    plan = operator.plan(TARGET.name, arrays)
    if isinstance(plan, GemmPlan):
        return gemm_code(plan)
    if isinstance(plan, SharedSumPlan):
        return f"{{\n{shared_sum_code(plan)}\n}}"
    assert isinstance(plan, NestPlan)
    return f"{{\n{nest_code(plan, operator.knobs)}\n}}"


def _expand(operators: Sequence[GraphOperator], arrays: Sequence[Mapping[str, Any]]) -> nodes.Tasklet:
    """Returns a tasklet of the kernel of an operator."""
    (operator,), (own,) = operators, arrays
    value = "double" if dace.float64 in element_types(own) else "float"
    return cpp_tasklet(operators, own, f"using Value = {value};\n{index_alias(own)}{kernel_code(operator, own)}")


TARGET = Target(
    name="cpu",
    device="cpu",
    elements=("float32", "float64", "bfloat16", "float16"),
    plan_nest=plan_nest,
    plan_gemm=plan_gemm,
    expand=_expand,
    processors=tuple(NATIVE_FLAGS),
    environment=CPUHeaders,
    call=CALL,
    prelude=PRELUDE,
    mixes_elements=True,
    adjacencies=tuple(FORMATS),
    schedule_options={
        "schedule_by": ("groups", "edges"),
        "split_hubs": ("no", "yes"),
        "tile_rows": ("64", "256", "1024", "4096"),
        "hub_rows": ("0", "1024", "4096", "16384", "65536"),
        "chunks": ("1", "4", "16", "64"),
        "row_tile": ("0", "2", "4", "8"),
        "depth_block": ("0", "128", "512", "2048"),
    },
    hub_parts=64,
    hub_rows=4096,
    makes_rows=True,
    tunes=True,
)

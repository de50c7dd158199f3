"""What the CUDA expansions share: the headers, type aliases, and the tasklet around generated calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dace
import dace.library
from dace.sdfg import nodes

from dacergnn.library_nodes.cpu import CPUHeaders, cpp_tasklet, index_alias
from dacergnn.library_nodes.device_code import started

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


def cuda_tasklet(operators: Sequence[Any], arrays: Sequence[dict[str, Any]]) -> nodes.Tasklet:
    """A tasklet of host code that launches the kernels of operators that do not wait for each other.

    In it ``Storage`` is the type of elements in memory, ``Value`` that of everything computed, ``Index`` that of
    encodings.

    Args:
        operators: The library nodes.
        arrays: For each of them the descriptors of its arrays by name.
    """
    found = {name: desc for own in arrays for name, desc in own.items()}
    alias = index_alias(found).replace("Value", "Storage")
    code = started([o.device_code(own) for o, own in zip(operators, arrays, strict=True)])
    return cpp_tasklet(operators, found, f"{alias}using Value = dacergnn::cuda::Accumulator<Storage>;\n{code}")


def run_together(operators: Sequence[Any], sdfg: dace.SDFG, state: dace.SDFGState) -> None:
    """Put one tasklet in the place of operators that do not wait for each other."""
    tasklet = cuda_tasklet(operators, [o.arrays(sdfg, state) for o in operators])
    tasklet.environments = {CUDAHeaders.full_class_path()}  # pyright: ignore[reportAttributeAccessIssue]
    state.add_node(tasklet)
    known: set[tuple[Any, ...]] = set()
    for edge in [e for o in operators for e in state.all_edges(o)]:
        source = tasklet if edge.src in operators else edge.src
        goal = tasklet if edge.dst in operators else edge.dst
        ends = (source, edge.src_conn, goal, edge.dst_conn)
        if ends not in known:
            known.add(ends)
            state.add_edge(*ends, edge.data)
    state.remove_nodes_from(operators)

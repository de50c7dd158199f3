"""Writes the CUDA of the plan of a product: calls of templates of ``cuda/segment_gemm.cuh`` and its neighbours."""

from __future__ import annotations

from dacergnn.library_nodes.node import PREFIX
from dacergnn.library_nodes.segment_gemm.plan import GemmPlan, Segments
from dacergnn.library_nodes.targets.cpp import extent, pointer, weight_product_arguments
from dacergnn.library_nodes.targets.cuda.epilogue import epilogue_code
from dacergnn.library_nodes.targets.cuda.launches import Launches


def gemm_launches(plan: GemmPlan) -> Launches:
    """Returns the host code that runs a product, C++ that uses the types Storage, Value and Index."""
    gemm, out = plan.gemm, PREFIX + plan.place
    x = f"{PREFIX}{gemm.x.name}, {pointer(plan.gathers[0])}"
    w = f"{PREFIX}{gemm.w.name}, {pointer(plan.gathers[1])}"
    if plan.segments is None:
        sizes = weight_product_arguments(plan)
        return Launches("", [f"{gemm.kind}<Storage, {sizes}>({x}, {w}, {extent(plan.space)}, {out})"])
    scale = "nullptr" if gemm.scale is None else PREFIX + gemm.scale.name
    types, order = _types(plan.segments), pointer(plan.segments.order)
    rows = extent(plan.segments.rows)
    sizes = f"Storage, {plan.heads}, {plan.k}, {plan.m}"
    if plan.form == "outer":
        return Launches(
            "", [f"segment_outer<{sizes}, {plan.scales}>({x}, {w}, {types}, {rows}, {order}, {scale}, {out})"]
        )
    finish = f"finish{out}"
    before = f"const auto {finish} = {epilogue_code(plan)};\n"
    reached, owner = extent(plan.reached), extent(plan.owner)
    sizes = f"{sizes}, {str(gemm.w.transposed).lower()}, {plan.scales}, {plan.local_elements}{_tile(plan)}"
    operands = f"{x}, {PREFIX}{gemm.w.name}, {types}, {rows}"
    result = f"{out}, {finish}"
    hubs = f", dacergnn::cuda::Chunks({extent(plan.space)})" if plan.hubs else ""
    zeros = f"zero_rows<Storage, {plan.width}"
    if plan.targets is None:
        calls = [f"segment_gemm<{sizes}>({operands}, {order}, {scale}, {result})"]
        if reached != owner:
            calls.append(f"{zeros}>({reached}, {owner}, {out})")
        return Launches(before, calls)
    targets = _listed(plan.targets)
    if plan.form == "sums":
        calls = [f"segment_gemm_of_sums<{sizes}>({operands}, {order}, {scale}, {targets}, {result}{hubs})"]
        if reached != owner:
            calls.append(f"{zeros}, {plan.local_elements}>({reached}, {owner}, {result})")
        return Launches(before, calls)
    results = f"{targets}, {reached}, {owner}, {result}{hubs}"
    if plan.summed is not None:
        call = f"segment_gemm_scatter_pairs<{sizes}>({operands}, {scale}, {_listed(plan.summed)}, {results})"
    else:
        call = f"segment_gemm_scatter<{sizes}>({operands}, {order}, {scale}, {results})"
    return Launches(before, [call])


def _tile(plan: GemmPlan) -> str:
    """Returns the template arguments of the tile, if it is not the usual one."""
    rows, least = plan.schedule.row_tile, plan.schedule.least_blocks
    return f", dacergnn::cuda::kTf32, {rows or 64}, {least}" if rows or least else ""


def _types(segments: Segments) -> str:
    """Returns the rows of a space in the order of their types, as an argument."""
    if segments.pointers is None:
        return f"dacergnn::cuda::EqualSegments<>{{{extent(segments.rows)}}}"
    return f"dacergnn::cuda::Segments<Index>{{{pointer(segments.pointers)}, {extent(segments.types)}}}"


def _listed(segments: Segments) -> str:
    """Returns the pointers and the list of the rows of a space by the row that they are added to."""
    return f"{pointer(segments.pointers)}, {pointer(segments.order)}"

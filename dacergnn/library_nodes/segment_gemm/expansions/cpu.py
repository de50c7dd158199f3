"""CPU expansion of SegmentGemm: an instance of a template of ``segment_gemm.h``."""

from __future__ import annotations

from typing import Any

import dace
import dace.library
from dace.sdfg import nodes
from dace.transformation.transformation import ExpandTransformation

from dacergnn.graph.spaces import MAPS, encoding_name, kind
from dacergnn.library_nodes.access import group_path, order_name, pointer_name, target_is_prefix
from dacergnn.library_nodes.cpu import CPUHeaders, cpp_tasklet, extent, index_alias
from dacergnn.library_nodes.form import WEIGHT_PRODUCTS, Gemm, Ref, Shape, ShapeOf, size
from dacergnn.library_nodes.node import PREFIX, row_shape, row_space
from dacergnn.library_nodes.parse import view_shape
from dacergnn.library_nodes.segment_gemm.expansions.epilogue import finish_code, stored_in, sums_start
from dacergnn.library_nodes.shapes import shape_of


def _pointer(name: str | None) -> str:
    return PREFIX + name if name else "nullptr"


def _index(space: str, ref: Ref) -> str:
    return _pointer(encoding_name("idx", space, ref.path) if ref.path else None)


def _runs(space: str, gemm: Gemm) -> str:
    """Returns which operand of an outer product repeats: edges of one type stand in the order of their destinations."""
    repeats = [kind(space) == "E" and ref.path == "dst" for ref in (gemm.x, gemm.w)]
    runs = {(True, False): "kOfX", (False, True): "kOfY"}.get((repeats[0], repeats[1]), "kNone")
    return f"dacergnn::Runs::{runs}"


def weight_product_sizes(gemm: Gemm, shapes: ShapeOf) -> str:
    """Template arguments of a product of weights: H, K, D, M, and which operands are transposed."""
    x, w = shape_of(gemm.x, shapes), shape_of(gemm.w, shapes)
    heads = (w[0] if len(w) == 3 else 1) if gemm.kind == "compose" else (gemm.dims or (1,))[0]
    m = w[-1] if gemm.kind == "compose" else w[1] // heads
    flags = [str(ref.transposed).lower() for ref in (gemm.x, gemm.w)]
    return ", ".join(map(str, (heads, x[0], x[1] // heads, m, *flags)))


def _weight_product(space: str, gemm: Gemm, out: str, shapes: ShapeOf) -> str:
    """The call of a function of ``weight_product.h``."""
    operands = ", ".join(f"{PREFIX}{ref.name}, {_index(space, ref)}" for ref in (gemm.x, gemm.w))
    sizes = weight_product_sizes(gemm, shapes)
    return f"dacergnn::{gemm.kind}<Value, Index, {sizes}>({operands}, {extent(space)}, {PREFIX}{out});"


@dace.library.expansion
class ExpandSegmentGemmCPU(ExpandTransformation):
    """One call of a register-tiled kernel; sizes are template arguments."""

    environments = [CPUHeaders]

    @staticmethod
    def expansion(node: Any, state: dace.SDFGState, sdfg: dace.SDFG) -> nodes.Tasklet:
        statement, gemm = node.gemm
        arrays = node.arrays(sdfg, state)
        if gemm.kind in WEIGHT_PRODUCTS:

            def shapes(ref: Ref) -> Shape:
                return view_shape(ref, row_shape(arrays[ref.name]))

            code = _weight_product(statement.space, gemm, statement.target.name, shapes)
            return cpp_tasklet([node], arrays, index_alias(arrays) + code)
        weights = statement.target if gemm.kind == "outer_prod" else gemm.w
        shape = row_shape(arrays[weights.name])
        heads, k, m = shape if len(shape) == 3 else (1, *shape)
        scale_shape = () if gemm.scale is None else row_shape(arrays[gemm.scale.name])
        scale_width = 0 if gemm.scale is None else size(scale_shape)
        space, group, target = statement.space, group_path(statement), statement.target
        types = extent(MAPS[space, group])
        bounds = pointer_name(space, group)
        start = "" if bounds else f"const Index bounds[2] = {{0, Index({extent(space)})}};\n"
        segments = f"{PREFIX + bounds if bounds else 'bounds'}, {types}"
        scale = "static_cast<const Value*>(nullptr)" if gemm.scale is None else PREFIX + gemm.scale.name
        place = stored_in(node.statements, node.locals)
        start_from, statements = sums_start(node.statements, node.locals, arrays)
        out, x = PREFIX + place, PREFIX + gemm.x.name
        tail = ""
        code = finish_code(statements, node.locals, place, arrays) if len(statements) > 1 else "dacergnn::Keep{}"
        finish = f", {code}" if len(node.statements) > 1 else ""
        if gemm.kind == "outer_prod":
            call = (
                f"segment_outer<Value, Index, {heads}, {k}, {m}, {scale_width}, {_runs(space, gemm)}>"
                f"({x}, {_index(space, gemm.x)}, {PREFIX + gemm.w.name}, {_index(space, gemm.w)}, {segments}, "
                f"{_pointer(order_name(space, group))}, {scale}, {out})"
            )
        else:
            template = f"<Value, Index, {heads}, {k}, {m}, {str(gemm.w.transposed).lower()}, {scale_width}>"
            operands = f"{x}, {_index(space, gemm.x)}, {PREFIX + gemm.w.name}, {segments}"
            owner = row_space(arrays[target.name])
            if target.path:
                call = (
                    f"segment_gemm_scatter{template}({operands}, "
                    f"{_pointer(order_name(space, group, target.path))}, {scale}, "
                    f"{_index(space, target)}, {PREFIX}{pointer_name(space, target.path)}, "
                    f"{extent(MAPS[space, target.path])}, {extent(owner)}, {out}{finish}"
                    f"{f', {PREFIX}{start_from}' if start_from else ''})"
                )
            else:
                call = (
                    f"segment_gemm{template}({operands}, {_pointer(order_name(space, group))}, {scale}, {out}{finish})"
                )
                if target_is_prefix(statement, owner):
                    width = size(row_shape(arrays[target.name]))
                    tail = (
                        f"\nstd::fill({out} + {extent(space)} * {width}, {out} + {extent(owner)} * {width}, Value(0));"
                    )
        return cpp_tasklet([node], arrays, f"{index_alias(arrays)}{start}dacergnn::{call};{tail}")

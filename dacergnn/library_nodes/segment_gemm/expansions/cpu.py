"""CPU expansion of SegmentGemm: an instance of a template of ``segment_gemm.h``."""

from __future__ import annotations

from typing import Any

import dace
import dace.library
from dace.sdfg import nodes
from dace.transformation.transformation import ExpandTransformation

from dacergnn.graph.spaces import MAPS, encoding_name
from dacergnn.library_nodes.access import group_path, order_name, pointer_name, target_is_prefix
from dacergnn.library_nodes.cpu import CPUHeaders, cpp_tasklet, extent, index_alias
from dacergnn.library_nodes.form import Ref, size
from dacergnn.library_nodes.node import PREFIX, row_shape, row_space


def _pointer(name: str | None) -> str:
    return f"static_cast<const Index*>({PREFIX + name if name else 'nullptr'})"


@dace.library.expansion
class ExpandSegmentGemmCPU(ExpandTransformation):
    """One call of a register-tiled kernel; sizes are template arguments."""

    environments = [CPUHeaders]

    @staticmethod
    def expansion(node: Any, state: dace.SDFGState, sdfg: dace.SDFG) -> nodes.Tasklet:
        statement, gemm = node.gemm
        arrays = node.arrays(sdfg, state)
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
        out, x = PREFIX + target.name, PREFIX + gemm.x.name

        def index(ref: Ref) -> str:
            return _pointer(encoding_name("idx", space, ref.path) if ref.path else None)

        tail = ""
        if gemm.kind == "outer_prod":
            call = (
                f"segment_outer<Value, Index, {heads}, {k}, {m}, {scale_width}>({x}, {index(gemm.x)}, "
                f"{PREFIX + gemm.w.name}, {index(gemm.w)}, {segments}, {_pointer(order_name(space, group))}, "
                f"{scale}, {out})"
            )
        else:
            template = f"<Value, Index, {heads}, {k}, {m}, {str(gemm.w.transposed).lower()}, {scale_width}>"
            operands = f"{x}, {index(gemm.x)}, {PREFIX + gemm.w.name}, {segments}"
            owner = row_space(arrays[target.name])
            if target.path:
                call = (
                    f"segment_gemm_scatter{template}({operands}, "
                    f"{_pointer(order_name(space, group, target.path))}, {scale}, "
                    f"{index(target)}, {PREFIX}{pointer_name(space, target.path)}, {extent(MAPS[space, target.path])}, "
                    f"{extent(owner)}, {out})"
                )
            else:
                call = f"segment_gemm{template}({operands}, {_pointer(order_name(space, group))}, {scale}, {out})"
                if target_is_prefix(statement, owner):
                    width = size(row_shape(arrays[target.name]))
                    tail = (
                        f"\nstd::fill({out} + {extent(space)} * {width}, {out} + {extent(owner)} * {width}, Value(0));"
                    )
        return cpp_tasklet(node, arrays, f"{index_alias(arrays)}{start}dacergnn::{call};{tail}")

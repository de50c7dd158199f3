"""CUDA expansion of SegmentGemm: calls of the templates of ``cuda/segment_gemm.cuh`` and its neighbours."""

from __future__ import annotations

from typing import Any

import dace
import dace.library
from dace.sdfg import nodes
from dace.transformation.transformation import ExpandTransformation

from dacergnn.graph.spaces import MAPS, encoding_name, kind, through
from dacergnn.library_nodes.access import group_path, index_name, order_name, pointer_name, target_is_prefix
from dacergnn.library_nodes.cpu import extent
from dacergnn.library_nodes.cuda import CUDAHeaders, cuda_tasklet
from dacergnn.library_nodes.device_code import ALIGNMENT, DeviceCode
from dacergnn.library_nodes.form import WEIGHT_PRODUCTS, Ref, Shape, Statement, size
from dacergnn.library_nodes.node import PREFIX, row_shape, row_space
from dacergnn.library_nodes.parse import view_shape
from dacergnn.library_nodes.segment_gemm.expansions.cpu import weight_product_sizes
from dacergnn.library_nodes.segment_gemm.expansions.cuda_epilogue import DeviceEpilogue
from dacergnn.library_nodes.segment_gemm.expansions.epilogue import stored_in

MOST_CHUNKS = 2048
"""Partial sums of hubs that there may be (``kMostChunks`` of ``hubs.cuh``)."""
MOST_BLOCKS, PARTIAL_ELEMENTS = 512, 1 << 22
"""Partial sums of weight gradients, and the elements of all of them beyond which there are fewer."""


def pair_path(statement: Statement) -> str | None:
    """The path to the pairs of target and type whose rows are added before they are multiplied, if they are."""
    path = statement.target.path
    summed = path in ("src", "dst") and kind(statement.space) == "E" and group_path(statement) == "etype"
    return f"{path}pair" if summed else None


class DeviceGemm:
    """The kernels of a SegmentGemm: ``code`` asks for them, ``encodings`` and ``scratch`` say what they need.

    ``scratch`` holds bytes per row of a row space ("ONE": besides).
    """

    def __init__(self, node: Any, arrays: dict[str, Any]) -> None:
        self.statement, self.gemm = node.gemm
        self.split_hubs: bool = node.split_hubs
        self.arrays = arrays
        self.encodings: list[str] = []
        self.scratch: dict[str, int] = {}
        self.space, self.group = self.statement.space, group_path(self.statement)
        self.epilogue = DeviceEpilogue(node.statements, node.locals, arrays)
        self.out = PREFIX + stored_in(node.statements, node.locals)
        self.finish = f"finish{self.out}"
        self.steps = 1
        self._item = max(arrays[self.statement.target.name].dtype.bytes, 4)  # of a sum
        if self.gemm.kind in WEIGHT_PRODUCTS:
            self.code = DeviceCode("", [self._weight_product()], steps=1)
        elif self.gemm.kind == "outer_prod":
            self.code = DeviceCode("", [self._outer()], steps=2)
        else:
            calls = self._linear()
            self.code = DeviceCode(f"const auto {self.finish} = {self.epilogue.code};\n", calls, self.steps)
        self.encodings = list(dict.fromkeys(self.encodings + self.epilogue.encodings))

    # Operands

    def _read(self, name: str | None) -> str:
        if name is None:
            return "nullptr"
        self.encodings.append(name)
        return PREFIX + name

    def _gather(self, ref: Ref) -> str:
        """The kernels know gathered rows, not a repeated one."""
        one = encoding_name("idx", self.space, "one") if ref.path == "one" else None
        return self._read(one or index_name(self.space, ref.path))

    def _segments(self, space: str, path: str) -> str:
        """The rows of a space in the order of their types."""
        if path == "one":
            return f"dacergnn::cuda::EqualSegments<>{{{extent(space)}}}"
        types = extent(MAPS[space, path])
        return f"dacergnn::cuda::Segments<Index>{{{self._read(pointer_name(space, path))}, {types}}}"

    def _scale(self) -> tuple[str, int]:
        """The array of scales, and how many a row has."""
        scale = self.gemm.scale
        return ("nullptr", 0) if scale is None else (PREFIX + scale.name, size(row_shape(self.arrays[scale.name])))

    def _needs(self, space: str, elements: int) -> None:
        self.scratch[space] = self.scratch.get(space, 0) + elements * self._item
        self.scratch["ONE"] = self.scratch.get("ONE", 0) + ALIGNMENT

    # Forms

    def _weight_product(self) -> str:
        def shapes(ref: Ref) -> Shape:
            return view_shape(ref, row_shape(self.arrays[ref.name]))

        gemm = self.gemm
        operands = ", ".join(f"{PREFIX}{ref.name}, {self._gather(ref)}" for ref in (gemm.x, gemm.w))
        sizes = weight_product_sizes(gemm, shapes)
        return f"{gemm.kind}<Storage, {sizes}>({operands}, {extent(self.space)}, {self.out})"

    def _outer(self) -> str:
        gemm, shape = self.gemm, row_shape(self.arrays[self.statement.target.name])
        heads, k, m = shape if len(shape) == 3 else (1, *shape)
        scale, scales = self._scale()
        operands = ", ".join(f"{PREFIX}{ref.name}, {self._gather(ref)}" for ref in (gemm.x, gemm.w))
        blocks = min(max(PARTIAL_ELEMENTS // size(shape), 8), MOST_BLOCKS)
        self._needs("ONE", blocks * size(shape))
        self._needs(MAPS[self.space, self.group], size(shape))
        return (
            f"segment_outer<Storage, {heads}, {k}, {m}, {scales}>"
            f"({operands}, {self._segments(self.space, self.group)}, {extent(self.space)}, "
            f"{self._read(order_name(self.space, self.group))}, {scale}, {self.out})"
        )

    def _linear(self) -> list[str]:
        gemm, space, path = self.gemm, self.space, self.statement.target.path
        shape = row_shape(self.arrays[gemm.w.name])
        heads, k, m = shape if len(shape) == 3 else (1, *shape)
        width = heads * (k if gemm.w.transposed else m)
        scale, scales = self._scale()
        owner = extent(row_space(self.arrays[self.statement.target.name]))
        local = self.epilogue.local_elements
        template = f"<Storage, {heads}, {k}, {m}, {str(gemm.w.transposed).lower()}, {scales}, {local}>"
        operands = f"({PREFIX}{gemm.x.name}, {self._gather(gemm.x)}, {PREFIX}{gemm.w.name}"
        chunks = ""
        if path and self.split_hubs:
            chunks = f", dacergnn::cuda::Chunks({extent(space)})"
            self._needs("ONE", MOST_CHUNKS * heads * max(k, m))
            self.steps += 1
        if not path:
            call = (
                f"segment_gemm{template}{operands}, {self._segments(space, self.group)}, {extent(space)}, "
                f"{self._read(order_name(space, self.group))}, {scale}, {self.out}, {self.finish})"
            )
            if target_is_prefix(self.statement, row_space(self.arrays[self.statement.target.name])):
                return [call, f"zero_rows<Storage, {width}>({extent(space)}, {owner}, {self.out})"]
            return [call]
        reached, typed = MAPS[space, path], self._type_of_target()
        if typed is not None:  # every target is a sum of rows, times the weight of its type
            call = (
                f"segment_gemm_of_sums{template}{operands}, {self._segments(reached, typed)}, {extent(reached)}, "
                f"{self._read(order_name(reached, typed))}, {scale}, {self._read(pointer_name(space, path))}, "
                f"{self._read(order_name(space, path))}, {self.out}, {self.finish}{chunks})"
            )
            if extent(reached) != owner:
                zeros = f"zero_rows<Storage, {width}, {local}>({extent(reached)}, {owner}, {self.out}, {self.finish})"
                return [call, zeros]
            return [call]
        self.steps += 1
        pair = pair_path(self.statement)
        if pair is not None:
            pairs = MAPS[space, pair]
            self._needs(pairs, width)
            return [
                f"segment_gemm_scatter_pairs{template}{operands}, {self._segments(pairs, 'etype')}, {extent(pairs)}, "
                f"{scale}, {self._read(pointer_name(space, pair))}, {self._read(order_name(space, pair))}, "
                f"{self._targets(pairs, path)}, {extent(reached)}, {owner}, {self.out}, {self.finish}{chunks})"
            ]
        self._needs(space, width)
        return [
            f"segment_gemm_scatter{template}{operands}, {self._segments(space, self.group)}, {extent(space)}, "
            f"{self._read(order_name(space, self.group))}, {scale}, {self._targets(space, path)}, {extent(reached)}, "
            f"{owner}, {self.out}, {self.finish}{chunks})"
        ]

    def _targets(self, space: str, path: str) -> str:
        """Pointer and list of the rows of a space by the row that a path leads to."""
        return f"{self._read(pointer_name(space, path))}, {self._read(order_name(space, path))}"

    def _type_of_target(self) -> str | None:
        """The path from the target to the type of the weight, where targets do not outnumber rows by far."""
        path = self.statement.target.path
        return None if path in ("edge", "typedsrc") else through(self.space, path, self.group)


@dace.library.expansion
class ExpandSegmentGemmCUDA(ExpandTransformation):
    """Calls that launch the kernels; sizes are template arguments."""

    environments = [CUDAHeaders]

    @staticmethod
    def expansion(node: Any, state: dace.SDFGState, sdfg: dace.SDFG) -> nodes.Tasklet:
        arrays = node.arrays(sdfg, state)
        return cuda_tasklet([node], [arrays])

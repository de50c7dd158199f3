"""CUDA expansion of Traversal: crews of threads over groups and rows, or sums into a few long groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import dace
import dace.library
from dace.sdfg import nodes
from dace.transformation.transformation import ExpandTransformation

from dacergnn.library_nodes.access import is_few
from dacergnn.library_nodes.cpu import extent
from dacergnn.library_nodes.cuda import CUDAHeaders, cuda_tasklet
from dacergnn.library_nodes.device_code import ALIGNMENT, DeviceCode
from dacergnn.library_nodes.node import PREFIX
from dacergnn.library_nodes.traversal.expansions.cuda_hubs import DividedNest
from dacergnn.library_nodes.traversal.expansions.cuda_lanes import Layout
from dacergnn.library_nodes.traversal.expansions.cuda_nest import DeviceNest
from dacergnn.library_nodes.traversal.expansions.cuda_statements import MERGE
from dacergnn.library_nodes.traversal.nest import Loop, simplest

CREWS = {"groups": 8, "edges": 4}
"""Threads that share a group of narrow rows, by the schedule: "edges" where groups are short."""


STRIP = 8
"""Elements of a wide row that a thread sums up; two runs at least, so that it has more than one read under way."""


class DeviceReduction(DeviceNest):
    """A lone reduction into types: few groups, which all threads share. Of very wide rows, blocks have strips."""

    def _layout(self, widths: Sequence[int]) -> Layout:
        layout = super()._layout(widths)
        return replace(layout, strip=max(STRIP, 2 * layout.vector))

    @property
    def _target(self) -> str:
        return self.statements[-1].target.name

    @property
    def _limit(self) -> int:
        """Chunks of rows at most: fewer where the sums of each are large."""
        return min(1024, max(64, (1 << 22) // self.homes[self._target].width))

    @property
    def scratch(self) -> list[tuple[str, int]]:
        width = self.homes[self._target].width
        return [("ONE", self._limit * width), (self.levels.spaces[0], width)]

    def _body(self) -> str:
        (loop,), inner = self.loops, self.levels.spaces[1]
        (rows,) = (item for item in loop.items if isinstance(item, Loop))
        self.around[loop.space] = loop
        lines = [*self._declarations(loop), self._rows(rows, f"begin_{inner}", f"end_{inner}")]
        lines += [self.merged(rows.statements()[-1], rows), self.stored_row(self._target, "into")]
        del self.around[loop.space]
        return "\n".join(lines)

    def _write(self) -> DeviceCode:
        outer, inner = self.levels.spaces
        width, combine = self.homes[self._target].width, MERGE[self.statements[-1].op]
        partials = f"dacergnn::cuda::take<Value>(({self._limit} + {extent(outer)}) * {width})"
        call = (
            f"reduce_chunks<dacergnn::cuda::{combine}, {self.held}>({self._groups()}, {extent(outer)}, "
            f"{extent(inner)}, {self._limit}, {width}, {self._held(self._target).strips(width)}, {partials}, "
            f"{PREFIX}{self._target}, [=] __device__(const dacergnn::cuda::Block crew, const int64_t begin_{inner}, "
            f"const int64_t end_{inner}, const int64_t row_{outer}, const int strip, Value* const into) {{\n"
            f"(void)row_{outer};\n(void)strip;\n{self._body()}\n}})"
        )
        return DeviceCode(self._before(), [call], steps=2)


def device_kernel(node: Any, arrays: dict[str, Any]) -> DeviceNest:
    """The kernel of a Traversal, given the descriptors of its arrays."""
    (first, *others) = simplest(node.space, node.statements)
    kind = DividedNest if node.split_hubs else DeviceNest
    if not others and is_few(first.target.path):
        kind = DeviceReduction
    crew = CREWS[node.schedule_by]
    return kind(node.space, [first, *others], arrays, node.locals, smallest_crew=crew)


def cuda_scratch(node: Any, arrays: dict[str, Any]) -> dict[str, int]:
    """Bytes of scratch memory that the kernel of a Traversal takes per row of a row space ("ONE": besides)."""
    kernel = device_kernel(node, arrays)
    item = max(kernel.dtype.bytes, 4)
    found: dict[str, int] = {}
    for space, elements in kernel.scratch:
        found[space] = found.get(space, 0) + elements * item
        found["ONE"] = found.get("ONE", 0) + ALIGNMENT
    return found


@dace.library.expansion
class ExpandTraversalCUDA(ExpandTransformation):
    """CUDA from the templates of ``traversal.cuh``."""

    environments = [CUDAHeaders]

    @staticmethod
    def expansion(node: Any, state: dace.SDFGState, sdfg: dace.SDFG) -> nodes.Tasklet:
        arrays = node.arrays(sdfg, state)
        return cuda_tasklet([node], [arrays])

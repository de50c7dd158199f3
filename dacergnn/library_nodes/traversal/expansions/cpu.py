"""CPU expansion of Traversal: loop nests over tiles and groups, or sums into a few long groups."""

from __future__ import annotations

from typing import Any

import dace
import dace.library
from dace.sdfg import nodes
from dace.transformation.transformation import ExpandTransformation

from dacergnn.graph.spaces import MAPS
from dacergnn.library_nodes.access import index_name, order_name, pointer_name, shares_groups, statement_encodings
from dacergnn.library_nodes.cpu import CPUHeaders, cpp_tasklet, extent, index_alias
from dacergnn.library_nodes.emit import Emitter, row_elements
from dacergnn.library_nodes.form import Ref, Shape, Statement, size
from dacergnn.library_nodes.node import PREFIX, row_shape
from dacergnn.library_nodes.parse import view_shape
from dacergnn.library_nodes.traversal.expansions.csc_kernel import CscKernel
from dacergnn.library_nodes.traversal.expansions.format_kernels import (
    CooHubKernel,
    CooKernel,
    EllKernel,
    HybridKernel,
)
from dacergnn.library_nodes.traversal.expansions.hub_kernel import HubKernel
from dacergnn.library_nodes.traversal.expansions.nest_kernel import NestKernel, Sharing

KERNELS = {"csr": NestKernel, "coo": CooKernel, "ell": EllKernel, "hybrid": HybridKernel}


class SharedSumKernel:
    """The C++ of a sum over types: few groups, which several threads share."""

    def __init__(self, statement: Statement, arrays: dict[str, Any]) -> None:
        self.statement = statement
        self.arrays = arrays

    @property
    def encodings(self) -> list[str]:
        return statement_encodings(self.statement)

    def shapes(self, ref: Ref) -> Shape:
        return view_shape(ref, row_shape(self.arrays[ref.name]))

    def code(self) -> str:
        """The kernel, a block of C++ in which Value and Index are defined."""
        statement = self.statement
        target, path, space = self.shapes(statement.target), statement.target.path, statement.space
        width, work = size(target), row_elements(self.shapes, [statement.expr, statement.target])
        rows: dict[tuple[str, str], str] = {}
        lines: list[str] = []

        def pointer(ref: Ref) -> str:
            key = (ref.name, ref.path)
            if key not in rows:
                rows[key] = f"row{len(rows)}"
                name = index_name(space, ref.path)
                row = f"int64_t({PREFIX}{name}[i])" if name else ("i" if ref.path == "" else "0")
                lines.append(f"const Value* {rows[key]} = {PREFIX}{ref.name} + {row} * {self._width(ref)};")
            return rows[key]

        body = Emitter(self.shapes, pointer).loops(statement.expr, target, lambda at, value: f"acc[{at}] += {value};")
        ids, bounds = order_name(space, path), pointer_name(space, path)
        at = f"int64_t({PREFIX}{ids}[p])" if ids else "p"
        start = "" if bounds else f"const Index bounds[2] = {{0, Index({extent(space)})}};\n"
        return (
            f"{start}dacergnn::reduce_segments<Value, Index, {width}>({PREFIX + bounds if bounds else 'bounds'}, "
            f"{extent(MAPS[space, path])}, {work}, {PREFIX}{statement.target.name}, "
            f"[=](const int64_t p, Value* acc) {{\nconst int64_t i = {at};\n(void)i;\n"
            + "\n".join([*lines, body])
            + "\n});"
        )

    def _width(self, ref: Ref) -> int:
        return size(row_shape(self.arrays[ref.name]))


def traversal_kernel(node: Any, arrays: dict[str, Any]) -> SharedSumKernel | NestKernel:
    """The kernel of a Traversal, given the descriptors of its arrays."""
    statements = node.statements
    if len(statements) == 1 and shares_groups(statements[0]):
        return SharedSumKernel(statements[0], arrays)
    body = (node.space, statements, arrays, node.locals)
    if node.adjacency == "csc":
        return CscKernel(*body)
    kernel = KERNELS[node.adjacency]
    hubs = None
    if node.adjacency == "coo":
        hubs = CooHubKernel(*body)
    elif node.adjacency == "csr" and node.split_hubs:
        hubs = HubKernel(*body)
    sharing = Sharing(node.tile_rows, node.hub_rows, node.chunks)
    return kernel(*body, by_edges=node.schedule_by == "edges", sharing=sharing, hubs=hubs)


@dace.library.expansion
class ExpandTraversalCPU(ExpandTransformation):
    """OpenMP C++ from the templates of ``parallel.h``."""

    environments = [CPUHeaders]

    @staticmethod
    def expansion(node: Any, state: dace.SDFGState, sdfg: dace.SDFG) -> nodes.Tasklet:
        arrays = node.arrays(sdfg, state)
        return cpp_tasklet([node], arrays, f"{index_alias(arrays)}{{\n{traversal_kernel(node, arrays).code()}\n}}")

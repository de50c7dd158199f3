"""CPU expansion of Traversal: the body becomes lambdas that the loop templates of ``parallel.h`` run."""

from __future__ import annotations

from typing import Any

import dace
import dace.library
from dace.sdfg import nodes
from dace.transformation.transformation import ExpandTransformation

from dacergnn.graph.spaces import MAPS
from dacergnn.library_nodes.access import (
    group_path,
    index_name,
    is_few,
    order_name,
    pointer_name,
    shares_groups,
    target_is_prefix,
)
from dacergnn.library_nodes.cpu import CPUHeaders, cpp_tasklet, extent, index_alias
from dacergnn.library_nodes.emit import Emitter, row_elements
from dacergnn.library_nodes.form import Ref, Shape, Statement, size
from dacergnn.library_nodes.node import PREFIX, row_shape, row_space
from dacergnn.library_nodes.parse import view_shape

_PREFETCH_DISTANCE = 6
_IDENTITY = {
    "+=": "Value(0)",
    "max=": "-std::numeric_limits<Value>::infinity()",
    "min=": "std::numeric_limits<Value>::infinity()",
}
_COMBINE = {
    "=": "{0} = {1};",
    "+=": "{0} += {1};",
    "max=": "{0} = dacergnn::maximum({0}, {1});",
    "min=": "{0} = dacergnn::minimum({0}, {1});",
}


class StatementKernel:
    """The C++ of one statement, given the descriptors of the arrays it names."""

    def __init__(self, statement: Statement, arrays: dict[str, Any]) -> None:
        self.statement = statement
        self.arrays = arrays
        self.target = self.shapes(statement.target)
        self.group = group_path(statement)
        self.rows: dict[tuple[str, str], str] = {}

    def shapes(self, ref: Ref) -> Shape:
        return view_shape(ref, row_shape(self.arrays[ref.name]))

    def _row(self, ref: Ref) -> str:
        """Index of the row that a reference leads to, as C++."""
        if ref.path == "":
            return "i"
        if ref.path == "one":
            return "0"
        if ref.path == self.group and not shares_groups(self.statement):
            return "group"
        return f"int64_t({PREFIX}{index_name(self.statement.space, ref.path)}[i])"

    def _pointer(self, ref: Ref) -> str:
        key = (ref.name, ref.path)
        return self.rows.setdefault(key, f"row{len(self.rows)}")

    def _body(self, destination: str) -> str:
        """Loops over the elements of one row, storing into the row that ``destination`` points to."""
        combine = _COMBINE[self.statement.op]
        loops = Emitter(self.shapes, self._pointer).loops(
            self.statement.expr, self.target, lambda at, value: combine.format(f"{destination}[{at}]", value)
        )
        pointers = [
            f"const Value* {variable} = {PREFIX}{name} + "
            f"{self._row(Ref(name, path))} * {size(row_shape(self.arrays[name]))};"
            for (name, path), variable in self.rows.items()
        ]
        return "\n".join([*pointers, loops])

    def _prefetches(self, ids: str, ordered: bool) -> str:
        """Prefetches of the wide rows that a later edge of the group gathers."""
        lines: list[str] = []
        for ref in dict.fromkeys(self.statement.reads):
            width = size(row_shape(self.arrays[ref.name]))
            if ref.path == self.group or is_few(ref.path) or width < 16 or (ref.path == "" and not ordered):
                continue
            index = f"{PREFIX}{index_name(self.statement.space, ref.path)}[{ids}]" if ref.path else ids
            lines.append(f"dacergnn::prefetch_row<{width}>({PREFIX}{ref.name} + int64_t({index}) * {width});")
        if not lines:
            return ""
        return f"if (p + {_PREFETCH_DISTANCE} < end) {{\n" + "\n".join(lines) + "\n}\n"

    def code(self) -> str:
        """The kernel, a block of C++ in which Value and Index are defined."""
        statement, width = self.statement, size(self.target)
        work = row_elements(self.shapes, [statement.expr, statement.target])
        out = PREFIX + statement.target.name
        if not self.group:
            body = self._body("out")
            text = (
                f"dacergnn::parallel_for({extent(statement.space)}, {work}, [=](const int64_t i) {{\n"
                f"Value* out = {out} + i * {width};\n{body}\n}});"
            )
            return text + self._tail(statement.space)
        space = MAPS[statement.space, self.group]
        pointer, order = pointer_name(statement.space, self.group), order_name(statement.space, self.group)
        body = self._body("acc")
        at = (lambda p: f"int64_t({PREFIX}{order}[{p}])") if order else (lambda p: p)
        start = "" if pointer else f"const Index bounds[2] = {{0, Index({extent(statement.space)})}};\n"
        bounds = PREFIX + pointer if pointer else "bounds"
        if shares_groups(statement):
            text = (
                f"{start}dacergnn::reduce_segments<Value, Index, {width}>({bounds}, {extent(space)}, {work}, {out}, "
                f"[=](const int64_t p, Value* acc) {{\nconst int64_t i = {at('p')};\n(void)i;\n{body}\n}});"
            )
            return text + self._tail(space)
        prefetch = self._prefetches(at(f"p + {_PREFETCH_DISTANCE}"), order is not None)
        empty = "" if statement.op == "+=" else f"if (begin == end) std::fill_n(acc, {width}, Value(0));\n"
        text = (
            f"{start}dacergnn::parallel_groups({bounds}, {extent(space)}, {work}, "
            "[=](const int64_t group, const int64_t begin, const int64_t end) {\n"
            f"Value acc[{width}];\nstd::fill_n(acc, {width}, {_IDENTITY[statement.op]});\n"
            f"for (int64_t p = begin; p < end; ++p) {{\nconst int64_t i = {at('p')};\n(void)i;\n{prefetch}{body}\n}}\n"
            f"{empty}std::copy_n(acc, {width}, {out} + group * {width});\n}});"
        )
        return text + self._tail(space)

    def _tail(self, reached: str) -> str:
        """Zeros for the rows of the target that the map does not reach."""
        owner = row_space(self.arrays[self.statement.target.name])
        if not target_is_prefix(self.statement, owner):
            return ""
        name, width = PREFIX + self.statement.target.name, size(self.target)
        return f"\nstd::fill({name} + {extent(reached)} * {width}, {name} + {extent(owner)} * {width}, Value(0));"


@dace.library.expansion
class ExpandTraversalCPU(ExpandTransformation):
    """OpenMP C++: one loop template instance per statement."""

    environments = [CPUHeaders]

    @staticmethod
    def expansion(node: Any, state: dace.SDFGState, sdfg: dace.SDFG) -> nodes.Tasklet:
        arrays = node.arrays(sdfg, state)
        blocks = [StatementKernel(s, arrays).code() for s in node.statements]
        code = "\n".join(f"{{\n{block}\n}}" for block in blocks)
        return cpp_tasklet(node, arrays, index_alias(arrays) + code)

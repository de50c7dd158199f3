"""The CUDA of what a SegmentGemm does with a finished row of its result: a warp shares the elements of the row."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from dacergnn.library_nodes.access import index_name
from dacergnn.library_nodes.form import Op, Ref, Shape, Statement, size
from dacergnn.library_nodes.node import PREFIX, row_shape
from dacergnn.library_nodes.parse import view_shape
from dacergnn.library_nodes.segment_gemm.expansions.epilogue import stored_in
from dacergnn.library_nodes.shapes import shape_of
from dacergnn.library_nodes.traversal.expansions.cuda_lanes import MAX_LANES, LaneEmitter, Layout, lane_sums, sums_first


class DeviceEpilogue:
    """``code`` is a functor (row index, row of the product, memory of the warp) that runs the statements after it.

    The memory of the warp has ``local_elements`` elements; ``encodings`` are those that the statements read.
    """

    def __init__(self, statements: Sequence[Statement], local_arrays: Sequence[str], arrays: dict[str, Any]) -> None:
        self.arrays = arrays
        self.encodings: list[str] = []
        self.local_elements = 0
        self._sums: dict[str, Shape] = {}
        # One buffer: rows are finished in place, element by element.
        places = dict.fromkeys((statements[0].target.name, stored_in(statements, local_arrays)), "row")
        for name in dict.fromkeys(s.target.name for s in statements[1:]):
            if name in local_arrays and name not in places:
                places[name] = f"(local + {self.local_elements})"
                self.local_elements += size(row_shape(arrays[name]))
        self._places = places
        self.code = "dacergnn::cuda::Keep()"
        if len(statements) > 1:
            lines = "\n".join(self._statement(s) for s in statements[1:])
            self.code = (
                "[=] __device__(const int64_t i, Storage* const row, Storage* const local) {\n"
                f"(void)i, (void)row, (void)local;\n{lines}\n}}"
            )

    def _shapes(self, ref: Ref) -> Shape:
        return self._sums[ref.name] if ref.name in self._sums else view_shape(ref, row_shape(self.arrays[ref.name]))

    def _address(self, space: str, name: str, path: str) -> str:
        if path == "" and name in self._places:
            return self._places[name]
        index = index_name(space, path)
        if index and index not in self.encodings:
            self.encodings.append(index)
        row = "0" if path == "one" else f"int64_t({PREFIX}{index}[i])" if index else "i"
        return f"{PREFIX}{name} + {row} * {size(row_shape(self.arrays[name]))}"

    def _statement(self, statement: Statement) -> str:
        pointers: dict[tuple[str, str], str] = {}

        def name(shape: Shape) -> str:
            found = next(n for n in (f"sum{k}" for k in count()) if n not in self.arrays and n not in self._sums)
            self._sums[found] = shape
            return found

        def read(ref: Ref, at: str, same: bool) -> str:
            if ref.name in self._sums:
                return f"{ref.name}[{at}]"
            row = pointers.setdefault((ref.name, ref.path), f"row{len(pointers)}")
            return f"Value({row}[{'at' if same else at}])"

        emitter = LaneEmitter(self._shapes, Layout(MAX_LANES), read)
        lines: list[str] = []
        *sums, rest = sums_first(statement, self._shapes, name)
        for part in sums:
            assert isinstance(part.expr, Op)
            own, body = part.target.name, part.expr.args[0]
            code = lane_sums(emitter, own, body, shape_of(body, self._shapes))
            lines += [f"Value {own}[{size(self._sums[own])}];", "{", code, "}"]
        shape = self._shapes(rest.target)
        if shape:
            lines.append(emitter.spread(rest.expr, shape, lambda value: f"out[at] = Storage({value});"))
        else:
            code = emitter.loops(rest.expr, shape, lambda _, value: f"*out = Storage({value});")
            lines.append(f"if (dacergnn::cuda::lane() == 0) {{\n{code}\n}}")
        target = self._address(statement.space, rest.target.name, "")
        rows = [
            f"const Storage* const {variable} = {self._address(statement.space, array, path)};"
            for (array, path), variable in pointers.items()
        ]
        return "\n".join(["{", f"Storage* const out = {target};", *rows, *lines, "__syncwarp();", "}"])

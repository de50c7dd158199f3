"""C++ of a sum over edges that run by their other end point: every thread adds to a range of the targets."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from dacergnn.graph.spaces import MAPS
from dacergnn.library_nodes.cpu import extent
from dacergnn.library_nodes.emit import row_elements
from dacergnn.library_nodes.form import Statement, size
from dacergnn.library_nodes.node import PREFIX
from dacergnn.library_nodes.traversal.expansions.nest_kernel import NestKernel
from dacergnn.library_nodes.traversal.expansions.storage import Home
from dacergnn.library_nodes.traversal.formats import OTHER_END
from dacergnn.library_nodes.traversal.nest import Levels, Loop


class CscKernel(NestKernel):
    """One loop over all edges in compressed columns, then one over the rows of the targets.

    Each thread passes over all edges and takes those that lead to its range of targets: nothing is written by two
    threads, and every sum has the order of the columns.
    """

    flattens = False

    def __init__(
        self, mapping: str, statements: Sequence[Statement], arrays: dict[str, Any], local_arrays: Collection[str] = ()
    ) -> None:
        super().__init__(mapping, statements, arrays, local_arrays)
        self.targets, inner = self.levels.spaces
        self.path = self.levels.up(inner, self.targets) or ""
        other = OTHER_END[self.path]
        self.rows, self.columns = self.levels, Levels((MAPS[inner, other], inner))
        self.statements = list(statements)
        edges = Loop(inner, [s for s in statements if s.space == inner])
        rows = Loop(self.targets, [s for s in statements if s.space != inner])
        self.loops = [Loop(self.columns.spaces[0], [edges]), rows]
        self.homes = {}
        for statement in statements:
            name, summed = statement.target.name, statement.target.path != ""
            loop = rows if summed or statement.space == self.targets else edges
            width = size(self.shapes(statement.target))
            self.homes[name] = Home(loop.space, width, loop, None, name not in local_arrays, summed)

    def code(self) -> str:
        outer, inner = self.columns.spaces
        work = row_elements(self.shapes, [e for s in self.statements for e in (s.expr, s.target)])
        self.levels = self.columns
        body = [*self._zeros(), self._loop(self.loops[0], f"row_{outer} = 0", f"row_{outer} < {extent(outer)}")]
        self.levels = self.rows
        if self.loops[1].items:
            body.append(self._loop(self.loops[1], f"row_{self.targets} = first", f"row_{self.targets} < last"))
        sizes = f"{extent(self.targets)}, {extent(inner)}, {work}"
        return (
            f"{self._streams()}struct Rows;\ndacergnn::parallel_targets({sizes}, "
            "[=](const int64_t first, const int64_t last) {\n" + "\n".join(body) + f"\n{self._end()}}});{self._tails()}"
        )

    @property
    def _reduced(self) -> list[tuple[str, Home]]:
        return [(name, home) for name, home in self.homes.items() if home.reduced]

    def _zeros(self) -> list[str]:
        """Returns where the sums of the range stand, zeros first: in memory, or in scratch where nothing else reads
        them."""
        kept = sum(home.width for _, home in self._reduced if not home.stored)
        lines = [f"Value* const rows = dacergnn::scratch<Rows, Value>((last - first) * {kept});"] if kept else []
        offset = 0
        for name, home in self._reduced:
            place = f"{PREFIX}{name} + first * {home.width}" if home.stored else f"rows + (last - first) * {offset}"
            offset += 0 if home.stored else home.width
            lines.append(f"Value* const sums_{name} = {place};")
            lines.append(f"std::fill_n(sums_{name}, (last - first) * {home.width}, Value(0));")
        return lines

    def _declarations(self, loop: Loop) -> list[str]:
        inner = self.rows.spaces[1]
        lines: list[str] = []
        row = f"row_{self.targets}"
        if loop.space == inner:
            lines.append(f"const int64_t {row} = {self._row_at(inner, f'at_{inner}', self.path)};")
            lines.append(f"if ({row} < first || {row} >= last) continue;")
        if loop.space in (inner, self.targets):
            for name, home in self._reduced:
                lines.append(f"Value* const own_{name} = sums_{name} + ({row} - first) * {home.width};")
        return [*lines, *super()._declarations(loop)]

    def _prefetches(self, loop: Loop, variable: str) -> str:
        return ""

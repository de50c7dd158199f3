"""C++ of a loop nest for a single group of very many rows: all threads share its rows."""

from __future__ import annotations

from dacergnn.library_nodes.traversal.expansions.nest_kernel import NestKernel
from dacergnn.library_nodes.traversal.expansions.reductions import COMBINE, accumulator, each
from dacergnn.library_nodes.traversal.nest import Loop


class HubKernel(NestKernel):
    """A nest whose innermost loops run in chunks of rows (``split_rows`` of ``parallel.h``).

    Every chunk has accumulators of its own for the reductions of its loop, which are merged in the order of the chunks:
    results do not depend on the number of threads. No sums run over the rows of a tile (``by_edges``).
    """

    def _rows(self, loop: Loop, begin: str, end: str) -> str:
        if any(isinstance(item, Loop) for item in loop.items):
            return super()._rows(loop, begin, end)  # the loops inside of it are divided
        reduced = [s for s in loop.statements() if s.target.path]
        before: list[str] = []
        after: list[str] = []
        merged: list[str] = []
        width = 0
        for statement in reduced:
            own, size = f"own_{statement.target.name}", self.homes[statement.target.name].width
            before.append(accumulator(statement, size))
            after.append(each(size, f"(into + {width})[f] = {own}[f];"))
            merged.append(each(size, COMBINE[statement.op].format(f"{own}[f]", f"(partial + {width})[f]")))
            width += size
        rows = super()._rows(loop, "from", "to")
        return (
            f"dacergnn::split_rows<Value>({begin}, {end}, {width}, "
            "[=](const int64_t from, const int64_t to, Value* const into) {\n"
            + "\n".join([*before, rows, *after])
            + "\n}, [&](const Value* const partial) {\n"
            + "\n".join(merged)
            + "\n});"
        )

"""C++ of loop nests over edges in COO, ELLPACK and the hybrid of CSR and COO, in place of compressed rows.

All are for nests of two levels (`traversal.formats`). Their drivers stand in ``formats.h``.
"""

from __future__ import annotations

from dacergnn.graph.spaces import encoding_name
from dacergnn.library_nodes.access import ordered_index_name
from dacergnn.library_nodes.cpu import extent
from dacergnn.library_nodes.traversal.expansions.hub_kernel import HubKernel
from dacergnn.library_nodes.traversal.expansions.nest_kernel import NestKernel
from dacergnn.library_nodes.traversal.expansions.places import Places
from dacergnn.library_nodes.traversal.nest import Loop


class TwoLevels(Places):
    """A nest of edges in groups."""

    @property
    def groups(self) -> tuple[str, str, str]:
        """Row space of the groups, of the edges, and the path from these to those."""
        outer, inner = self.levels.spaces
        path = self.levels.up(inner, outer)
        assert path
        return outer, inner, path


class CooPlaces(TwoLevels):
    """Threads share out the edges by their number, and find groups by the group of every edge."""

    parameters = ", const dacergnn::Starts starts"

    def _start(self, outer: str, inner: str, row: str) -> str:
        return f"starts[{row}]"

    def _bounds(self, outer: str, inner: str) -> tuple[str, str]:
        return "", "starts"


class CooHubKernel(CooPlaces, HubKernel):
    """The form for a group of very many edges."""


class CooKernel(CooPlaces, NestKernel):
    """Edges sorted by group, with the group of each."""

    def _call(self, work: int, tiles: str) -> str:
        outer, inner, path = self.groups
        rows = ordered_index_name(inner, path, path)
        assert rows is not None
        sizes = f"{extent(inner)}, {extent(outer)}, {work}, {self.sharing.tile_rows}, {self.sharing.hub_rows}"
        return f"dacergnn::parallel_rows({self._encoding(rows)}, {sizes}, {tiles});"


class EllKernel(TwoLevels, NestKernel):
    """Edges in a matrix with a row for each group, as wide as the longest, and the number of edges in each."""

    flattens = False

    def _lengths(self) -> str:
        _, inner, path = self.groups
        return self._encoding(encoding_name("len", inner, path))

    def _start(self, outer: str, inner: str, row: str) -> str:
        return f"({row}) * width"

    def _stop(self, outer: str, inner: str, row: str) -> str:
        return f"({row}) * width + {self._lengths()}[{row}]"

    def _places(self, space: str) -> str:
        return f"{extent(self.levels.spaces[0])} * width"

    def _list_of(self, space: str, order: str, path: str) -> str | None:
        return None if path == "one" else encoding_name("ell", space, *filter(None, (order, path)))

    def _call(self, work: int, tiles: str) -> str:
        outer, inner, _ = self.groups
        return (
            f"const int64_t width = {self._lengths()}[{extent(outer)}];\n"
            f"dacergnn::parallel_slots({extent(outer)}, width, {extent(inner)}, {work}, {self.sharing.tile_rows}, "
            f"{self.sharing.chunks}, {tiles});"
        )


class HybridKernel(TwoLevels, NestKernel):
    """The first edges of each group in compressed rows, the rest behind all of these with the group of each."""

    parameters = ", const dacergnn::Starts rest"
    flattens = False

    def _bounds(self, outer: str, inner: str) -> tuple[str, str]:
        _, inner, path = self.groups
        return "", self._encoding(encoding_name("reg", inner, path))

    def _span(self, outer: str, inner: str) -> tuple[str, str]:
        first, count = super()._span(outer, inner)
        return first, f"{count} + rest[last] - rest[first]"

    def _list_of(self, space: str, order: str, path: str) -> str | None:
        return None if path == "one" else encoding_name("hyb", space, *filter(None, (order, path)))

    def _rows(self, loop: Loop, begin: str, end: str) -> str:
        """Both parts of the edges of a group; places of the tile count on from the one to the other."""
        outer, inner, _ = self.groups
        row = f"row_{outer}"
        later = f"rest[first] - ({super()._span(outer, inner)[1]})"
        base = f"const int64_t base_{inner} = late ? {later} : int64_t({self._start(outer, inner, 'first')});\n"
        text = super()._rows(loop, "from", "to")
        return (
            "for (const bool late : {false, true}) {\n"
            f"const int64_t from = late ? rest[{row}] : int64_t({begin});\n"
            f"const int64_t to = late ? rest[{row} + 1] : {end};\n"
            f"{base if f'base_{inner}' in text else ''}{text}\n}}"
        )

    def _call(self, work: int, tiles: str) -> str:
        outer, inner, path = self.groups
        pointers = self._bounds(outer, inner)[1]
        groups = self._encoding(encoding_name("hyb", inner, path, path))
        sizes = f"{extent(inner)}, {extent(outer)}, {work}, {self.sharing.tile_rows}, {self.sharing.chunks}"
        return f"dacergnn::parallel_hybrid({pointers}, {groups}, {sizes}, {tiles});"

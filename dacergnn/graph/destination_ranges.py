"""Divides a graph into ranges of destinations, each a graph of its own with the edges that end there."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from dacergnn.graph.edge_list import all_zero
from dacergnn.graph.encodings import Encodings
from dacergnn.graph.hetero_graph import HeteroGraph
from dacergnn.graph.lifetime import lasting
from dacergnn.scratch import zeros_in_file

DENSE = 0.5
"""Share of successive sources from which a range has all of them. Rows of fewer sources are copied for it."""
Empty = Callable[[int], Tensor]
Run = tuple[int, int]
"""The first position of successive edges, and the position after the last one."""


@dataclass(frozen=True)
class DestinationRange:
    """Holds successive destinations of a graph, and their edges as a graph with other sources than destinations.

    Args:
        start, stop: The destinations.
        runs: The canonical positions of the edges in the whole graph, ascending; each relation has one run at most.
        sources: The sources of the range: successive ones, or [NS'] integers, those of its edges, ascending.
        graph: The graph of the range; its edges are in the order of the whole graph.
    """

    start: int
    stop: int
    runs: tuple[Run, ...]
    sources: slice | Tensor
    graph: HeteroGraph

    @property
    def copies(self) -> bool:
        """Tells whether rows of sources are copied for this range."""
        return isinstance(self.sources, Tensor)

    def source_rows(self, values: Tensor, empty: Empty | None = None) -> Tensor:
        """Returns the rows of this range's sources, of ``values`` [NS, ...].

        Args:
            empty: Returns the tensor that copies are written to, of a number of rows.
        """
        if isinstance(self.sources, slice):
            return values[self.sources]
        return torch.index_select(values, 0, self.sources, out=empty and empty(len(self.sources)))

    def add_source_rows(self, total: Tensor, rows: Tensor) -> None:
        """Adds rows of this range's sources to ``total`` [NS, ...] in place."""
        if isinstance(self.sources, slice):
            total[self.sources] += rows
        else:
            total.index_add_(0, self.sources, rows)

    def edge_rows(self, values: Tensor, empty: Empty | None = None) -> Tensor:
        """Returns the rows of this range's edges, of ``values`` [E, ...] in the order of the whole graph.

        Args:
            empty: Returns the tensor that copies are written to, of a number of rows.
        """
        parts = [values[start:stop] for start, stop in self.runs]
        if len(parts) < 2:
            return parts[0] if parts else values[:0]
        return torch.cat(parts, out=empty and empty(sum(map(len, parts))))

    def add_edge_rows(self, total: Tensor, rows: Tensor) -> None:
        """Adds rows of this range's edges to ``total`` [E, ...] in place."""
        done = 0
        for start, stop in self.runs:
            total[start:stop] += rows[done : done + stop - start]
            done += stop - start


class Divided(list[DestinationRange]):
    """Holds all ranges of a graph; unlike other lists, it may be referred to weakly."""


class DestinationRanges:
    """Divides a graph; the same ranges serve all who ask, as long as one of them holds them."""

    def __init__(self, graph: HeteroGraph) -> None:
        self._whole = weakref.ref(graph)  # the graph holds this
        self._divided: weakref.WeakValueDictionary[tuple[int, str | None], Divided] = weakref.WeakValueDictionary()
        self.taken: set[str] = set()
        """Holds the encodings that programs in ranges take."""
        self.taken_whole: set[str] = set()
        """Holds the encodings that programs take of the whole graph."""

    @classmethod
    def of(cls, graph: HeteroGraph) -> DestinationRanges:
        """Returns the ranges of a graph."""
        return graph.derived.setdefault(cls, cls(graph))

    @property
    def _graph(self) -> HeteroGraph:
        graph = self._whole()
        assert graph is not None, "whoever divides a graph holds it"
        return graph

    def in_use(self, scratch: str | None) -> list[Divided]:
        """Returns the ranges that somebody holds, the fewest first; only those in ``scratch``, or in memory (None)."""
        return sorted((known for (_, folder), known in self._divided.items() if folder == scratch), key=len)

    def divided(self, count: int, scratch: str | None = None) -> Divided:
        """Returns about ``count`` ranges, with about as many edges and destinations each.

        Args:
            scratch: A folder for temporary files, in which edges and encodings of the ranges lie; None for memory.
        """
        known = self._divided.get((count, scratch))
        if known is None:
            bounds = self.bounds(count)
            with lasting():
                runs = self._runs(bounds)
                known = Divided(
                    self._range(*ends, own, scratch) for ends, own in zip(pairwise(bounds), runs, strict=True)
                )
            self._divided[count, scratch] = known
        return known

    def expected(self, count: int) -> dict[str, int]:
        """Returns the rows of a range by row space, if sources are spread evenly; makes no range."""
        whole = self._graph.sizes
        rows = {space: -(-own // count) for space, own in whole.items()}
        rows |= {space: whole[space] for space in ("R", "T", "ONE")}
        for space in ("NS", "U", "Us", "Ud"):
            edges = whole["E" + space[1:]] if space != "NS" else whole["E"]
            rows[space] = math.ceil(whole[space] * (1 - (1 - 1 / count) ** (edges / max(whole[space], 1))))
        if rows["NS"] > DENSE * whole["NS"]:
            rows["NS"] = whole["NS"]
        rows["RNS"] = rows["R"] * rows["NS"]
        return rows

    def bounds(self, count: int) -> list[int]:
        """Returns the first destination of each range, then the number of destinations."""
        total = int(self._work[-1])
        goals = torch.arange(1, count) * total // count
        inner = torch.searchsorted(self._work, goals.to(self._work)).tolist()
        return sorted({0, *inner, self._graph.size("ND")})

    @cached_property
    def _work(self) -> Tensor:
        """Returns [ND + 1] the edges and destinations before each destination, then all of them."""
        counts = torch.bincount(self._graph.index("E", "dst"), minlength=self._graph.size("ND")) + 1
        return torch.cat([counts.new_zeros(1), counts.cumsum(0)])

    def _runs(self, bounds: list[int]) -> list[tuple[Run, ...]]:
        """Returns the positions of the edges of each range: one run for each relation, whose edges are sorted."""
        edges = self._graph.encodings.edges
        counts = torch.unique_consecutive(edges.edge_type, return_counts=True)[1].tolist()
        ends = torch.tensor(bounds, dtype=edges.dst.dtype, device=edges.dst.device)
        runs: list[list[Run]] = [[] for _ in bounds[1:]]
        first = 0
        for count in counts:
            cuts = (first + torch.searchsorted(edges.dst[first : first + count].contiguous(), ends)).tolist()
            for own, run in zip(runs, pairwise(cuts), strict=True):
                if run[0] < run[1]:
                    own.append(run)
            first += count
        return [tuple(own) for own in runs]

    def _range(self, start: int, stop: int, runs: tuple[Run, ...], scratch: str | None) -> DestinationRange:
        edges = self._graph.encodings.edges

        def taken(vector: Tensor) -> Tensor:
            return torch.cat([vector[first:last] for first, last in runs] or [vector[:0]])

        src = taken(edges.src)
        present = torch.zeros(edges.num_src, dtype=torch.bool, device=src.device)
        present[src.long()] = True
        sources: slice | Tensor = present.nonzero().view(-1)
        first, last = (int(sources[0]), int(sources[-1])) if len(sources) else (0, 0)
        if len(sources) >= DENSE * (last + 1 - first):
            sources, num_src = slice(first, last + 1), last + 1 - first
            src = src - first
        else:
            num_src, sources = len(sources), sources.to(src.dtype)
            src = (present.cumsum(0) - 1)[src.long()].to(src.dtype)
        src_type = edges.src_type
        part = edges._replace(
            src=src,
            dst=taken(edges.dst) - start,
            edge_type=taken(edges.edge_type) if edges.num_edge_types > 1 else all_zero(src),
            num_src=num_src,
            num_dst=stop - start,
            src_type=None if src_type is None else src_type[sources if isinstance(sources, slice) else sources.long()],
            dst_type=None if edges.dst_type is None else edges.dst_type[start:stop],
            bipartite=True,
        )
        if scratch is not None:
            part = part._replace(src=_written(part.src, scratch), dst=_written(part.dst, scratch))
            if part.num_edge_types > 1:
                part = part._replace(edge_type=_written(part.edge_type, scratch))
            if isinstance(sources, Tensor):
                sources = _written(sources, scratch)
                if part.src_type is not None:
                    part = part._replace(src_type=_written(part.src_type, scratch))
        encodings = Encodings(part)
        encodings.scratch = scratch
        encodings.forgotten_from = 1  # there are many ranges, so that each should keep little
        made = HeteroGraph.of_encodings(encodings, None)
        return DestinationRange(start, stop, runs, sources, made)


def _written(vector: Tensor, scratch: str) -> Tensor:
    """Returns a vector in a file."""
    return zeros_in_file(scratch, vector.shape, vector.dtype).copy_(vector)

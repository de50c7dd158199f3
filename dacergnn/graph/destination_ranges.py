"""Divides a graph into ranges of destinations, each a graph of its own with the edges that end there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from dacergnn.graph.edge_list import all_zero
from dacergnn.graph.hetero_graph import HeteroGraph
from dacergnn.graph.lasting import lasting

FEW_SOURCES = 0.8
"""Share of all sources up to which a range has rows of its own sources only, which are copied for it."""
Run = tuple[int, int]
"""The first position of successive edges, and the position after the last one."""


@dataclass(frozen=True)
class DestinationRange:
    """Holds successive destinations of a graph, and their edges as a graph with other sources than destinations.

    Args:
        start, stop: The destinations.
        runs: The canonical positions of the edges in the whole graph, ascending; each relation has one run at most.
        sources: [NS'] int64, the sources of these edges, ascending; None if the range has all sources.
        graph: The graph of the range; its edges are in the order of the whole graph.
    """

    start: int
    stop: int
    runs: tuple[Run, ...]
    sources: Tensor | None
    graph: HeteroGraph

    def edge_rows(self, values: Tensor) -> Tensor:
        """Returns the rows of this range's edges, of ``values`` [E, ...] in the order of the whole graph."""
        parts = [values[start:stop] for start, stop in self.runs]
        return torch.cat(parts) if parts else values[:0]

    def add_edge_rows(self, total: Tensor, rows: Tensor) -> None:
        """Adds rows of this range's edges to ``total`` [E, ...] in place."""
        done = 0
        for start, stop in self.runs:
            total[start:stop] += rows[done : done + stop - start]
            done += stop - start


class DestinationRanges:
    """Holds the ranges of a graph, which are made when they are first asked for and kept with the graph."""

    def __init__(self, graph: HeteroGraph) -> None:
        self._graph = graph
        self._divided: dict[int, list[DestinationRange]] = {}

    @classmethod
    def of(cls, graph: HeteroGraph) -> DestinationRanges:
        """Returns the ranges of a graph."""
        return graph.derived.setdefault(cls, cls(graph))

    def divided(self, count: int) -> list[DestinationRange]:
        """Returns about ``count`` ranges, with about as many edges and destinations each."""
        if count not in self._divided:
            bounds = self.bounds(count)
            with lasting():
                self._divided = {count: [self._range(*ends) for ends in pairwise(bounds)]}
        return self._divided[count]

    def expected(self, count: int) -> dict[str, int]:
        """Returns the rows of a range by row space, if sources are spread evenly; makes no range."""
        whole = self._graph.sizes
        rows = {space: -(-own // count) for space, own in whole.items()}
        rows |= {space: whole[space] for space in ("R", "T", "ONE")}
        for space in ("NS", "U", "Us", "Ud"):
            edges = whole["E" + space[1:]] if space != "NS" else whole["E"]
            rows[space] = math.ceil(whole[space] * (1 - (1 - 1 / count) ** (edges / max(whole[space], 1))))
        if rows["NS"] > FEW_SOURCES * whole["NS"]:
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

    def _range(self, start: int, stop: int) -> DestinationRange:
        edges = self._graph.encodings.edges
        positions = ((edges.dst >= start) & (edges.dst < stop)).nonzero().view(-1)
        src, sources = edges.src[positions], None
        present = torch.zeros(edges.num_src, dtype=torch.bool, device=src.device)
        present[src.long()] = True
        if int(present.sum()) <= FEW_SOURCES * edges.num_src:
            sources = present.nonzero().view(-1)
            src = (present.cumsum(0) - 1)[src.long()].to(src.dtype)
        src_type = edges.src_type
        part = edges._replace(
            src=src,
            dst=edges.dst[positions] - start,
            edge_type=edges.edge_type[positions] if edges.num_edge_types > 1 else all_zero(src),
            num_src=edges.num_src if sources is None else len(sources),
            num_dst=stop - start,
            src_type=src_type if src_type is None or sources is None else src_type[sources],
            dst_type=None if edges.dst_type is None else edges.dst_type[start:stop],
            bipartite=True,
        )
        return DestinationRange(start, stop, _runs(positions), sources, HeteroGraph(part))


def _runs(positions: Tensor) -> tuple[Run, ...]:
    """Returns the runs of successive numbers in an ascending vector."""
    if not len(positions):
        return ()
    breaks = (positions.diff() != 1).nonzero().view(-1)
    starts = torch.cat([positions[:1], positions[breaks + 1]])
    stops = torch.cat([positions[breaks], positions[-1:]]) + 1
    return tuple(zip(starts.tolist(), stops.tolist(), strict=True))

"""The edges of several relations of a heterograph, joined to one typed graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from dacergnn.frontends.dgl.edges import GraphEdges, Relation, counted
from dacergnn.frontends.dgl.form import size
from dacergnn.frontends.symbolic.sizes import number
from dacergnn.graph import HeteroGraph
from dacergnn.graph.typed_parts import repeated

if TYPE_CHECKING:
    from dacergnn.frontends.symbolic.trace import Trace

ENDS = {"src": 0, "dst": 2}
"""Positions in a relation of the types of nodes at the ends of its edges."""


class AllEdges(GraphEdges):
    """Holds the edges of some relations, one after the other, between nodes of all types, type after type."""

    def __init__(self, trace: Trace | None, graph: Any, parts: Sequence[GraphEdges]) -> None:
        self.trace, self.flipped = cast("Trace", trace), False
        self.graph, self.parts = graph, parts
        self.count = counted(trace, graph, "edges", self.relations)
        self.key = tuple(p.key for p in parts)
        block = graph.is_block
        self.nodes = {
            "src": _ranges(graph, "src", graph.srctypes if block else graph.ntypes),
            "dst": _ranges(graph, "dst", graph.dsttypes if block else graph.ntypes),
        }
        self.rows = {side: counted(trace, graph, side, tuple(ranges)) for side, ranges in self.nodes.items()}
        self.counts = {
            side: {name: counted(trace, graph, side, (name,)) for name in ranges} for side, ranges in self.nodes.items()
        }
        """Numbers of nodes at either end by type, which a tape notes."""
        self.types: dict[str, Tensor] = {}
        self.seen = []

    @property
    def relations(self) -> tuple[Relation, ...]:
        return tuple([p.relation for p in self.parts])

    @classmethod
    def along(cls, graph: Any, relations: tuple[Relation, ...]) -> GraphEdges:
        return cls(None, graph, [GraphEdges(None, graph, r) for r in relations])

    @property
    def bipartite(self) -> bool:
        return self.graph.is_block

    def ends(self) -> list[Tensor]:
        return [end for part in self.parts for end in part.ends()]

    def encode(self) -> HeteroGraph:
        ends: dict[str, list[Tensor]] = {"src": [], "dst": []}
        for part in self.parts:
            ids = part.graph.edges(etype=part.relation, order="eid")
            for side, all_ids, values in zip(ends, ends.values(), ids, strict=True):
                all_ids.append(values.long() + self.nodes[side][part.relation[ENDS[side]]][0])
        device = ends["src"][0].device
        types = [repeated([b - a for a, b in ranges.values()], device) for ranges in self.nodes.values()]
        return HeteroGraph.from_arrays(
            (torch.cat(ends["src"]), torch.cat(ends["dst"])), repeated([number(p.count) for p in self.parts], device),
            num_nodes=self.plain_sizes, num_edge_types=len(self.parts), bipartite=self.bipartite,
            node_type=(types[0], types[1]) if self.bipartite else types[0], num_node_types=len(self.nodes["src"]),
        )  # fmt: skip


def _ranges(graph: Any, side: str, names: Sequence[str]) -> dict[str, tuple[int, int]]:
    ranges: dict[str, tuple[int, int]] = {}
    start = 0
    for name in names:
        ranges[name] = (start, start + size(graph, (side, (name,))))
        start = ranges[name][1]
    return ranges

"""The edges of the relations of a DGL graph as tensors, which live as long as the graph's structure."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dacergnn.graph.lifetime import lasting
from dacergnn.runtime.edge_changes import Seen

Relation = tuple[str, str, str]

_ENDS = "_dacergnn_ends"
"""Attribute of DGL's index of a graph, by relation; a graph gets a new index whenever its structure changes."""


KEPT_GRAPHS = "_dacergnn_graphs"
"""Attribute of the sources, a list for the encoded graphs of these edges."""


class Ends:
    """Holds the edges of one relation, by edge id.

    Args:
        src: The sources [E].
        dst: The destinations [E].
        sources: The number of sources.
        destinations: The number of destinations.
    """

    def __init__(self, src: Tensor, dst: Tensor, sources: int, destinations: int) -> None:
        self.src, self.dst = src, dst
        vars(src)[KEPT_GRAPHS] = list[Any]()
        self.sources, self.destinations = sources, destinations
        reached = torch.zeros(destinations, dtype=torch.bool, device=dst.device).index_fill_(0, dst, True)
        self.all_reached = bool(reached.all())
        """Tells whether an edge leads to every destination."""
        self.all_leave = bool(torch.zeros(sources, dtype=torch.bool, device=src.device).index_fill_(0, src, True).all())
        """Tells whether an edge begins at every source."""
        self.reached = None if self.all_reached else reached
        self.rows = None if self.all_reached else reached.nonzero().view(-1)
        """The destinations that edges lead to; None if these are all."""

    def index(self, side: str) -> Tensor:
        """Returns the nodes at one end of the edges, "src" or "dst"."""
        return self.src if side == "src" else self.dst

    def count(self, side: str) -> int:
        """Returns how many nodes there are at one end."""
        return self.sources if side == "src" else self.destinations


class _Kept:
    """Holds the edges of a relation, and what DGL's memory of them looked like."""

    def __init__(self, graph: Any, relation: Relation) -> None:
        self.known = graph.edges(etype=relation, order="eid")
        self.seen = Seen(self.known)
        count = (graph.num_src_nodes, graph.num_dst_nodes) if graph.is_block else (graph.num_nodes, graph.num_nodes)
        sizes = int(count[0](relation[0])), int(count[1](relation[2]))
        with lasting():
            src, dst = (end.long().clone() for end in self.known)
            self.ends = Ends(src, dst, *sizes)


def ends_of(graph: Any) -> dict[Relation, Ends]:
    """Returns the edges of all relations of a graph, made anew where others have written to the graph's memory."""
    kept: dict[Relation, _Kept] = getattr(graph._graph, _ENDS, {})
    if not kept or not all(k.seen.unwritten(k.known) for k in kept.values()):
        kept = {relation: _Kept(graph, relation) for relation in graph.canonical_etypes}
        setattr(graph._graph, _ENDS, kept)
    return {relation: k.ends for relation, k in kept.items()}

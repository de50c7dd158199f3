"""The edges of one relation of a DGL graph, and the encodings that live as long as the graph's structure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from dacergnn.frontends.symbolic.edges import TYPES, EdgeForm, EdgeSet, GraphFinder, equal
from dacergnn.frontends.symbolic.expr import version
from dacergnn.graph import HeteroGraph
from dacergnn.graph.lasting import lasting
from dacergnn.runtime.seen import Seen

if TYPE_CHECKING:
    from dacergnn.frontends.symbolic.trace import Trace

Relation = tuple[str, str, str]
Types = tuple[Tensor, int, int]
"""A type for each row, the version that the tensor had, and the number of types."""
_KEPT = 4


@dataclass(frozen=True)
class _Encoded:
    key: object
    types: dict[str, Types]
    seen: Seen
    """The ends of the edges, whose memory anyone may write to."""
    graph: HeteroGraph


_ENCODED = "_dacergnn_encoded"
"""Attribute of DGL's index of a graph, which is another one whenever the structure of the graph has changed."""

_REACHED = "_dacergnn_reached"
"""Attribute of the same, for what edges lead to."""


class GraphEdges(EdgeSet):
    """The edges of one relation, by edge id."""

    def __init__(self, trace: Trace, graph: Any, relation: Relation) -> None:  # pyright: ignore[reportMissingSuperCall]
        source, _, destination = relation
        self.trace, self.flipped = trace, False
        self.graph, self.relation = graph, relation
        self.key: object = relation
        """Tells these edges from others of the same graph."""
        self.count = int(graph.num_edges(relation))
        self.rows = {"src": int(graph.num_src_nodes(source)), "dst": int(graph.num_dst_nodes(destination))}
        self.types: dict[str, Tensor] = {}

    @property
    def bipartite(self) -> bool:
        """Also for blocks: what destinations hold is set apart from what sources hold."""
        return self.graph.is_block or self.relation[0] != self.relation[2]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The types; ends of edges are the graph's own."""
        return tuple(self.types.values())

    def choose_by(self, side: str, types: Tensor, count: int) -> bool:
        """Destinations have the types of the first sources, of which there must be enough."""
        return (side != "ntype" or self.sizes[0] >= self.sizes[1]) and super().choose_by(side, types, count)

    @property
    def reached(self) -> Tensor:
        """[ND] whether an edge leads to a destination."""
        return self.graph.in_degrees(etype=self.relation) > 0

    @property
    def all_reached(self) -> bool:
        """Whether an edge leads to every destination; looked up once for each structure of the graph."""
        index = self.graph._graph
        known: dict[object, bool] = getattr(index, _REACHED, {})
        if self.key not in known:
            known = {**known, self.key: bool(self.reached.all())}
            setattr(index, _REACHED, known)
        return known[self.key]

    def form(self) -> EdgeForm | None:
        return None

    def find(self, graphs: GraphFinder, given: set[int]) -> HeteroGraph:
        """The encoded graph, made anew if the structure or the types have changed."""
        wanted = {side: (t, version(t), self.rows[side] or 0) for side, t in self.types.items()}
        index = self.graph._graph
        kept: list[_Encoded] = getattr(index, _ENCODED, [])
        for entry in kept:
            if entry.key == self.key and _same(entry.types, wanted) and entry.seen.unwritten(self.ends()):
                return entry.graph
        with lasting():
            graph = self.encode()
        others = [e for e in kept if e.key != self.key]
        same = [e for e in kept if e.key == self.key]
        encoded = _Encoded(self.key, wanted, Seen(self.ends(), shared=True), graph)
        setattr(index, _ENCODED, [encoded, *same[: _KEPT - 1], *others])
        return graph

    def ends(self) -> list[Tensor]:
        """Sources and destinations of the edges, in the memory of the graph."""
        return list(self.graph.edges(etype=self.relation, order="eid"))

    def encode(self) -> HeteroGraph:
        """The graph, encoded anew."""
        etype, ntype = (self.types.get(side) for side in TYPES)
        destinations, (src, dst) = self.sizes[1], self.ends()
        return HeteroGraph.from_arrays(
            (src, dst), etype, num_nodes=self.sizes,
            num_edge_types=self.rows.get("etype"),
            node_type=(ntype, ntype[:destinations]) if ntype is not None and self.bipartite else ntype,
            num_node_types=self.rows.get("ntype"), bipartite=self.bipartite,
        )  # fmt: skip


def _same(kept: dict[str, Types], wanted: dict[str, Types]) -> bool:
    """Whether two sets of types agree; a kept tensor that was written to since agrees with none."""
    if kept.keys() != wanted.keys():
        return False
    for side, (tensor, _, count) in wanted.items():
        other, seen, known = kept[side]
        if count != known or version(other) != seen or not equal(tensor, other):
            return False
    return True

"""The edges of one relation of a DGL graph, and the encodings that live as long as the graph's structure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from torch import Tensor

from dacergnn.frontends.dgl.form import size
from dacergnn.frontends.symbolic.edges import TYPES, EdgeSet, Form, GraphFinder, equal
from dacergnn.frontends.symbolic.expr import version
from dacergnn.frontends.symbolic.sizes import number
from dacergnn.graph import HeteroGraph
from dacergnn.graph.lifetime import lasting
from dacergnn.runtime.edge_changes import Seen

if TYPE_CHECKING:
    from dacergnn.frontends.symbolic.trace import Trace

Relation = tuple[str, str, str]
Types = tuple[Tensor, int, int]
"""A type for each row, the version that the tensor had, and the number of types."""
_KEPT = 4


class GraphForm(NamedTuple):
    """Describes a graph that has the edges of a graph of DGL.

    Args:
        graph: The graph of DGL.
        key: Tells these edges from others of the same graph.
        relations: The relations of that graph whose edges belong to it.
        tensors: Types of edges or nodes, by the names in ``typed``.
        typed: "etype" or "ntype".
        counts: Numbers of types.
        along: Returns the edges of some relations of a graph.
    """

    graph: Any
    key: Any
    relations: tuple[Relation, ...]
    tensors: tuple[Tensor, ...]
    typed: tuple[str, ...]
    counts: tuple[int | None, ...]
    along: Callable[[Any, tuple[Relation, ...]], GraphEdges]

    def find(self, graphs: GraphFinder, own: bool) -> HeteroGraph:
        """Returns the encoded graph, which lives as long as the structure of the graph of DGL."""
        types = dict(zip(self.typed, self.tensors, strict=True))
        counts = dict(zip(self.typed, self.counts, strict=True))
        encoded = _kept(self.graph, self.key, _wanted(types, counts))
        if encoded is None:
            edges = self.along(self.graph, self.relations)
            edges.types = types
            edges.rows |= counts
            encoded = edges.find(graphs, set())
        return encoded


def counted(trace: Trace | None, graph: Any, what: str, names: tuple[Any, ...]) -> int:
    """Returns a size of a graph (see `form.size`), as its trace knows it."""
    count = size(graph, (what, names))
    return count if trace is None else trace.extent(graph, (what, names), count)


@dataclass(frozen=True)
class _Encoded:
    key: object
    types: dict[str, Types]
    ends: list[Tensor]
    """Sources and destinations of the edges, in the memory of the graph, which others may write to."""
    seen: Seen
    graph: HeteroGraph


_ENCODED = "_dacergnn_encoded"
"""Attribute of DGL's index of a graph; a graph gets a new index whenever its structure changes."""

_REACHED = "_dacergnn_reached"
"""Attribute of the same index, which tells whether edges lead to all destinations."""


class GraphEdges(EdgeSet):
    """Holds the edges of one relation, by edge id."""

    def __init__(self, trace: Trace | None, graph: Any, relation: Relation) -> None:  # pyright: ignore[reportMissingSuperCall]
        source, _, destination = relation
        self.trace, self.flipped = cast("Trace", trace), False
        self.graph, self.relation = graph, relation
        self.key: object = relation
        """Tells these edges from others of the same graph."""
        self.count = counted(trace, graph, "edges", (relation,))
        ends = {"src": source, "dst": destination}
        self.rows = {side: counted(trace, graph, side, (name,)) for side, name in ends.items()}
        self.types: dict[str, Tensor] = {}
        self.seen = []

    @property
    def bipartite(self) -> bool:
        """Returns True also for blocks, whose sources and destinations hold different data."""
        return self.graph.is_block or self.relation[0] != self.relation[2]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Returns the types; the ends of the edges belong to the graph of DGL."""
        return tuple(self.types.values())

    def choose_by(self, side: str, types: Tensor, count: int) -> bool:
        """Refuses node types for more destinations than sources: destinations have the types of the first sources."""
        return (side != "ntype" or self.sizes[0] >= self.sizes[1]) and super().choose_by(side, types, count)

    @property
    def reached(self) -> Tensor:
        """Returns for every destination [ND] whether an edge leads to it."""
        self.trace.reads(self.graph, "which nodes edges lead to")
        return self.graph.in_degrees(etype=self.relation) > 0

    @property
    def all_reached(self) -> bool:
        """Returns whether an edge leads to every destination; looked up once for each structure of the graph."""
        index = self.graph._graph
        known: dict[object, bool] = getattr(index, _REACHED, {})
        if self.key not in known:
            known = {**known, self.key: bool(self.reached.all())}
            setattr(index, _REACHED, known)
        return known[self.key]

    @property
    def relations(self) -> tuple[Relation, ...]:
        """Returns the relations whose edges these are."""
        return (self.relation,)

    @classmethod
    def along(cls, graph: Any, relations: tuple[Relation, ...]) -> GraphEdges:
        """Returns the edges of a graph, outside of any trace."""
        return cls(None, graph, relations[0])

    def form(self) -> Form | None:
        tape = self.trace.tape
        if tape is None or not tape.covers(self.graph):
            return None
        counts = tuple([self.rows[side] for side in self.types])
        return GraphForm(
            self.graph, self.key, self.relations, self.tensors, tuple(self.types), counts, type(self).along
        )

    def find(self, graphs: GraphFinder, argument_ids: set[int]) -> HeteroGraph:
        """Returns the encoded graph, made anew if the structure or the types have changed."""
        wanted = _wanted(self.types, self.rows)
        known_graph = _kept(self.graph, self.key, wanted)
        if known_graph is not None:
            return known_graph
        with lasting():
            graph, ends = self.encode(), self.ends()
        index = self.graph._graph
        kept: list[_Encoded] = getattr(index, _ENCODED, [])
        others = [e for e in kept if e.key != self.key]
        same = [e for e in kept if e.key == self.key]
        encoded = _Encoded(self.key, wanted, ends, Seen(ends, shared=True), graph)
        setattr(index, _ENCODED, [encoded, *same[: _KEPT - 1], *others])
        return graph

    def ends(self) -> list[Tensor]:
        """Returns sources and destinations of the edges, in the memory of the graph."""
        return list(self.graph.edges(etype=self.relation, order="eid"))

    def encode(self) -> HeteroGraph:
        """Encodes the graph anew."""
        etype, ntype = (self.types.get(side) for side in TYPES)
        destinations, (src, dst) = self.plain_sizes[1], self.ends()
        return HeteroGraph.from_arrays(
            (src, dst), etype, num_nodes=self.plain_sizes,
            num_edge_types=self.rows.get("etype"),
            node_type=(ntype, ntype[:destinations]) if ntype is not None and self.bipartite else ntype,
            num_node_types=self.rows.get("ntype"), bipartite=self.bipartite,
        )  # fmt: skip

    @property
    def plain_sizes(self) -> tuple[int, int]:
        """Returns the numbers of source and destination nodes, without a note on the tape."""
        src, dst = map(number, self.sizes)
        return src, dst


def _wanted(types: Mapping[str, Tensor], counts: Mapping[str, int | None]) -> dict[str, Types]:
    """Returns types of edges and nodes with their current versions, and the numbers of types."""
    return {side: (t, version(t), number(counts[side] or 0)) for side, t in types.items()}


def _kept(graph: Any, key: object, wanted: dict[str, Types]) -> HeteroGraph | None:
    """Returns the encoded graph of the edges with a key, if they are unwritten and the types are the same."""
    kept: list[_Encoded] = getattr(graph._graph, _ENCODED, [])
    for entry in kept:
        if entry.key == key and _same(entry.types, wanted) and entry.seen.unwritten(entry.ends):
            return entry.graph
    return None


def _same(kept: dict[str, Types], wanted: dict[str, Types]) -> bool:
    """Returns whether two sets of types agree; a kept tensor that was written to since agrees with none."""
    if kept.keys() != wanted.keys():
        return False
    for side, (tensor, _, count) in wanted.items():
        other, seen, known = kept[side]
        if count != known or version(other) != seen or not equal(tensor, other):
            return False
    return True

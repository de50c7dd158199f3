"""The edges of a call, and the index tensors that stand for their end points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.symbolic.dispatch import dispatch
from dacergnn.frontends.symbolic.notes import Notes
from dacergnn.frontends.symbolic.sizes import number
from dacergnn.graph import HeteroGraph
from dacergnn.graph.checks import IndexRange, check_ranges
from dacergnn.runtime.edge_changes import Seen

untracked: Any = torch._C.DisableTorchFunctionSubclass  # pyright: ignore[reportPrivateUsage]
"""A context in which torch treats recorded values and end points as the tensors that they are made of."""
unseen: Any = torch._C.DisableTorchFunction  # pyright: ignore[reportPrivateUsage]
"""A context in which calls of torch are not noted."""
SIDES = ("src", "dst")
TYPES = ("etype", "ntype")


class GraphFinder(Protocol):
    """Keeps encoded graphs."""

    def find_edges(
        self, tensors: tuple[Tensor, ...], sizes: tuple[object, ...], own: bool, encode: Callable[[], HeteroGraph]
    ) -> HeteroGraph:
        """Returns the graph with this edge index and these types; encodes it unless it is there."""
        ...


class Form(Protocol):
    """Describes what a graph is made of, in terms of the arguments of a call."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Returns the tensors that the graph is made of."""
        ...

    def find(self, graphs: GraphFinder, own: bool) -> HeteroGraph:
        """Returns the encoded graph; ``own`` tells that the caller keeps the tensors."""
        ...


class EdgeForm(NamedTuple):
    """Describes what a graph is made of.

    Args:
        tensors: The edge index [2, E], or sources and destinations [E] if ``paired``; then the types of edges or nodes
            by the names in ``typed``.
        typed: "etype" or "ntype".
        counts: Numbers of types of edges and of nodes; None for one.
        sizes: Numbers of sources and destinations.
        flipped: Whether messages go from row 1 to row 0.
        bipartite: Whether sources and destinations are different nodes.
    """

    tensors: tuple[Tensor, ...]
    typed: tuple[str, ...]
    counts: tuple[int | None, ...]
    sizes: tuple[int, int]
    flipped: bool
    bipartite: bool
    paired: bool = False

    def find(self, graphs: GraphFinder, own: bool) -> HeteroGraph:
        """Returns the encoded graph; ``own`` tells that the caller keeps the tensors."""
        sizes = tuple(map(number, self.sizes))
        return graphs.find_edges(self.tensors, (*sizes, self.flipped, *self.counts), own, self.encode)

    @property
    def ends(self) -> Tensor:
        """Returns sources and destinations, [2, E]."""
        edge_index = torch.stack(self.tensors[:2]) if self.paired else self.tensors[0]
        return edge_index.flip(0) if self.flipped else edge_index

    def encode(self) -> HeteroGraph:
        """Encodes the graph anew."""
        types = self.tensors[1 + self.paired :]
        src, dst = map(number, self.sizes)
        named_types = dict(zip(self.typed, types, strict=True))
        edge_types, node_types = self.counts
        return HeteroGraph.from_arrays(
            self.ends, named_types.get("etype"),
            num_nodes=(src, dst), num_edge_types=edge_types, node_type=named_types.get("ntype"),
            num_node_types=node_types, bipartite=self.bipartite,
        )  # fmt: skip


class EdgeSet:
    """Holds the edges along which values are gathered and aggregated.

    ``flipped`` exchanges the rows: messages go from row 1 to row 0. Node counts become known by the rows of gathered
    values, and by the rows of the values that aggregations add to.
    """

    paired: bool = False
    """Tells whether sources and destinations are tensors of their own."""
    replayed = True
    """Tells whether torch can compute values along these edges as they are noted, if a program cannot."""

    def __init__(self, trace: Notes, edge_index: Tensor, flipped: bool) -> None:
        self.trace = trace
        self.edge_index = edge_index
        self.flipped = flipped
        self.count: int = trace.shape(edge_index)[-1]
        self.rows: dict[str, int | None] = {"src": None, "dst": None}
        self.types: dict[str, Tensor] = {}
        """Types of edges [E] ("etype") or of source nodes ("ntype"), where weights are chosen by them."""
        self.seen = [_seen(edge_index)]
        """The edge index and the types, as they were when they were used first; programs are run later."""
        self.parted: dict[int, PartedEdges] = {}
        """The edges of graphs that consist of equal parts like this one, by the number of parts."""

    def side(self, row: int) -> str:
        """Returns the end point ("src" or "dst") that a row of the edge index holds."""
        return SIDES[1 - row if self.flipped else row]

    def set_rows(self, side: str, rows: int) -> None:
        """Notes how many nodes there are at an end of the edges, or how many types."""
        known = self.rows.get(side)
        if known is None:
            self.rows[side] = rows
        elif known != rows:
            raise UnsupportedCallError(f"values of {known} and of {rows} nodes meet at the same end of the edges.")

    def choose_by(self, side: str, types: Tensor, count: int) -> bool:
        """Gives the graph ``types``, ``count`` in number, unless it has others; returns whether it has these now."""
        if self.rows.get(side, count) != count:
            return False
        known = self.types.setdefault(side, types)
        if not equal(known, types):
            return False
        if all(tensor is not known for tensor, _ in self.seen):
            self.seen.append(_seen(known))
        if known is not types:
            self.trace.once("types that happen to be equal are used as one")
        self.rows[side] = count
        return True

    @property
    def unwritten(self) -> bool:
        """Tells whether nobody has written to the edges, or to their types, since they were used first."""
        with unseen():
            return all(seen.same([tensor]) for tensor, seen in self.seen)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Returns the tensors that the graph is made of."""
        return (self.edge_index, *[self.types[side] for side in TYPES if side in self.types])

    def form(self) -> Form | None:
        """Describes the tensors that the graph is made of; returns None for a graph that is made otherwise."""
        if self.bipartite and "ntype" in self.types:
            raise UnsupportedCallError("types of nodes, where sources and destinations are different nodes.")
        typed = tuple([side for side in TYPES if side in self.types])
        counts = tuple([self.rows.get(side) for side in TYPES])
        return EdgeForm(self.tensors, typed, counts, self.sizes, self.flipped, self.bipartite, self.paired)

    def find(self, graphs: GraphFinder, argument_ids: set[int]) -> HeteroGraph:
        """Returns the encoded graph; ``argument_ids`` holds the ids of the tensors that the caller passed and keeps."""
        form = self.form()
        assert form is not None
        return form.find(graphs, all(id(t) in argument_ids for t in form.tensors))

    @property
    def sizes(self) -> tuple[int, int]:
        """Returns the numbers of source and destination nodes, which are equal where only one is known."""
        src, dst = self.rows["src"], self.rows["dst"]
        known = src if src is not None else dst
        if known is None:  # rows were chosen by types alone
            raise UnsupportedCallError("values are computed along edges before rows of nodes are gathered.")
        return (known if src is None else src, known if dst is None else dst)

    @property
    def bipartite(self) -> bool:
        """Returns whether sources and destinations have to be different nodes."""
        src, dst = self.sizes
        return src != dst


def _seen(tensor: Tensor) -> tuple[Tensor, Seen]:
    with unseen():
        return tensor, Seen([tensor])


class PairedEdges(EdgeSet):
    """Holds edges whose sources and destinations [E] are tensors of their own."""

    paired = True

    def __init__(self, trace: Notes, src: Tensor, dst: Tensor) -> None:
        super().__init__(trace, src, False)
        self.destinations = dst
        self.seen.append(_seen(dst))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        first, *types = super().tensors
        return (first, self.destinations, *types)


class PartedForm(NamedTuple):
    """Describes a graph of equal parts.

    Args:
        tensors: What a part is made of.
        one: How it is made of these.
        parts: The number of parts.
    """

    tensors: tuple[Tensor, ...]
    one: EdgeForm
    parts: int

    def find(self, graphs: GraphFinder, own: bool) -> HeteroGraph:
        """Returns the encoded graph; ``own`` tells that the caller keeps the tensors."""
        sizes = (*map(number, self.one.sizes), self.one.flipped, self.one.paired, "parts", number(self.parts))
        return graphs.find_edges(self.tensors, sizes, own, self.encode)

    def encode(self) -> HeteroGraph:
        """Encodes the graph anew."""
        ends, counts = self.one.ends, [*map(number, self.one.sizes)]
        # Checked here, because ids that are too large would lead to nodes of other parts.
        check_ranges(*[
            IndexRange(f"edge_index[{1 - i if self.one.flipped else i}]", ends[i], counts[i], f"{what} nodes", "x")
            for i, what in enumerate(("source", "destination"))
        ])  # fmt: skip
        parts = number(self.parts)
        starts = torch.arange(parts, device=ends.device).view(-1, 1)
        spread = [(row + starts * n).view(-1) for row, n in zip(ends, counts, strict=True)]
        src, dst = [n * parts for n in counts]
        return HeteroGraph.from_arrays(
            torch.stack(spread), None, num_nodes=(src, dst), num_edge_types=1, bipartite=self.one.bipartite
        )


class PartedEdges(EdgeSet):
    """Holds the edges of a graph of equal parts, each with the edges of ``one``, part after part.

    Its numbers of rows are those of one part.
    """

    replayed = False

    def __init__(self, one: EdgeSet, parts: int) -> None:
        super().__init__(one.trace, one.edge_index, one.flipped)
        self.one, self.parts, self.paired, self.seen = one, parts, one.paired, one.seen
        self.count = one.trace.times(one.count, parts)

    @staticmethod
    def of(one: EdgeSet, parts: int) -> PartedEdges:
        """Returns the edges of ``parts`` parts like ``one``; it is the same object at every call."""
        return one.parted.setdefault(number(parts), PartedEdges(one, parts))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.one.tensors[: 1 + self.paired]

    def form(self) -> Form:
        one = EdgeForm(self.tensors, (), (None, None), self.sizes, self.flipped, self.bipartite, self.paired)
        return PartedForm(self.tensors, one, self.parts)

    def choose_by(self, side: str, types: Tensor, count: int) -> bool:
        return False


def equal(a: Tensor, b: Tensor) -> bool:
    """Returns whether two tensors of integers are equal; tensors that share their memory need not be read."""
    shared = a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype
    return shared or torch.equal(a, b)


class _Index(Tensor):
    """Represents a tensor of integers that knows its edges; functions without recorded values see a plain tensor."""

    edges: EdgeSet
    plain: Tensor

    # Asked for often, and faster this way.
    layout = property(lambda self: torch.strided)  # pyright: ignore[reportAssignmentType]
    shape = property(lambda self: self.edges.trace.shape(self.plain))  # pyright: ignore[reportAssignmentType]
    dtype = property(lambda self: self.plain.dtype)  # pyright: ignore[reportAssignmentType]

    def dim(self) -> int:
        return self.plain.dim()

    def size(self, dim: int | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> int:
        return prod(self.shape)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return dispatch(func, args, kwargs or {})


class EdgeIndex(_Index):
    """Represents an edge index [2, E]."""


class EndIndex(_Index):
    """Represents end points of all edges, along ``axis`` of an index that may have further axes; or types of rows."""

    side: str
    axis: int


class JoinedIndex(EndIndex):
    """Represents end points of all edges, followed by all ``nodes`` once."""

    nodes: int


def edge_index(edges: EdgeSet) -> EdgeIndex:
    """Returns the index of the edges in the form that functions of recorded values know."""
    index = edges.edge_index.as_subclass(EdgeIndex)
    index.edges, index.plain = edges, edges.edge_index
    return index


def end_index(edges: EdgeSet, side: str, plain: Tensor, axis: int = 0) -> EndIndex:
    """Returns ``plain``, the ids at one end of all edges, in the form that functions of recorded values know."""
    index = plain.as_subclass(EndIndex)
    index.edges, index.side, index.plain, index.axis = edges, side, plain, axis
    return index


def row_of(index: EdgeIndex, row: int) -> EndIndex:
    """Returns ``edge_index[row]``."""
    with untracked():
        plain = index.edges.trace.torch(Tensor.__getitem__, index.plain, row)
        index.edges.trace.same_size(plain, 0, index.plain, 1)
    return end_index(index.edges, index.edges.side(row % 2), plain)


def plain(value: Any) -> Any:
    """Returns arguments with plain tensors in place of end points."""
    if isinstance(value, _Index):
        return value.plain
    if type(value) in (tuple, list):
        return type(value)([plain(v) for v in value])
    if type(value) is dict:
        return {k: plain(v) for k, v in value.items()}
    return value

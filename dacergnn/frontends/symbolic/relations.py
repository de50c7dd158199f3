"""Edges of several sets as those of one graph: the set that an edge comes from is its type, a relation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from dacergnn.frontends.symbolic.edges import EdgeForm, EdgeSet, GraphFinder
from dacergnn.frontends.symbolic.sizes import number
from dacergnn.graph import HeteroGraph
from dacergnn.graph.typed_parts import OWN_DESTINATIONS, Part


class RelationsForm(NamedTuple):
    """Describes a graph of several relations into the same nodes.

    Args:
        tensors: What the edges of all relations are made of.
        relations: How those of each relation are made of these.
        blocks: The block of sources that each relation comes from; blocks follow each other in the graph.
        counts: The number of sources in each block.
        rows: The number of destinations.
    """

    tensors: tuple[Tensor, ...]
    relations: tuple[EdgeForm, ...]
    blocks: tuple[int, ...]
    counts: tuple[int, ...]
    rows: int

    def find(self, graphs: GraphFinder, own: bool) -> HeteroGraph:
        """Returns the encoded graph; ``own`` tells that the caller keeps the tensors."""
        made = [(form.flipped, form.paired) for form in self.relations]
        sizes = ("relations", number(self.rows), *map(number, self.counts), *self.blocks, *made)
        return graphs.find_edges(self.tensors, sizes, own, self.encode)

    def encode(self) -> HeteroGraph:
        """Encodes the graph anew."""
        parts = [
            Part(form.ends, relation, (block, OWN_DESTINATIONS), f"relations[{relation}]", "x")
            for relation, (form, block) in enumerate(zip(self.relations, self.blocks, strict=True))
        ]
        counts = [*map(number, self.counts)]
        relations, blocks = ([str(n) for n in range(len(items))] for items in (parts, counts))
        return HeteroGraph.of_parts(parts, counts, relations, blocks, number(self.rows))


class Relations(EdgeSet):
    """Holds the edges of several sets, which lead to the same nodes.

    Args:
        sets: The edges of each relation.
        blocks: The block of sources that each relation comes from.
        counts: The number of sources in each block.
    """

    replayed = False

    def __init__(self, sets: Sequence[EdgeSet], blocks: Sequence[int], counts: Sequence[int]) -> None:
        self.sets, self.blocks, self.counts = sets, blocks, counts

    @property
    def bipartite(self) -> bool:
        return True

    @property
    def unwritten(self) -> bool:
        return all(edges.unwritten for edges in self.sets)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple([tensor for edges in self.sets for tensor in edges.tensors])

    def form(self) -> RelationsForm:
        relations = [
            EdgeForm(edges.tensors, (), (None, None), edges.sizes, edges.flipped, True, edges.paired)
            for edges in self.sets
        ]
        rows = relations[0].sizes[1]
        return RelationsForm(self.tensors, tuple(relations), tuple(self.blocks), tuple(self.counts), rows)

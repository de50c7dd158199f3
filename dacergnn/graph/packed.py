"""Packs graphs and their encodings into few tensors, which are sent to another process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dacergnn.graph.hetero_graph import HeteroGraph


@dataclass(frozen=True)
class PackedGraphs:
    """Holds graphs whose vectors lie in one tensor for each dtype, since sending each tensor takes time.

    Args:
        vectors: [n] by dtype, all vectors one after the other.
        places: For each graph, by the names of its vectors: dtype, start and length.
        others: For each graph, the part of its state that is not vectors.
    """

    vectors: dict[torch.dtype, Tensor]
    places: list[dict[str, tuple[torch.dtype, int, int]]]
    others: list[Any]

    @staticmethod
    def of(graphs: Sequence[HeteroGraph]) -> PackedGraphs:
        """Packs graphs; vectors that share memory are packed once."""
        parts: dict[torch.dtype, list[Tensor]] = {}
        ends: dict[torch.dtype, int] = {}
        known: dict[int, tuple[torch.dtype, int, int]] = {}
        places: list[dict[str, tuple[torch.dtype, int, int]]] = []
        others: list[Any] = []
        for graph in graphs:
            vectors, rest = graph.state()
            own: dict[str, tuple[torch.dtype, int, int]] = {}
            for name, vector in vectors.items():
                if id(vector) not in known:
                    start, length = ends.get(vector.dtype, 0), vector.numel()
                    known[id(vector)] = vector.dtype, start, length
                    parts.setdefault(vector.dtype, []).append(vector)
                    ends[vector.dtype] = start + length
                own[name] = known[id(vector)]
            places.append(own)
            others.append(rest)
        return PackedGraphs({dtype: torch.cat(pieces) for dtype, pieces in parts.items()}, places, others)

    def graphs(self) -> list[HeteroGraph]:
        """Returns the graphs, whose vectors are views of the packed tensors."""
        graphs: list[HeteroGraph] = []
        for places, rest in zip(self.places, self.others, strict=True):
            known: dict[tuple[torch.dtype, int, int], Tensor] = {}
            for place in places.values():
                if place not in known:
                    dtype, start, length = place
                    known[place] = self.vectors[dtype][start : start + length]
            graphs.append(HeteroGraph.of_state({name: known[place] for name, place in places.items()}, rest))
        return graphs

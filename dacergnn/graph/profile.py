"""What the choices of the compiler depend on: the sizes of a graph, and of its longest groups of edges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch

from dacergnn.graph.hetero_graph import HeteroGraph


@dataclass(frozen=True)
class Profile:
    """Rows of every row space, and whether each relation joins one source type with one destination type.

    ``hubs`` are the edges of the end point, or pair of it with a type, that has the most, by the path that leads there.
    """

    rows: tuple[tuple[str, int], ...]
    single_typed: bool = False
    hubs: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, graph: HeteroGraph) -> Profile:
        """The profile of a graph; counts its unique pairs."""
        return cls(tuple(graph.sizes.items()), graph.single_typed, tuple(_hubs(graph).items()))

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        return dict(self.rows)

    @cached_property
    def longest(self) -> Mapping[str, int]:
        """Edges of the longest group, by path; empty where no graph is known."""
        return dict(self.hubs)


def _hubs(graph: HeteroGraph) -> dict[str, int]:
    """Edges of the longest group by path, from encodings that are there once pairs have been counted."""
    if graph.size("E") == 0:
        return {}
    ends = {path: torch.bincount(graph.index("E", path)) for path in ("src", "dst")}
    pairs = {path: graph.encoding(f"ptr_E_{path}").diff() for path in ("srcpair", "dstpair")}
    return {path: int(counts.max()) for path, counts in (ends | pairs).items()}


TYPICAL = Profile(
    tuple(
        {
            "NS": 100_000, "ND": 100_000, "E": 1_000_000, "U": 400_000, "V": 500_000,
            "R": 100, "T": 5, "ONE": 1, "RNS": 10_000_000,
        }.items()
    )
)  # fmt: skip
"""Stands in where no graph is known."""

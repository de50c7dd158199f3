"""What the choices of the compiler depend on: the sizes of a graph, and of its longest groups of edges."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from dacergnn.graph.hetero_graph import HeteroGraph


@dataclass(frozen=True)
class Profile:
    """Rows of every row space, and whether each relation joins one source type with one destination type.

    ``hubs`` are the edges of the end point, or pair of it with a type, that has the most, by the path that leads there.
    """

    rows: tuple[tuple[str, int], ...]
    single_typed: bool = False
    hubs: tuple[tuple[str, int], ...] = ()
    origin: Callable[[], HeteroGraph | None] = field(default=lambda: None, compare=False, repr=False)
    """Finds the graph that it is of, while that is there."""

    @classmethod
    def of(cls, graph: HeteroGraph) -> Profile:
        """The profile of a graph, kept with it; counts its unique pairs."""
        if cls not in graph.derived:
            hubs = tuple(graph.longest_groups.items())
            graph.derived[cls] = cls(tuple(graph.sizes.items()), graph.single_typed, hubs, weakref.ref(graph))
        return graph.derived[cls]

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        return dict(self.rows)

    @cached_property
    def longest(self) -> Mapping[str, int]:
        """Edges of the longest group, by path; empty where no graph is known."""
        return dict(self.hubs)


TYPICAL = Profile(
    tuple(
        {
            "NS": 100_000, "ND": 100_000, "E": 1_000_000, "U": 400_000, "V": 500_000,
            "R": 100, "T": 5, "ONE": 1, "RNS": 10_000_000,
            "ZS": 2_000_000, "FS": 2_000, "TFS": 10_000, "RFS": 200_000, "UZS": 8_000_000, "VZS": 10_000_000,
            "ZD": 2_000_000, "FD": 2_000, "TFD": 10_000, "RFD": 200_000, "VZD": 10_000_000,
        }.items()
    )
)  # fmt: skip
"""Stands in where no graph is known."""

"""The sizes of a graph and of its largest groups of edges, on which the choices of the compiler depend."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from dacergnn.graph.hetero_graph import HeteroGraph
from dacergnn.graph.traced import encodings_of


@dataclass(frozen=True)
class Profile:
    """Holds the rows of every row space, and whether each relation joins one source type with one destination type.

    ``hubs`` holds the largest number of edges at an end point, or at a pair of it with a type, by path.
    """

    rows: tuple[tuple[str, int], ...]
    single_typed: bool = False
    hubs: tuple[tuple[str, int], ...] = ()
    origin: Callable[[], HeteroGraph | None] = field(default=lambda: None, compare=False, repr=False)
    """Returns the graph with this profile while it exists, else None."""

    @classmethod
    def of(cls, graph: HeteroGraph) -> Profile:
        """Returns the profile of a graph, which keeps it; counts its unique pairs."""
        if cls not in graph.derived:
            hubs = tuple(graph.longest_groups.items())
            graph.derived[cls] = cls(tuple(graph.sizes.items()), graph.single_typed, hubs, weakref.ref(graph))
        return graph.derived[cls]

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        return dict(self.rows)

    @cached_property
    def longest(self) -> Mapping[str, int]:
        """Returns the number of edges of the largest group, by path; empty if no graph is known."""
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
"""The profile that is used where no graph is known."""


def profile_of(graph: HeteroGraph, earlier: Iterable[Profile]) -> Profile:
    """Returns the profile of a graph; for a traced graph, that of ``earlier`` calls with graphs of its kind."""
    if encodings_of(graph) is None:
        return Profile.of(graph)
    fitting = [profile for profile in earlier if profile.single_typed == graph.single_typed]
    return fitting[-1] if fitting else replace(TYPICAL, single_typed=graph.single_typed)

"""What the choices of the compiler depend on: the sizes of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from dacergnn.graph.hetero_graph import HeteroGraph


@dataclass(frozen=True)
class Profile:
    """Rows of every row space, and whether each relation joins one source type with one destination type."""

    rows: tuple[tuple[str, int], ...]
    single_typed: bool = False

    @classmethod
    def of(cls, graph: HeteroGraph) -> Profile:
        """The profile of a graph; counts its unique pairs."""
        return cls(tuple(graph.sizes.items()), graph.single_typed)

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        return dict(self.rows)


TYPICAL = Profile(
    tuple(
        {
            "NS": 100_000, "ND": 100_000, "E": 1_000_000, "U": 400_000, "V": 500_000,
            "R": 100, "T": 5, "ONE": 1, "RNS": 10_000_000,
        }.items()
    )
)  # fmt: skip
"""Stands in where no graph is known."""

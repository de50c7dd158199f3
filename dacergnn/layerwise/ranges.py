"""Ranges of destinations: their in-edges, and the rows that these edges read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dacergnn.errors import ArrayError, GraphError

Key = tuple[str, str, str]
"""Node type of the sources, relation, node type of the destinations; empty names in a graph without types."""


@dataclass(frozen=True)
class Range:
    """Describes the graph that successive destinations of one node type are computed on.

    Args:
        rows: The nodes of the graph by node type, in ascending order.
        destinations: The destinations among these rows.
        edges: The in-edges of the destinations, [2, E'] by relation, as numbers of rows.
        positions: The positions of these edges in the whole graph, [E'] by relation.
    """

    rows: dict[str, Tensor]
    destinations: slice
    edges: dict[Key, Tensor]
    positions: dict[Key, Tensor]


class ByDestination:
    """Finds edges by the numbers of their destinations, [E]; those of one destination stay in the given order."""

    def __init__(self, destinations: Tensor) -> None:
        self._sorted, self._order = destinations.sort(stable=True)

    def positions(self, start: int, stop: int) -> Tensor:
        """Returns the positions of the edges that end in the destinations ``start`` to ``stop``."""
        bounds = torch.tensor([start, stop], dtype=self._sorted.dtype, device=self._sorted.device)
        first, last = torch.searchsorted(self._sorted, bounds).tolist()
        return self._order[first:last]


class SortedEdges:
    """Finds the edges of a graph by their destinations; the edges of one destination stay in the given order."""

    def __init__(self, edges: Mapping[Key, Tensor], sizes: Mapping[str, int]) -> None:
        """Sorts the edges, [2, E] by relation, of a graph with ``sizes`` nodes of each type.

        Raises:
            ArrayError: Edges are no tensor [2, E] of integers.
            GraphError: A node is out of range.
        """
        indices = {key: index for key, index in edges.items() if _is_index(key, index)}
        self._device = next((index.device for index in indices.values()), torch.device("cpu"))
        self.edges = {key: _plain(index).to(self._device) for key, index in indices.items()}
        self._found = {key: ByDestination(index[1]) for key, index in self.edges.items()}
        for key, index in self.edges.items():
            for row, kind in zip(index, (key[0], key[2]), strict=True):
                if row.numel() and not 0 <= int(row.min()) <= int(row.max()) < sizes[kind]:
                    lies = f"lie between {int(row.min())} and {int(row.max())}"
                    raise GraphError(f"{_named(key)} {lies}, but there are {sizes[kind]} rows of x{_of_type(kind)}.")

    def range(self, kind: str, start: int, stop: int, kinds: Iterable[str]) -> Range:
        """Returns the graph of the destinations ``start`` to ``stop`` of a node type, with rows of all ``kinds``.

        Nodes keep their order, as edges do, so that sums over in-edges are made in the order of the whole graph.
        """
        positions = {key: f.positions(start, stop if key[2] == kind else start) for key, f in self._found.items()}
        in_edges = {key: index[:, positions[key]] for key, index in self.edges.items()}
        none = torch.empty(0, dtype=torch.int64, device=self._device)
        own = torch.arange(start, stop, device=self._device)
        rows = {name: _rows(name, in_edges, own if name == kind else none) for name in kinds}
        numbers = {
            key: torch.stack(
                [numbers_among(rows[end], nodes) for end, nodes in zip((key[0], key[2]), index, strict=True)]
            )
            for key, index in in_edges.items()
        }
        first = int((rows[kind] < start).sum())
        return Range(rows, slice(first, first + stop - start), numbers, positions)


def _rows(kind: str, edges: Mapping[Key, Tensor], destinations: Tensor) -> Tensor:
    """Returns the nodes of a type in a range: its destinations, and the sources of its edges."""
    sources = [index[0].long() for key, index in edges.items() if key[0] == kind]
    return torch.cat([*sources, destinations]).unique()


def numbers_among(rows: Tensor, nodes: Tensor) -> Tensor:
    """Returns the positions of nodes among rows in ascending order."""
    return torch.searchsorted(rows, nodes.long()).to(nodes.dtype)


def _plain(index: Any) -> Tensor:
    """Returns the tensor of PyG's `EdgeIndex`, whose slices would not know their graph; other tensors as they are."""
    return index.as_tensor() if hasattr(index, "as_tensor") else index


def _is_index(key: Key, index: object) -> bool:
    """Returns True for edges [2, E].

    Raises:
        ArrayError: They are anything else.
    """
    if not isinstance(index, Tensor) or index.layout != torch.strided:
        kind = f"{index.layout} tensor" if isinstance(index, Tensor) else type(index).__name__
        raise ArrayError(_named(key), f"is a {kind}; give a dense tensor [2, E] of sources and destinations")
    if index.dim() != 2 or index.size(0) != 2 or index.is_floating_point() or index.dtype == torch.bool:
        raise ArrayError(_named(key), f"is {index.dtype} {list(index.shape)}; give integers [2, E]")
    return True


def _named(key: Key) -> str:
    return f"graph[{key}]" if any(key) else "graph"


def _of_type(kind: str) -> str:
    return f" of type {kind!r}" if kind else ""

"""Ranges of destinations: their in-edges, and the rows that these edges read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from dacergnn.errors import ArrayError, GraphError

Key = tuple[str, str, str]
"""Node type of the sources, relation, node type of the destinations; empty names in a graph without types."""
ONLY: Key = ("", "", "")
"""The one relation of a graph without types."""


class ByDestination:
    """Finds edges by the numbers of their destinations, [E]; those of one destination stay in the given order."""

    def __init__(self, destinations: Tensor) -> None:
        self._sorted, self._order = destinations.sort(stable=True)

    def positions(self, start: int, stop: int) -> Tensor:
        """Returns the positions of the edges that end in the destinations ``start`` to ``stop``."""
        bounds = torch.tensor([start, stop], dtype=self._sorted.dtype, device=self._sorted.device)
        first, last = torch.searchsorted(self._sorted, bounds).tolist()
        return self._order[first:last]


def checked_edges(edges: Mapping[Key, Tensor], sizes: Mapping[str, int]) -> dict[Key, Tensor]:
    """Returns the edges, [2, E] by relation, of a graph with ``sizes`` nodes of each type, on one device.

    Raises:
        ArrayError: Edges are no tensor [2, E] of integers.
        GraphError: A node is out of range.
    """
    indices = {key: index for key, index in edges.items() if _is_index(key, index)}
    device = next((index.device for index in indices.values()), torch.device("cpu"))
    found = {key: _plain(index).to(device) for key, index in indices.items()}
    for key, index in found.items():
        for row, kind in zip(index, (key[0], key[2]), strict=True):
            if row.numel() and not 0 <= int(row.min()) <= int(row.max()) < sizes[kind]:
                lies = f"lie between {int(row.min())} and {int(row.max())}"
                raise GraphError(f"{_named(key)} {lies}, but there are {sizes[kind]} rows of x{_of_type(kind)}.")
    return found


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

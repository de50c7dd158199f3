"""Graphs that another process has encoded, found by the edge tensors that came with them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor

from dacergnn.frontends.frontend import GraphKey
from dacergnn.graph import HeteroGraph

_local = threading.local()
_arrived: dict[int, list[Arrival]] = {}


@dataclass(frozen=True)
class EncodedGraph:
    """A graph, and what a layer looks for it by.

    Args:
        owner: As of `GraphCache.find`.
        tensors: Those that hold the edges.
        sizes: The rest of the key.
    """

    owner: object
    tensors: tuple[Tensor, ...]
    sizes: tuple[object, ...]
    graph: HeteroGraph


@dataclass(frozen=True)
class Arrival:
    """An encoded graph that does not keep its tensors, and how often these had been written to."""

    owner: object
    references: list[weakref.ref[Tensor]]
    versions: list[int]
    sizes: tuple[object, ...]
    graph: HeteroGraph

    def is_of(self, owner: object, key: GraphKey) -> bool:
        """Returns whether a layer looks for this graph."""
        tensors, sizes = key
        return (
            sizes == self.sizes
            and owner == self.owner
            and len(tensors) == len(self.references)
            and all(r() is t for r, t in zip(self.references, tensors, strict=True))
            and [t._version for t in tensors if isinstance(t, Tensor)] == self.versions
        )


def arrive(found: Sequence[EncodedGraph]) -> None:
    """Lets layers find graphs as long as their edge tensors are there."""
    for item in found:
        first = id(item.tensors[0])
        references = [weakref.ref(t) for t in item.tensors]
        references[0] = weakref.ref(item.tensors[0], lambda _, first=first: _arrived.pop(first, None))
        versions = [t._version for t in item.tensors]
        _arrived.setdefault(first, []).append(Arrival(item.owner, references, versions, item.sizes, item.graph))


def arrived(owner: object, key: GraphKey) -> HeteroGraph | None:
    """Returns the graph that arrived for a layer, if there is one."""
    found = _arrived.get(id(key[0][0])) if _arrived and key[0] else None
    return next((a.graph for a in found if a.is_of(owner, key)), None) if found else None


@contextmanager
def collecting() -> Generator[list[EncodedGraph]]:
    """While it is active, layers on this thread encode graphs and compute nothing; gives the graphs."""
    before, _local.found = is_collecting(), list[EncodedGraph]()
    try:
        yield _local.found
    finally:
        _local.found = before


def is_collecting() -> list[EncodedGraph] | None:
    """Returns where graphs are collected, None if they are not."""
    return getattr(_local, "found", None)


def collect(owner: object, key: GraphKey, graph: HeteroGraph) -> None:
    """Notes a graph that a layer has found, while graphs are collected."""
    found, tensors = is_collecting(), tuple([t for t in key[0] if isinstance(t, Tensor)])
    if found is not None and len(tensors) == len(key[0]) > 0:
        found.append(EncodedGraph(owner, tensors, key[1], graph))

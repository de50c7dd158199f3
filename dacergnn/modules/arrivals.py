"""Finds graphs that another process has encoded, by the edge tensors that came with them or by their numbers."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dacergnn.frontends.dgl.graph_classes import is_graph
from dacergnn.frontends.frontend import GraphKey
from dacergnn.graph import HeteroGraph
from dacergnn.graph.native_sorting import checksum

_local = threading.local()
_arrived: dict[int, list[Arrival]] = {}
_numbered: weakref.WeakValueDictionary[tuple[object, tuple[object, ...]], HeteroGraph] = weakref.WeakValueDictionary()
"""Graphs of DGL by owner and sizes; the last size is a checksum of the edges."""
_numbers: weakref.WeakKeyDictionary[HeteroGraph, Tensor] = weakref.WeakKeyDictionary()
"""The edges and types of these graphs, which are compared with those of a call."""


@dataclass(frozen=True)
class EncodedGraph:
    """Describes a graph, and the key by which a layer looks for it.

    Args:
        owner: The owner that `GraphCache.find` takes.
        tensors: The tensors that hold the edges; for a graph of DGL, one with the numbers of its edges and types.
        sizes: The rest of the key; for a graph of DGL, the checksum comes last.
        is_numbered: Whether it is a graph of DGL.
    """

    owner: object
    tensors: tuple[Tensor, ...]
    sizes: tuple[object, ...]
    is_numbered: bool
    graph: HeteroGraph


@dataclass(frozen=True)
class Arrival:
    """Describes an encoded graph, with weak references to its tensors and how often these had been written to."""

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


def arrive(graphs: Sequence[EncodedGraph]) -> None:
    """Lets layers find graphs while their edge tensors exist; for graphs of DGL, while the encoded graphs exist."""
    for item in graphs:
        if item.is_numbered:
            _numbered[item.owner, item.sizes] = item.graph
            (_numbers[item.graph],) = item.tensors
            continue
        first = id(item.tensors[0])
        references = [weakref.ref(t) for t in item.tensors]
        references[0] = weakref.ref(item.tensors[0], lambda _, first=first: _arrived.pop(first, None))
        versions = [t._version for t in item.tensors]
        _arrived.setdefault(first, []).append(Arrival(item.owner, references, versions, item.sizes, item.graph))


def arrived(owner: object, key: GraphKey) -> HeteroGraph | None:
    """Returns the graph that arrived for a layer, if there is one."""
    numbers = _numbers_of(key) if _numbered else None
    if numbers is not None:
        summed, vectors = numbers
        graph = _numbered.get((owner, (*key[1], summed)))
        return graph if graph is not None and torch.equal(_numbers[graph], torch.cat(vectors)) else None
    arrivals = _arrived.get(id(key[0][0])) if _arrived and key[0] else None
    return next((a.graph for a in arrivals if a.is_of(owner, key)), None) if arrivals else None


@contextmanager
def collecting() -> Generator[list[EncodedGraph]]:
    """Makes layers on this thread encode graphs and compute nothing within the context; yields the graphs."""
    before, _local.found = is_collecting(), list[EncodedGraph]()
    try:
        yield _local.found
    finally:
        _local.found = before


def is_collecting() -> list[EncodedGraph] | None:
    """Returns the list that graphs are collected in; None if they are not collected."""
    return getattr(_local, "found", None)


def collect(owner: object, key: GraphKey, graph: HeteroGraph) -> None:
    """Notes a graph that a layer has looked up, while graphs are collected."""
    graphs = is_collecting()
    if graphs is None:
        return
    tensors, numbers = tuple([t for t in key[0] if isinstance(t, Tensor)]), _numbers_of(key)
    if numbers is not None:
        summed, vectors = numbers
        graphs.append(EncodedGraph(owner, (torch.cat(vectors),), (*key[1], summed), True, graph))
    elif len(tensors) == len(key[0]) > 0:
        graphs.append(EncodedGraph(owner, tensors, key[1], False, graph))


def _numbers_of(key: GraphKey) -> tuple[int, list[Tensor]] | None:
    """Returns the edges and types in a key with a graph of DGL, and their checksum; None for other keys.

    They replace the identity of the graph: a heterograph returns a new object for a relation at each access, and anyone
    may write to the memory of edges. Graphs on devices have none.
    """
    graph: Any = key[0][0] if key[0] else None
    types = [t for t in key[0][1:] if isinstance(t, Tensor)]
    if not is_graph(graph) or len(types) != len(key[0]) - 1:
        return None
    vectors = [*graph.edges(order="eid"), *types]
    summed = checksum(vectors)
    return None if summed is None else (summed, vectors)

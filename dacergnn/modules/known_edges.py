"""Tells whether a call has the same edges as an earlier call (docs/graphs.md, "Graphs that change")."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from dacergnn.config import CheckGraph
from dacergnn.frontends.dgl.graph_classes import is_graph_class
from dacergnn.runtime.edge_changes import Seen


class Watched:
    """Describes tensors and graph objects as they were at one moment, without keeping them alive.

    Args:
        items: Tensors, sparse ones too, graphs of DGL, or objects that never change.
        check: Whether their numbers are compared (`Config.check_graph`).
    """

    def __init__(self, items: Sequence[object], check: CheckGraph = "always") -> None:
        self._seen = Seen(_tensors(items), check)
        self._alone = all(isinstance(item, Tensor) for item in items)
        if self._alone:
            return
        self._references = [_reference(item) for item in items]
        self._indices = [getattr(item, "_graph", None) if is_graph_class(type(item)) else None for item in items]
        edges = [edge for item, index in zip(items, self._indices, strict=True) if index for edge in _edges(item)]
        self._of_graphs = edges, Seen(edges, check)

    @property
    def is_alive(self) -> bool:
        """Tells whether all of the tensors still exist."""
        return self._seen.is_alive

    def same(self, items: Sequence[object]) -> bool:
        """Returns whether these are the same objects with the same contents as at that moment."""
        if self._alone:
            return self._seen.same(items)  # type: ignore[arg-type]
        if len(items) != len(self._references):
            return False
        for item, reference, index in zip(items, self._references, self._indices, strict=True):
            if reference() is not item or (index is not None and item._graph is not index):  # type: ignore[attr-defined]
                return False
        edges, seen = self._of_graphs
        return self._seen.unwritten(_tensors(items)) and (not edges or seen.unwritten(edges))


def _tensors(items: Sequence[object]) -> list[Tensor]:
    return [item for item in items if isinstance(item, Tensor)]


def _edges(graph: Any) -> list[Tensor]:
    """Returns both ends of the edges of all relations of a graph of DGL, in its own memory."""
    return [end for relation in graph.canonical_etypes for end in graph.edges(etype=relation, order="eid")]


def _reference(item: object) -> Callable[[], object]:
    try:
        return weakref.ref(item)
    except TypeError:
        return lambda: item

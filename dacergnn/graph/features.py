"""Keeps graphs with sparse features; they are found again by the feature tensors or the positions of entries."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from torch import Tensor

from dacergnn.graph.encodings import Encodings
from dacergnn.graph.lifetime import lasting
from dacergnn.graph.nonzeros import Nonzeros, check_sparse, nonzeros_of
from dacergnn.graph.spaces import NODE_SIDES

Graph = TypeVar("Graph")
Make = Callable[[dict[str, Nonzeros]], Graph]
"""A function that makes a graph with the nonzeros of features, by side."""

_KEPT = 4


@dataclass(frozen=True)
class _Entry(Generic[Graph]):
    """Holds a graph, with weak references to the tensors that it was made for, and their versions."""

    tensors: dict[str, tuple[Callable[[], Tensor | None], int]]
    nonzeros: dict[str, Nonzeros]
    graph: Graph

    def is_of(self, tensors: Mapping[str, Tensor]) -> bool:
        """Tells whether these are the same tensors, and nobody has written to them."""
        if tensors.keys() != self.tensors.keys():
            return False
        known = ((self.tensors[side], x) for side, x in tensors.items())
        return all(reference() is x and version == _version(x) for (reference, version), x in known)

    def fits(self, nonzeros: Mapping[str, Nonzeros]) -> bool:
        """Tells whether the entries have the same positions."""
        return nonzeros.keys() == self.nonzeros.keys() and all(_same(self.nonzeros[s], n) for s, n in nonzeros.items())


class FeatureGraphs(Generic[Graph]):
    """Keeps the last graphs with sparse features that were made of one graph."""

    def __init__(self) -> None:
        self._entries: list[_Entry[Graph]] = []
        self._lock = threading.Lock()

    def find(
        self, encodings: Encodings, src: Tensor | None, dst: Tensor | None, make: Make[Graph]
    ) -> tuple[Graph, Tensor | None, Tensor | None]:
        """Returns the graph for these features, made by ``make`` if new, and their values [ZS] and [ZD].

        It checks the features as `HeteroGraph.with_features` says. ``encodings`` are those of the graph without them.
        """
        features = {side: x for side, x in zip(NODE_SIDES, (src, dst), strict=True) if x is not None}
        for side, x in features.items():
            check_sparse(_NAMES[side], x, encodings.size(NODE_SIDES[side]), encodings.edges.src.device)
        with self._lock:
            entry = next((e for e in self._entries if e.is_of(features)), None) or self._note(features, make)
        values = {side: entry.nonzeros[side].values(x) for side, x in features.items()}
        return entry.graph, values.get("S"), values.get("D")

    def _note(self, features: dict[str, Tensor], make: Make[Graph]) -> _Entry[Graph]:
        with lasting():
            nonzeros = {side: nonzeros_of(_NAMES[side], x) for side, x in features.items()}
            known = next((e for e in self._entries if e.fits(nonzeros)), None)
            tensors = {side: (weakref.ref(x), _version(x)) for side, x in features.items()}
            entry = _Entry(tensors, nonzeros, make(nonzeros) if known is None else known.graph)
        if known is not None:  # use the memory of the known nonzeros
            orders = {side: n.order for side, n in nonzeros.items()}
            entry = replace(entry, nonzeros={s: replace(n, order=orders[s]) for s, n in known.nonzeros.items()})
        self._entries = [entry, *(e for e in self._entries if e is not known)][:_KEPT]
        return entry


_NAMES = {"S": "x", "D": "x_dst"}


def _same(a: Nonzeros, b: Nonzeros) -> bool:
    return a.shape == b.shape and all(
        len(p) == len(q) and bool((p == q).all()) for p, q in ((a.starts, b.starts), (a.columns, b.columns))
    )


def _version(x: Tensor) -> int:
    return 0 if x.is_inference() else x._version

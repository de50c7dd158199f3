"""Sparse features of a graph's nodes, found again by the tensors that hold them, or by the places of their entries."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

from dacergnn.graph.lasting import lasting
from dacergnn.graph.nonzeros import Nonzeros, check_sparse, nonzeros_of
from dacergnn.graph.spaces import NODE_SIDES

if TYPE_CHECKING:
    from dacergnn.graph.hetero_graph import HeteroGraph

Make = Callable[[dict[str, Nonzeros]], "HeteroGraph"]
"""Makes a graph with the nonzeros of features, by side."""

_KEPT = 4


class Features(NamedTuple):
    """A graph with row spaces for the nonzeros of sparse features, and their values, [ZS] and [ZD]."""

    graph: HeteroGraph
    src: Tensor | None
    dst: Tensor | None


@dataclass(frozen=True)
class _Entry:
    """A graph, and the tensors that it was made for: weakly, with their versions."""

    tensors: dict[str, tuple[Callable[[], Tensor | None], int]]
    nonzeros: dict[str, Nonzeros]
    graph: HeteroGraph

    def is_of(self, tensors: Mapping[str, Tensor]) -> bool:
        """Returns whether these are the very tensors, unwritten."""
        if tensors.keys() != self.tensors.keys():
            return False
        known = ((self.tensors[side], x) for side, x in tensors.items())
        return all(reference() is x and version == _version(x) for (reference, version), x in known)

    def fits(self, nonzeros: Mapping[str, Nonzeros]) -> bool:
        """Returns whether entries stand in the same places."""
        return nonzeros.keys() == self.nonzeros.keys() and all(_same(self.nonzeros[s], n) for s, n in nonzeros.items())


class FeatureGraphs:
    """The last graphs with sparse features that were made of one graph."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        self._lock = threading.Lock()

    def find(
        self,
        graph: HeteroGraph,
        src: Tensor | None,
        dst: Tensor | None,
        make: Make,
    ) -> Features:
        """The graph for these features, made by ``make`` unless it is known; checks them as `with_features` says."""
        features = {side: x for side, x in zip(NODE_SIDES, (src, dst), strict=True) if x is not None}
        for side, x in features.items():
            check_sparse(_NAMES[side], x, graph.size(NODE_SIDES[side]), graph.device)
        with self._lock:
            entry = next((e for e in self._entries if e.is_of(features)), None) or self._note(features, make)
        values = {side: entry.nonzeros[side].values(x) for side, x in features.items()}
        return Features(entry.graph, values.get("S"), values.get("D"))

    def _note(self, features: dict[str, Tensor], make: Make) -> _Entry:
        with lasting():
            nonzeros = {side: nonzeros_of(_NAMES[side], x) for side, x in features.items()}
            known = next((e for e in self._entries if e.fits(nonzeros)), None)
            tensors = {side: (weakref.ref(x), _version(x)) for side, x in features.items()}
            entry = _Entry(tensors, nonzeros, make(nonzeros) if known is None else known.graph)
        if known is not None:  # share its memory
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

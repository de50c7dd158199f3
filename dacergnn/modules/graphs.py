"""Which graph a call is about: encodings are found again by the identity of the tensors that they were made of."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dacergnn.frontends.frontend import GraphKey
from dacergnn.graph import HeteroGraph

_KEPT = 16


class GraphCache:
    """The last graphs by their edge tensors; a tensor that was written to since, or is gone, is not the same."""

    def __init__(self) -> None:
        self._graphs: OrderedDict[tuple[Any, ...], tuple[tuple[Any, ...], tuple[int, ...], HeteroGraph]] = OrderedDict()
        self._offered: list[HeteroGraph] = []
        self.encoded = 0

    def offer(self, graph: HeteroGraph) -> None:
        """Keep a graph, whose encodings calls with equal edges will share."""
        self._offered.append(graph)

    def find(self, owner: object, key: GraphKey, encode: Callable[[], HeteroGraph]) -> HeteroGraph:
        """The graph for ``key``; ``owner`` stands for everything else that `encode` depends on."""
        objects, sizes = key
        identity = (owner, sizes, *[id(o) for o in objects])
        found = self._graphs.get(identity)
        if found is not None:
            references, versions, graph = found
            if all(r() is o for r, o in zip(references, objects, strict=True)) and versions == _versions(objects):
                return graph
        graph = self._known(encode())
        self.encoded += 1
        self._graphs[identity] = (tuple([_reference(o) for o in objects]), _versions(objects), graph)
        self._graphs.move_to_end(identity)
        while len(self._graphs) > _KEPT:
            self._graphs.popitem(last=False)
        return graph

    def _known(self, graph: HeteroGraph) -> HeteroGraph:
        """A graph that is kept already and equal to ``graph``, with what was encoded of it; else ``graph``."""
        kept = [*self._offered, *(entry[2] for entry in self._graphs.values())]
        return next((k for k in kept if _equal(k, graph)), graph)


def _equal(a: HeteroGraph, b: HeteroGraph) -> bool:
    """Whether two graphs have the same edges in the same order, and the same types."""
    if a is b:
        return True
    if (
        a.bipartite != b.bipartite
        or a.device != b.device
        or any(a.size(s) != b.size(s) for s in ("NS", "ND", "E", "R", "T"))
    ):
        return False
    if (a.edge_perm is None) != (b.edge_perm is None) or not _same(a.edge_perm, b.edge_perm):
        return False
    names = ["idx_E_src", "idx_E_dst", "idx_E_etype"] + (["idx_NS_ntype", "idx_ND_ntype"] if a.size("T") > 1 else [])
    return all(_same(a.encoding(n), b.encoding(n)) for n in names)


def _same(a: Tensor | None, b: Tensor | None) -> bool:
    return a is b or (a is not None and b is not None and torch.equal(a, b))


def _versions(objects: tuple[object, ...]) -> tuple[int, ...]:
    return tuple([o._version if isinstance(o, Tensor) and not o.is_inference() else 0 for o in objects])


def _reference(item: object) -> Callable[[], object]:
    try:
        return weakref.ref(item)
    except TypeError:
        return lambda: item

"""Finds the encoded graph of a call again by the identity of the tensors that it was made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from dacergnn.config import CheckGraph
from dacergnn.errors import DeviceError, UnsupportedCallError
from dacergnn.frontends.dgl.ends import KEPT_GRAPHS
from dacergnn.frontends.frontend import GraphKey
from dacergnn.frontends.pyg.adjacency import Adjacencies
from dacergnn.graph import HeteroGraph
from dacergnn.graph.lifetime import lasting
from dacergnn.graph.sorting import equal
from dacergnn.modules.arrivals import arrived, collect
from dacergnn.modules.known_edges import Watched
from dacergnn.runtime import cuda_graph

_KEPT = 16


class _Entry(NamedTuple):
    """Holds a graph, and the objects that it was made of."""

    owner: object
    sizes: tuple[object, ...]
    ids: list[int]
    objects: Watched
    graph: HeteroGraph

    def matches(self, owner: object, key: GraphKey) -> bool:
        objects, sizes = key
        return sizes == self.sizes and owner == self.owner and self.objects.same(objects)


class GraphCache:
    """Holds the last graphs by their edge tensors; a tensor that was written to since, or is gone, does not match.

    Args:
        check: Whether the numbers in the tensors are compared (`Config.check_graph`).
    """

    def __init__(self, check: CheckGraph = "always") -> None:
        self._check: CheckGraph = check
        self._entries: list[_Entry] = []
        self._offered: list[HeteroGraph] = []
        self._copies: list[tuple[tuple[Tensor, ...], tuple[object, ...], list[int], HeteroGraph]] = []
        self.adjacencies = Adjacencies()
        self.encoded = 0

    def offer(self, graph: HeteroGraph) -> None:
        """Keeps a graph, whose encodings calls with equal edges will share."""
        self._offered.append(graph)

    def like(self, graph: HeteroGraph) -> HeteroGraph:
        """Returns the graph whose sizes decide choices for ``graph``: an offered graph of its kind, or itself."""
        return next((g for g in self._offered if g.single_typed == graph.single_typed), graph)

    def find(self, owner: object, key: GraphKey, encode: Callable[[], HeteroGraph]) -> HeteroGraph:
        """Returns the graph for ``key``; ``owner`` stands for everything else that `encode` depends on."""
        ids = [*map(id, key[0])]
        for entry in self._entries:
            if entry.ids == ids and entry.matches(owner, key):
                collect(owner, key, entry.graph)
                return entry.graph
        encoded = arrived(owner, key)
        if encoded is None:
            encoded = self.encode(encode)
        encoded.check = self._check
        graph = self._known(encoded)
        collect(owner, key, graph)
        if self._check == "always":  # also for an offered graph
            graph.check = self._check
        entry = _Entry(owner, key[1], ids, Watched(key[0], self._check), graph)
        self._entries = [entry, *self._entries[: _KEPT - 1]]
        return graph

    def encode(self, encode: Callable[[], HeteroGraph]) -> HeteroGraph:
        """Encodes a graph that was not met before."""
        if cuda_graph.capturing():
            raise DeviceError(
                "A graph that was not met before cannot be encoded while a CUDA graph is recorded; make the call once "
                "before."
            )
        self.encoded += 1
        with lasting():
            return encode()

    def find_edges(
        self, tensors: tuple[Tensor, ...], sizes: tuple[object, ...], own: bool, encode: Callable[[], HeteroGraph]
    ) -> HeteroGraph:
        """Returns the graph with these edges and types; ``own`` tells that the caller keeps the tensors.

        A call that makes its edges, to add self loops for example, has new tensors each time. Copies of these are
        kept, and compared. Edges of a graph of DGL keep their graphs themselves.
        """
        home = vars(tensors[0]).get(KEPT_GRAPHS)
        if home is not None:
            if not home:
                home.append(GraphCache())
            return home[0].find("edges", (tensors, sizes), encode)
        if own:
            return self.find("edges", (tensors, sizes), encode)
        if cuda_graph.capturing():
            raise UnsupportedCallError(
                "its edges are made during the call, and cannot be compared with known ones while a CUDA graph is "
                "recorded; make them before the call."
            )
        for kept, kept_sizes, counted, graph in self._copies:
            unchanged = kept_sizes == sizes and len(kept) == len(tensors) and counted == [*map(_version, kept)]
            if unchanged and equal(*zip(kept, tensors, strict=True)):
                return graph
        graph = self.find("edges", (tensors, sizes), encode)
        with lasting():
            tensors = tuple([t.clone() for t in tensors])  # a module may hold the originals and change them
        self._copies = [(tensors, sizes, [*map(_version, tensors)], graph), *self._copies[: _KEPT - 1]]
        return graph

    def _known(self, graph: HeteroGraph) -> HeteroGraph:
        """Returns a kept graph that is equal to ``graph``, since it has encodings already; else ``graph``."""
        extent = graph.extent
        kept = [k for k in (*self._offered, *[entry.graph for entry in self._entries]) if k.extent == extent]
        return next((k for k in kept if k.checksum == graph.checksum and _serves(k, graph)), graph)


def _serves(a: HeteroGraph, b: HeteroGraph) -> bool:
    """Returns whether two graphs have the same edges in the same order, and the same types as far as ``b`` has any."""
    if a is b:
        return True
    if a.extent != b.extent or a.device != b.device or (b.has_node_types and a.size("T") != b.size("T")):
        return False
    if (a.edge_perm is None) != (b.edge_perm is None):
        return False
    names = ["idx_E_src", "idx_E_dst", *(["idx_E_etype"] if b.size("R") > 1 else [])]
    names += ["idx_NS_ntype", "idx_ND_ntype"] if b.size("T") > 1 else []
    orders = [] if a.edge_perm is None or b.edge_perm is None else [(a.edge_perm, b.edge_perm)]
    return equal(*orders, *((a.encoding(n), b.encoding(n)) for n in names))


def _version(item: object) -> int:
    try:
        return item._version  # type: ignore[attr-defined]
    except (AttributeError, RuntimeError):  # no tensor, or one made in inference mode
        return 0

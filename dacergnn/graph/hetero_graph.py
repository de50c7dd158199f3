"""`HeteroGraph`: the edges of a heterogeneous graph, sorted once, and the encodings derived from them."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from dacergnn.config import CheckGraph
from dacergnn.errors import EncodingError, GraphError
from dacergnn.graph import native_sorting, sorting
from dacergnn.graph.canonical import canonical_edges, canonical_order, to_device, type_ranges
from dacergnn.graph.edge_list import ArrayLike, EdgeIndexLike, EdgeList
from dacergnn.graph.encodings import Encodings
from dacergnn.graph.feature_encodings import FeatureEncodings
from dacergnn.graph.features import FeatureGraphs
from dacergnn.graph.from_dgl import edge_list_of_dgl
from dacergnn.graph.from_pyg import edge_list_of_pyg
from dacergnn.graph.lifetime import lasting
from dacergnn.graph.names import NumberNames
from dacergnn.graph.nonzeros import Nonzeros
from dacergnn.graph.spaces import ROW_SPACES, SPACES
from dacergnn.graph.stored import StoredGraph
from dacergnn.graph.traced import traced_edges, traced_parts
from dacergnn.graph.typed_parts import canonical_parts

_NUMBERS = itertools.count()
_ROW_SPACES = frozenset(ROW_SPACES)
_LIVE: weakref.WeakValueDictionary[str, HeteroGraph] = weakref.WeakValueDictionary()


class Features(NamedTuple):
    """Holds a graph with row spaces for the nonzeros of sparse features, and the values of these, [ZS] and [ZD]."""

    graph: HeteroGraph
    src: Tensor | None
    dst: Tensor | None


class HeteroGraph(StoredGraph):
    """Represents an immutable graph with typed edges and nodes; edges are in the canonical order (etype, dst).

    Make one with `from_arrays`, `from_pyg` or `from_dgl`. Node ids are global over all types. Destinations
    are the first ND of the NS sources, unless `bipartite` is true. Everything derived from the edges is built
    at the first request, and kept; several threads may request it at once.
    """

    def __init__(self, edges: EdgeList) -> None:
        """Makes a graph of a checked edge list in any order."""
        ordered, perm = canonical_order(edges)
        self._hold(Encodings(ordered), perm)

    def __reduce__(self) -> tuple[Any, ...]:
        own = self._edges
        typed = own.num_edge_types > 1
        names = [None if isinstance(n, NumberNames) else tuple(n) for n in (own.edge_type_names, own.node_type_names)]
        vectors = own.src, own.dst, own.edge_type if typed else None, own.src_type, own.dst_type, self._edge_perm
        numbers = own.num_src, own.num_dst, own.num_edge_types, own.num_node_types, own.bipartite
        return unpickled_graph, (vectors, numbers, names)

    def build(self, names: Iterable[str]) -> None:
        """Builds encodings, edge weights or "counts" by their names."""
        wanted: list[str] = []
        for name in names:
            if name == "counts":
                self._encodings.counts  # noqa: B018
            elif "_weights_" in name:
                kind, _, dtype = name.partition("_weights_")
                self._encodings.weights(kind, getattr(torch, dtype))
            elif not name.startswith("arange_"):
                wanted.append(name)
        self._encodings.addresses(wanted)

    def tell(self, function: Callable[[str], None] | None) -> None:
        """Calls a function with the name of everything that is built from now on; None ends that."""
        self._encodings.tell = function

    @classmethod
    def of_parts(cls, *args: Any, **options: Any) -> HeteroGraph:
        """Returns the graph of edges of several types; the arguments are those of `canonical_parts`."""
        if torch.compiler.is_exporting():
            return cls.of_encodings(*traced_parts(*args, **options))
        edges, perm = canonical_parts(*args, **options)
        return cls.of_encodings(Encodings(edges), perm)

    def _hold(self, encodings: Encodings, edge_perm: Tensor | None) -> None:
        self.key = str(next(_NUMBERS))
        """Identifies the graph for `of_key` in traced programs, which can only pass text."""
        _LIVE[self.key] = self
        edges = encodings.edges
        self._edges, self._edge_perm, self._encodings = edges, edge_perm, encodings
        self.extent = edges.num_src, edges.num_dst, edges.src.numel(), edges.num_edge_types, edges.bipartite
        """Sizes that are equal in equal graphs."""
        self.derived: dict[object, Any] = {}
        """Results that other objects prepared for this graph, by a key of theirs; kept as long as the graph."""
        self.check: CheckGraph = "always"
        """Tells whether the numbers of what this graph was made of are compared (`Config.check_graph`)."""

    @classmethod
    @lasting()
    def from_arrays(
        cls,
        edge_index: EdgeIndexLike,
        edge_type: ArrayLike | None,
        *,
        num_nodes: int | tuple[int, int],
        num_edge_types: int | None = None,
        node_type: ArrayLike | tuple[ArrayLike, ArrayLike] | None = None,
        num_node_types: int | None = None,
        bipartite: bool = False,
        edge_type_names: Sequence[str] | None = None,
        node_type_names: Sequence[str] | None = None,
    ) -> HeteroGraph:
        """Makes a graph of torch tensors or NumPy arrays of int32 or int64.

        Args:
            edge_index: [2, E], sources in row 0, or a pair (src [E], dst [E]).
            edge_type: [E], or None if there is one type.
            num_nodes: Number of nodes, or (sources, destinations), e.g. of a sampled block.
            num_edge_types: Number of edge types; the largest type plus one if not given.
            node_type: [NS], or a pair ([NS], [ND]) if bipartite; None if there is one type.
            num_node_types: Number of node types; the largest type plus one if not given.
            bipartite: Sources and destinations are different nodes; else destinations are the first sources.
            edge_type_names: One name for each edge type.
            node_type_names: One name for each node type.

        Raises:
            ArrayError: Wrong dtype, shape, length or device.
            GraphError: Index or type out of range, or counts that contradict each other.
        """
        return cls.of_edges(
            edge_index,
            edge_type,
            num_nodes=num_nodes,
            num_edge_types=num_edge_types,
            node_type=node_type,
            num_node_types=num_node_types,
            bipartite=bipartite,
            edge_type_names=edge_type_names,
            node_type_names=node_type_names,
        )

    @classmethod
    def of_edges(cls, edge_index: EdgeIndexLike, edge_type: ArrayLike | None, **options: Any) -> HeteroGraph:
        """Makes a graph of an edge list; the arguments are those of `make_edge_list`, as in `from_arrays`."""
        if torch.compiler.is_exporting():
            return cls.of_encodings(*traced_edges(edge_index, edge_type, **options))
        edges, perm = canonical_edges(edge_index, edge_type, **options)
        return cls.of_encodings(Encodings(edges), perm)

    @classmethod
    @lasting()
    def from_pyg(cls, data: Any, edge_type: Any = None, **options: Any) -> HeteroGraph:
        """Makes a graph of PyG's `Data`, `HeteroData`, `EdgeIndex`, `(edge_index, edge_type)` or an adjacency.

        `HeteroData` gets global node ids, type after type in its order. A sparse adjacency is read as PyG's
        `adj_t` (rows are destinations), with the edge type as its value. `options` are those of
        `from_arrays`; `num_nodes` may be left out. Options that `HeteroData` holds itself are refused.
        """
        return cls(edge_list_of_pyg(data, edge_type, **options))

    @classmethod
    @lasting()
    def from_dgl(cls, g: Any, etype: Any = None) -> HeteroGraph:
        """Makes a graph of a DGL graph or block; `etype` (tensor or `edata` key) holds the types of a homogeneous one.

        A heterograph gets global node ids, type after type in its order; edges follow type after type by edge
        id. A block of several node types is bipartite, since its destinations are no prefix of all its sources.
        """
        return cls(edge_list_of_dgl(g, etype))

    @staticmethod
    def of_key(key: str) -> HeteroGraph:
        """Returns the graph with this `key`; raises KeyError if it is gone."""
        return _LIVE[key]

    def size(self, space: str) -> int:
        """Returns the number of rows of a row space, by name; U and V are counted at the first request."""
        if space not in _ROW_SPACES:
            raise EncodingError(f"{space!r} is not a row space; use one of {', '.join(SPACES)}.")
        return self._encodings.size(space)

    def sizes_of(self, spaces: Sequence[str]) -> dict[str, int]:
        """Returns the number of rows of several row spaces by name; the names are not checked."""
        return self._encodings.sizes(spaces)

    @property
    def sizes(self) -> dict[str, int]:
        """Returns the number of rows of every row space; counts U and V, so call `size` if they are not needed."""
        return {space: self.size(space) for space in self._encodings.spaces}

    def encoding(self, name: str) -> Tensor:
        """Returns an encoding by name (`dacergnn.graph.spaces`): 1-D, contiguous, `index_dtype`. Do not write to it."""
        return self._encodings.get(name)

    def addresses(self, names: Sequence[str]) -> tuple[list[int], Encodings]:
        """Builds several encodings together, and returns their addresses, and the object that keeps them alive."""
        return self._encodings.addresses(names), self._encodings

    def index(self, space: str, path: str) -> Tensor:
        """Returns the row that `path` leads to from each row of `space`: the encoding ``idx_<space>_<path>``."""
        return self._encodings.get(f"idx_{space}_{path}")

    def encoding_bytes(self) -> dict[str, int]:
        """Returns the bytes of the encodings built so far, by name; encodings that share memory count once."""
        return self._encodings.byte_counts()

    def pair_mean_weights(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """Returns [E] in canonical order: 1 / number of edges with the same destination and edge type."""
        return self._encodings.weights("pair_mean", dtype)

    def symmetric_weights(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """Returns [E] in canonical order: 1 / root of the product of both ends' in-degrees; 0 where one is 0."""
        return self._encodings.weights("symmetric", dtype)

    def degree_roots(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """Returns [NS] 1 / root of the in-degree of each node; 0 where it is 0. Destinations are the first sources."""
        return self._encodings.weights("roots", dtype)

    def degrees(self, end: str, dtype: torch.dtype = torch.float32) -> Tensor:
        """Returns the number of edges at each node of one end, "src" [NS] or "dst" [ND]."""
        return self._encodings.weights(f"{end}_degree", dtype)

    @property
    def edge_perm(self) -> Tensor | None:
        """Returns [E] the position of each canonical edge in the user's list; None if that is in canonical order."""
        return self._edge_perm

    def to_canonical(self, values: Tensor) -> Tensor:
        """Returns `values` [E, ...] moved from the user's order to the canonical one; `values` itself if they agree."""
        self._encodings.check_rows(values)
        return values if self._edge_perm is None else values.index_select(0, self._edge_perm)

    def from_canonical(self, values: Tensor) -> Tensor:
        """Returns `values` [E, ...] moved from the canonical order to the user's; `values` itself if they agree."""
        self._encodings.check_rows(values)
        if self._edge_perm is None:
            return values
        return torch.empty_like(values).index_copy(0, self._edge_perm.long(), values)

    def to(self, device: torch.device | str) -> HeteroGraph:
        """Returns the graph on another device, with encodings of its own; itself if it is there already."""
        moved = to_device(self._edges, device)
        if moved.src.device == self.device:
            return self
        perm = None if self._edge_perm is None else self._edge_perm.to(device)
        graph = HeteroGraph.of_encodings(Encodings(moved), perm)  # sorted already
        graph._encodings.take_counts(self._encodings)
        return graph

    def with_features(self, src: Tensor | None = None, dst: Tensor | None = None) -> Features:
        """Returns this graph with row spaces for the nonzeros of sparse features, and the values of these.

        It shares all encodings. The same tensors give the same graph, as do others with entries in the same positions.
        Writes to a sparse tensor are noticed, but not writes to its index tensors, which torch counts separately.

        Args:
            src: Features of the sources, a CSR or COO tensor [NS, K]; entries in one position are summed.
            dst: Features of the destinations [ND, K'], if they differ.

        Raises:
            ArrayError: Wrong layout, shape or device, or a tensor that requires a gradient.
            GraphError: An index out of range.
        """
        kept: FeatureGraphs[HeteroGraph] = self.derived.setdefault(FeatureGraphs, FeatureGraphs())
        return Features(*kept.find(self._encodings, src, dst, self._with_nonzeros))

    def _with_nonzeros(self, nonzeros: Mapping[str, Nonzeros]) -> HeteroGraph:
        return HeteroGraph.of_encodings(FeatureEncodings(self._encodings, nonzeros), self._edge_perm)

    def record_stream(self, stream: torch.cuda.Stream) -> None:
        """Keeps the memory of everything made for the graph reserved until the work on a stream is done.

        Torch does that by itself only for the stream on which a tensor was made.
        """
        for tensor in pytree.tree_leaves([self._encodings.built(), list(self.derived.values()), self._edge_perm]):
            if isinstance(tensor, Tensor) and tensor.is_cuda:
                tensor.record_stream(stream)

    @property
    def device(self) -> torch.device:
        """Returns the device of the edges."""
        return self._edges.src.device

    @property
    def index_dtype(self) -> torch.dtype:
        """Returns torch.int32 if every size, with R * NS and R * ND, is below 2**31; else torch.int64."""
        return self._encodings.dtype

    @property
    def bipartite(self) -> bool:
        """Tells whether sources and destinations are different nodes."""
        return self._edges.bipartite

    @property
    def edge_type_names(self) -> Sequence[str]:
        """Returns one name for each edge type; without names of the user "0", "1", ..., made on request."""
        return self._edges.edge_type_names

    @property
    def node_type_names(self) -> Sequence[str]:
        """Returns one name for each node type; without names of the user "0", "1", ..., made on request."""
        return self._edges.node_type_names

    @property
    def has_node_types(self) -> bool:
        """Tells whether the user gave node types, even if they are all the same."""
        return self._edges.src_type is not None

    @cached_property
    def single_typed(self) -> bool:
        """Tells whether the edges of every type join one source node type with one destination node type."""
        return self._encodings.single_typed()

    @cached_property
    def checksum(self) -> int | None:
        """Returns a checksum of the edges, their order and their types, which quickly tells graphs apart.

        It is None on devices, where the host would have to wait for it.
        """
        if not sorting.at_hand(self._edges.src):
            return None
        edges = self._edges
        types = [edges.edge_type] if edges.num_edge_types > 1 else []
        return native_sorting.checksum([edges.src, edges.dst, *types])

    @property
    def longest_groups(self) -> Mapping[str, int]:
        """Returns the most edges of any end point, or of any pair of it with a type, by path; empty without edges."""
        return self._encodings.counts.longest

    @cached_property
    def node_ranges(self) -> tuple[tuple[int, int], ...] | None:
        """Returns (start, stop) of the source nodes of each type; None if they are not contiguous by type."""
        return type_ranges(self._edges.src_type, self._edges.num_src, self._edges.num_node_types)

    def __repr__(self) -> str:
        size = self.size
        nodes = f"{size('NS'):,} nodes"
        if self.bipartite or size("NS") != size("ND"):
            nodes = f"{size('NS'):,} sources, {size('ND'):,} destinations"
        kind = "bipartite, " if self.bipartite else ""
        types = f"{size('T')} node types, {size('R')} edge types"
        return f"HeteroGraph({kind}{nodes}, {size('E'):,} edges, {types}, {self.index_dtype}, {self.device})"


def unpickled_graph(vectors: Sequence[Any], numbers: Sequence[Any], names: Sequence[Any]) -> HeteroGraph:
    """Returns the graph of a pickle, whose numbers are checked like those of users.

    Raises:
        ArrayError: A vector has a wrong dtype or length.
        GraphError: An index is out of range.
    """
    src, dst, edge_type, src_type, dst_type, perm = vectors
    num_src, num_dst, num_edge_types, num_node_types, bipartite = numbers
    node_type: Any = (src_type, dst_type) if bipartite and src_type is not None else src_type
    graph = HeteroGraph.from_arrays(
        (src, dst), edge_type, num_nodes=(num_src, num_dst), num_edge_types=num_edge_types, node_type=node_type,
        num_node_types=num_node_types, bipartite=bipartite, edge_type_names=names[0], node_type_names=names[1],
    )  # fmt: skip
    if graph.edge_perm is not None:
        raise GraphError("the edges of a pickled graph are not in canonical order; the pickle is damaged.")
    if perm is not None and not torch.equal(perm.sort().values, torch.arange(len(src)).to(perm)):
        raise GraphError("the order of the edges of a pickled graph is none; the pickle is damaged.")
    return HeteroGraph.of_encodings(graph.encodings, perm)

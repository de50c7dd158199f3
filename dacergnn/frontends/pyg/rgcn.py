"""Front end for PyG's `RGCNConv` and `FastRGCNConv`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from torch import Tensor, nn

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.features import contiguous
from dacergnn.frontends.frontend import Binding, GraphKey, ProgramSource, in_shape, only, spec
from dacergnn.frontends.parameters import Attributes
from dacergnn.frontends.programs import rgcn
from dacergnn.frontends.pyg.given_edges import (
    check_edges,
    edge_values,
    identity,
    is_matrix,
    matrix_sizes,
    sources_and_destinations,
)
from dacergnn.frontends.pyg.message_passing import (
    MessagePassingFrontend,
    channel_pair,
    check_edge_type,
    check_features,
    check_ids,
    check_relations,
)
from dacergnn.frontends.rgcn_programs import rgcn_featureless, rgcn_modes
from dacergnn.graph import HeteroGraph
from dacergnn.graph.checks import IndexRange, as_index_vector, check_ranges


class RGCNFrontend(MessagePassingFrontend):
    """Runs `RGCNConv`; aggregates per relation, as PyG documents it and computes it without segment_matmul."""

    handles: ClassVar[tuple[str, ...]] = ("torch_geometric.nn.conv.rgcn_conv.RGCNConv",)
    aggregations: ClassVar[tuple[str, ...]] = ("add", "mean", "max", "min")
    id_rows: ClassVar[str] = "ids"
    """Meaning of the graph's sources where x holds node ids: "ids" or "positions"."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.aggr = self.check_options(*self.aggregations)
        self.in_channels = channel_pair(self.module.in_channels)
        self.out_channels: int = self.module.out_channels
        self.num_relations: int = self.module.num_relations
        self.num_bases: int | None = self.module.num_bases
        self.num_blocks: int | None = self.module.num_blocks
        self.has_root: bool = self.module.root is not None
        self.has_bias: bool = self.module.bias is not None
        self.reduce = self.aggr if self.aggr in ("max", "min") else "sum"

    def edges(self, x: Any, edge_index: Any, edge_type: Any = None) -> GraphKey:
        self._check_matrix(edge_index)
        check_edges(edge_index)
        check_edge_type(self._types(edge_index, edge_type))
        x_l, x_r = _ends(x)
        for value in (x_l, x_r):
            if value is not None and not isinstance(value, Tensor):
                raise UnsupportedCallError(f"x is a {type(value).__name__}; it must be a tensor, None or a pair.")
        if x_l is None or not x_l.is_floating_point():
            if isinstance(x, tuple) and x_r is None:
                raise UnsupportedCallError("x[1] is None; pass the ids of the destinations.")
            self._check_ids(x_l, x_r)
            self._check_sizes(edge_index, self.in_channels[0] if x_l is None else x_l.size(0), self._num_dst(x))
            return (*self._identity(edge_index, edge_type), x_l), (self.id_rows, self.in_channels[0], self._num_dst(x))
        check_features("x", x_l, self.in_channels[0])
        if isinstance(x, tuple):
            check_features("x[1]", x_r, self.in_channels[1])
        elif self.has_root and self.in_channels[1] != self.in_channels[0]:
            check_features("x", x_r, self.in_channels[1])
        self._check_sizes(edge_index, x_l.size(0), x_r.size(0))
        return self._identity(edge_index, edge_type), ("nodes", x_l.size(0), x_r.size(0), isinstance(x, tuple))

    def _check_matrix(self, edge_index: Any) -> None:
        """Raises UnsupportedCallError for an adjacency that the layer cannot read."""
        if is_matrix(edge_index) and isinstance(edge_index, Tensor):
            raise UnsupportedCallError("edge_index is a Tensor that is sparse, whose edges of a type PyG cannot take.")

    def _types(self, edge_index: Any, edge_type: Any) -> Any:
        """Returns the types of the edges [E], which a matrix of torch_sparse has as its values."""
        return edge_values(edge_index) if is_matrix(edge_index) else edge_type

    def _check_sizes(self, edge_index: Any, src: int, dst: int) -> None:
        """Raises UnsupportedCallError where an adjacency has other numbers of nodes."""
        if is_matrix(edge_index) and matrix_sizes(edge_index) != (src, dst):
            raise UnsupportedCallError(f"size={matrix_sizes(edge_index)!r} differs from {(src, dst)}, the rows of x.")

    def _identity(self, edge_index: Any, edge_type: Any) -> tuple[object, ...]:
        """Returns the objects by which edges and their types are told apart."""
        types = self._types(edge_index, edge_type)
        # The values of a sparse tensor are a new object each time, but the tensor itself stands for them.
        return *identity(edge_index), None if types is not edge_type and isinstance(edge_index, Tensor) else types

    def graph_owner(self) -> object:
        return "edges", self.num_relations

    def result(self, x: Any, edge_index: Any, edge_type: Any = None) -> tuple[int, int]:
        return self._num_dst(x), self.out_channels

    def graph(self, x: Any, edge_index: Any, edge_type: Any = None) -> HeteroGraph:
        x_l = _ends(x)[0]
        bipartite = isinstance(x, tuple)
        types = self._types(edge_index, edge_type)
        check_relations(types, self.num_relations)
        edges: Tensor | tuple[Tensor, Tensor] = sources_and_destinations(edge_index)
        num_src = self.in_channels[0]
        if x_l is not None and x_l.is_floating_point():
            num_src = x_l.size(0)
            check_ids(edges, (num_src, self._num_dst(x)))
        elif x_l is not None:
            bipartite = True
            edges = (self._source_ids(x_l, edges[0]), edges[1])
        return HeteroGraph.from_arrays(
            edges,
            types,
            num_nodes=(num_src, self._num_dst(x)),
            num_edge_types=self.num_relations,
            bipartite=bipartite,
        )

    def bind(self, graph: HeteroGraph, x: Any, edge_index: Any, edge_type: Any = None) -> Binding:
        x_l, x_r = _ends(x)
        parameters = self.parameters
        weight = self._weight(parameters)
        arrays = {"W": weight}
        if self.aggr == "mean":
            arrays["norm"] = graph.pair_mean_weights(weight.dtype)
        if self.has_bias:
            arrays["bias"] = parameters["bias"]
        root = parameters["root"]
        if x_l is None or not x_l.is_floating_point():
            if root is not None:
                arrays["root"] = _root_rows(root, x_r, self.in_channels[0])
            return Binding(self.program("ids", self._featureless), arrays, only, reshapes=True)
        arrays["x"] = contiguous(x_l)
        pair = isinstance(x, tuple)
        if root is not None:
            arrays["root"] = root
            if pair:
                arrays["x_own"] = contiguous(x_r)
        make: Callable[[], ProgramSource] = self._pair if pair else self._single
        finish = self._join if self.num_blocks else only
        return Binding(self.program(pair, make), arrays, finish, reshapes=True)

    def _num_dst(self, x: Any) -> int:
        x_r = _ends(x)[1]
        return self.in_channels[0] if x_r is None else x_r.size(0)

    def _check_ids(self, x_l: Any, x_r: Any) -> None:
        if self.num_blocks is not None:
            raise UnsupportedCallError("num_blocks needs features; node ids or None have no blocks.")
        for value in (x_l, x_r):
            if value is not None and (value.is_floating_point() or value.dim() != 1):
                raise UnsupportedCallError("x mixes features and node ids; pass ids [N] (or None) for both sides.")

    def _source_ids(self, x_l: Tensor, src: Tensor) -> Tensor:
        """Returns the embedding row of each edge's source: the graph's sources are embeddings, not positions in x."""
        check_ranges(IndexRange("edge_index[0]", src, x_l.size(0), "source nodes", "x"))
        return as_index_vector("x", x_l).index_select(0, src)

    def _weight(self, parameters: Attributes) -> Tensor:
        """Returns weights [R, in, out], or [R, B, in / B, out / B] with blocks."""
        weight = parameters["weight"]
        return weight if self.num_bases is None else parameters["comp"] @ weight.view(self.num_bases, -1)

    def _join(self, outputs: tuple[Tensor, ...]) -> Tensor:
        return in_shape(outputs[0], -1, self.out_channels)

    def _single(self) -> ProgramSource:
        return self._with_features(pair=False)

    def _pair(self) -> ProgramSource:
        return self._with_features(pair=True)

    def _with_features(self, pair: bool) -> ProgramSource:
        (k, k_own), m, blocks = self.in_channels, self.out_channels, self.num_blocks
        root = spec("ONE", k_own, m) if self.has_root else None
        if blocks is None:
            arrays = {
                "x": spec("NS", k),
                "W": spec("R", k, m),
                "bias": spec("ONE", m) if self.has_bias else None,
            }
        else:
            arrays = {
                "x": spec("NS", blocks, k // blocks),
                "W": spec("R", blocks, k // blocks, m // blocks),
                "bias": spec("ONE", blocks, m // blocks) if self.has_bias else None,
            }
        norm = spec("E") if self.aggr == "mean" else None
        if blocks is None and not pair and self.reduce == "sum":
            return ProgramSource.of(rgcn, norm=norm, root=root, **arrays)
        arrays["x_own"] = spec("ND", k_own) if pair and root else None
        sizes = {"in_channels": k, "blocks": blocks or 0, "width": m // (blocks or 1)}
        return ProgramSource.of(rgcn_modes, norm=norm, root=root, reduce=self.reduce, **arrays, **sizes)

    def _featureless(self) -> ProgramSource:
        m = self.out_channels
        arrays = {
            "W": spec("RNS", m),
            "root": spec("ND", m) if self.has_root else None,
            "bias": spec("ONE", m) if self.has_bias else None,
        }
        norm = spec("E") if self.aggr == "mean" else None
        return ProgramSource.of(rgcn_featureless, norm=norm, reduce=self.reduce, **arrays)


class FastRGCNFrontend(RGCNFrontend):
    """Runs `FastRGCNConv`, which differs for node ids in x: it picks messages by the source's position, not its id."""

    handles: ClassVar[tuple[str, ...]] = ("torch_geometric.nn.conv.rgcn_conv.FastRGCNConv",)
    aggregations: ClassVar[tuple[str, ...]] = ("add", "mean")
    id_rows: ClassVar[str] = "positions"

    def _check_matrix(self, edge_index: Any) -> None:
        """Accepts all edges that `check_edges` accepts."""

    def _types(self, edge_index: Any, edge_type: Any) -> Any:
        return edge_values(edge_index) if edge_type is None else edge_type

    def _check_ids(self, x_l: Any, x_r: Any) -> None:
        super()._check_ids(x_l, x_r)
        if x_l is not None and x_l.size(0) > self.in_channels[0]:
            raise UnsupportedCallError(f"x has {x_l.size(0)} ids, but there are {self.in_channels[0]} embeddings.")

    def _source_ids(self, x_l: Tensor, src: Tensor) -> Tensor:
        check_ranges(IndexRange("edge_index[0]", src, x_l.size(0), "source nodes", "x"))
        return src


def _ends(x: Any) -> tuple[Any, Any]:
    """Returns the features or ids of sources and destinations from `x`; a list is no pair to this layer."""
    return x if isinstance(x, tuple) else (x, x)


def _root_rows(root: Tensor, x_r: Tensor | None, count: int) -> Tensor:
    """Returns [ND, out]: the root weight of each destination by its id, or by its position if there are no ids."""
    if x_r is not None:
        return root.index_select(0, x_r)
    return root if root.size(0) == count else root[:count]

"""Graphs of edges that are one tensor, as operators take them in programs that torch.export has written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from dacergnn.graph.edge_list import EdgeList
from dacergnn.graph.hetero_graph import HeteroGraph
from dacergnn.graph.names import NumberNames
from dacergnn.graph.operator import operator


@operator("edge_weights")
def _edge_weights(edges: Tensor, sizes: Sequence[int], kind: str, dtype: torch.dtype) -> Tensor:
    """Returns the weights [E] of `HeteroGraph` that ``kind`` names ("pair_mean", "symmetric")."""
    weights = graph_of_tensor(edges, None, None, sizes).encodings.weights(kind, dtype)
    return weights.clone()


@_edge_weights.register_fake
def _(edges: Tensor, sizes: Any, kind: str, dtype: torch.dtype) -> Tensor:
    return edges.new_empty(edges.size(1), dtype=dtype)


_GRAPHS: Any = WeakTensorKeyDictionary()
"""Graphs by the tensor of their edges, so that the next operator finds their encodings."""


def graph_of_tensor(
    edges: Tensor, src_type: Tensor | None, dst_type: Tensor | None, sizes: Sequence[int]
) -> HeteroGraph:
    """Returns the graph of sorted edges; operators that get the same tensor share it.

    Args:
        edges: int32 [4, E].
        src_type: [NS] types of sources; None for one type.
        dst_type: [ND] types of destinations; None for one type.
        sizes: Numbers of sources, destinations, edge types and node types, and whether both ends are different nodes.
    """
    num_src, num_dst, num_types, node_types, bipartite = sizes
    known: HeteroGraph | None = _GRAPHS.get(edges)
    extent = num_src, num_dst, edges.size(1), num_types, bool(bipartite)
    if known is not None and known.extent == extent and known.has_node_types == (src_type is not None):
        return known
    vectors = {"src": edges[0], "dst": edges[1], "edge_type": edges[2], "perm": edges[3]}
    vectors |= {} if src_type is None or dst_type is None else {"src_type": src_type, "dst_type": dst_type}
    none = torch.empty(0, dtype=torch.int32)
    rest = EdgeList(
        none, none, none, num_src, num_dst, num_types, None, None, node_types, bool(bipartite),
        NumberNames(num_types), NumberNames(node_types), in_order=True,
    )  # fmt: skip
    graph = HeteroGraph.of_state(vectors, (rest, None, "auto"))
    _GRAPHS[edges] = graph
    return graph

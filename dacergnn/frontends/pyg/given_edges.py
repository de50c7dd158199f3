"""The edges of a call as PyG takes them: an index [2, E], an `EdgeIndex`, or an adjacency with destinations in rows.

Adjacencies are sparse matrices of torch or of torch_sparse, which is never imported here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.pyg.message_passing import check_edge_index, plain
from dacergnn.graph.checks import check_kernels
from dacergnn.graph.from_pyg import coordinates, is_adjacency

Sizes = tuple[int, int]


def is_matrix(edge_index: object) -> bool:
    """Tells whether the edges are a sparse matrix: an adjacency with destinations in rows."""
    return is_adjacency(edge_index)


def has_matrix(edges: Iterable[Any]) -> bool:
    """Tells whether some of these edges are a sparse matrix."""
    return any(is_matrix(e) for e in edges if type(e) is not Tensor or e.layout is not torch.strided)


def check_edges(edge_index: Any, *, fused: bool = False) -> None:
    """Raises UnsupportedCallError unless a program can run over these edges, ArrayError if their device has no kernels.

    Args:
        fused: Whether the layer multiplies with an adjacency as a whole. The adjacency may then be in CSC, and have
            several entries for the same nodes, whose sum counts.
    """
    if not is_matrix(edge_index):
        check_edge_index(edge_index)
        return
    if torch.compiler.is_compiling():
        raise UnsupportedCallError("edge_index is a sparse adjacency; torch.compile takes dense tensors [2, E].")
    if not isinstance(edge_index, Tensor):
        check_kernels("edge_index", edge_index.device())
        return
    check_kernels("edge_index", edge_index.device)
    if edge_index.layout is torch.sparse_csc and not fused:
        raise UnsupportedCallError("edge_index has the layout torch.sparse_csc; convert it with .to_sparse_csr().")
    if edge_index.layout is torch.sparse_coo and not (fused or edge_index.is_coalesced()):
        raise UnsupportedCallError("edge_index is not coalesced, so that PyG has no order of its edges; coalesce it.")
    if fused and edge_index.dim() != 2:
        raise UnsupportedCallError(f"edge_index has shape {list(edge_index.shape)}; pass one number for each edge.")


def check_extremes(reduce: str) -> None:
    """Raises UnsupportedCallError for a trained reduction of products with an adjacency that has another gradient.

    The gradient of the largest of equal products is that of one of them where torch reduces products with a matrix,
    and that of all of them, in equal parts, in programs and where torch reduces messages.
    """
    if reduce in ("max", "min") and torch.is_grad_enabled():
        raise UnsupportedCallError(
            f'"{reduce}" of products with a sparse adjacency is trained; pass edge_index [2, E], or use torch.no_grad.'
        )


def matrix_sizes(edge_index: Any) -> Sizes:
    """Returns the numbers of sources and destinations of an adjacency."""
    return edge_index.size(1), edge_index.size(0)


def edge_count(edge_index: Any) -> int:
    """Returns the number of edges that a call has values for."""
    if not is_matrix(edge_index):
        return edge_index.size(1)
    return edge_index.values().size(0) if isinstance(edge_index, Tensor) else edge_index.nnz()


def sources_and_destinations(edge_index: Any) -> Tensor:
    """Returns the ids of sources and destinations, [2, E] in PyG's order of the edges."""
    if not is_matrix(edge_index):
        return plain(edge_index)
    rows, columns, *_ = coordinates(_coalesced(edge_index))
    return torch.stack([columns, rows])


def edge_values(edge_index: Any) -> Tensor | None:
    """Returns the values [E, ...] of an adjacency, with their gradient; None without values and for other edges.

    An adjacency of torch_sparse holds its values, so they are the same tensor at every call.
    """
    if not is_matrix(edge_index):
        return None
    return _coalesced(edge_index).values() if isinstance(edge_index, Tensor) else edge_index.coo()[2]


def edge_features(edge_index: Any) -> Tensor | None:
    """Returns the values [E, F] of an adjacency that PyG takes for edge features; None if they are single numbers."""
    values = edge_values(edge_index)
    return None if values is None or values.dim() == 1 else values


def identity(edge_index: Any) -> tuple[object, ...]:
    """Returns the tensors that hold the edges, by which the edges of two calls are told apart."""
    # A matrix of torch_sparse may be changed in place, and counts no versions.
    return (edge_index,) if isinstance(edge_index, Tensor) else tuple(edge_index.coo()[:2])


def source_of_values(edge_index: Any) -> Tensor | None:
    """Returns the tensor whose version counts the writes to the values of an adjacency."""
    return edge_index if isinstance(edge_index, Tensor) else edge_values(edge_index)


def with_self_loops(edge_index: Any, edge_attr: Tensor | None, fill: Any, count: int) -> tuple[Any, Tensor | None]:
    """Returns edges and their features, with self loops at ``count`` nodes in place of existing ones, as in PyG."""
    from torch_geometric.utils import add_self_loops, remove_self_loops

    if is_matrix(edge_index) and not isinstance(edge_index, Tensor):
        return sys.modules["torch_sparse"].set_diag(edge_index), edge_attr
    edge_index, edge_attr = remove_self_loops(edge_index, edge_attr)
    return add_self_loops(edge_index, edge_attr, fill_value=fill, num_nodes=count)


def with_weights(edge_index: Any, weights: Tensor) -> Any:
    """Returns the second result of a layer that is asked for the weights of edges [E, ...], in the edges' order."""
    from torch_geometric.utils.sparse import set_sparse_value

    if not is_matrix(edge_index):
        return edge_index, weights
    if not isinstance(edge_index, Tensor):
        return edge_index.set_value(weights, layout="coo")
    return set_sparse_value(edge_index, weights), weights


def _coalesced(edge_index: Any) -> Any:
    """Returns an adjacency in which entries for the same nodes have been added up."""
    is_coo = isinstance(edge_index, Tensor) and edge_index.layout is torch.sparse_coo
    return edge_index.coalesce() if is_coo else edge_index

"""Edge lists of PyG objects, recognised by their attributes; torch_geometric is never imported."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dacergnn.errors import GraphError
from dacergnn.graph.checks import as_count, extremes
from dacergnn.graph.edge_list import EdgeList, make_edge_list, split_edge_index
from dacergnn.graph.typed_parts import TypedEdges, join_types

_OF_NODES = ("num_nodes", "node_type", "bipartite")
_OPTIONS = (*_OF_NODES, "num_edge_types", "num_node_types", "edge_type_names", "node_type_names")


def edge_list_of_pyg(data: Any, edge_type: Any = None, **options: Any) -> EdgeList:
    """Returns the edge list of anything that `HeteroGraph.from_pyg` takes; raises GraphError for other objects."""
    unknown = next((name for name in options if name not in _OPTIONS), None)
    if unknown is not None:
        raise GraphError(f"from_pyg has no option {unknown!r}; there are {', '.join(_OPTIONS)}.")
    if hasattr(data, "edge_types") and hasattr(data, "node_types"):
        held = (
            "edge_type" if edge_type is not None else next((n for n in _OF_NODES if options.get(n) is not None), None)
        )
        if held is not None:
            raise GraphError(f"{held} is for graphs of one type; HeteroData holds it itself, so leave it out.")
        return _of_hetero_data(data, {n: v for n, v in options.items() if v is not None})
    if is_adjacency(data):
        return _of_adjacency(data, edge_type, options)
    if hasattr(data, "num_nodes") and hasattr(data, "stores"):
        return _of_data(data, edge_type, options)
    if isinstance(data, tuple | list) and len(data) == 2 and edge_type is None:  # pyright: ignore[reportUnknownArgumentType]
        data, edge_type = data
    if isinstance(data, Tensor) and data.layout == torch.strided:
        return _of_edge_index(data, edge_type, options)
    raise GraphError(
        f"from_pyg cannot read a {type(data).__name__}; pass a Data, HeteroData, EdgeIndex, sparse adjacency "
        "or (edge_index, edge_type), or use from_arrays."
    )


def _of_data(data: Any, edge_type: Any, options: dict[str, Any]) -> EdgeList:
    if edge_type is None:
        edge_type = data.edge_type if "edge_type" in data else None
    if "node_type" in data:
        options.setdefault("node_type", data.node_type)
    if "edge_index" not in data and "adj_t" in data:
        return _of_adjacency(data.adj_t, edge_type, options)
    if "edge_index" not in data:
        raise GraphError("data has neither edge_index nor adj_t; a graph needs one of them.")
    if options.get("num_nodes") is None:
        options["num_nodes"] = data.num_nodes
    return _of_edge_index(data.edge_index, edge_type, options)


def _of_edge_index(edge_index: Any, edge_type: Any, options: dict[str, Any]) -> EdgeList:
    # An EdgeIndex is a tensor subclass that knows its (sparse) size; its plain tensor is faster to use.
    known: tuple[int | None, int | None] = getattr(edge_index, "sparse_size", lambda: (None, None))()
    plain = _plain(edge_index)
    if options.get("num_nodes") is None:
        (sources, _), (destinations, _) = split_edge_index(plain)
        _, src, _, dst = extremes(sources, destinations).tolist()
        sizes = [end if size is None else int(size) for size, end in zip(known, (src + 1, dst + 1), strict=True)]
        options["num_nodes"] = max(sizes) if None in known or sizes[0] == sizes[1] else (sizes[0], sizes[1])
    return make_edge_list(plain, edge_type, **options)


_STRIDED, _SPARSE = torch.strided, frozenset((torch.sparse_coo, torch.sparse_csr, torch.sparse_csc))


def is_adjacency(data: Any) -> bool:
    """Tells whether this is a sparse matrix of torch or torch_sparse."""
    if isinstance(data, Tensor):
        return data.layout is not _STRIDED and data.layout in _SPARSE
    return hasattr(data, "coo") and hasattr(data, "sparse_sizes")


def _plain(edge_index: Any) -> Any:
    return edge_index.as_tensor() if hasattr(edge_index, "as_tensor") else edge_index


def coordinates(adjacency: Any) -> tuple[Tensor, Tensor, Tensor | None, tuple[int, int]]:
    """Returns (row, column, value, sizes) of a torch or torch_sparse adjacency, in its own order."""
    if not isinstance(adjacency, Tensor):
        row, col, value = adjacency.coo()
        return row, col, value, tuple(adjacency.sparse_sizes())
    sizes = (adjacency.shape[0], adjacency.shape[1])
    if adjacency.layout == torch.sparse_coo:
        # Not coalesced, since that would add up the types of edges between the same nodes.
        row, col = adjacency._indices()
        return row, col, adjacency._values(), sizes
    if adjacency.layout == torch.sparse_csr:
        starts, inner = adjacency.crow_indices(), adjacency.col_indices()
    else:
        starts, inner = adjacency.ccol_indices(), adjacency.row_indices()
    outer = torch.arange(len(starts) - 1, device=starts.device).repeat_interleave(
        starts.diff().long(), output_size=len(inner)
    )
    row, col = (outer, inner) if adjacency.layout == torch.sparse_csr else (inner, outer)
    return row, col, adjacency.values(), sizes


def _of_adjacency(adjacency: Any, edge_type: Any, options: dict[str, Any]) -> EdgeList:
    if isinstance(adjacency, Tensor) and (adjacency.dim() != 2 or adjacency.dense_dim()):
        raise GraphError(
            f"The adjacency has shape {list(adjacency.shape)}; pass a matrix with one value for each edge."
        )
    dst, src, value, (num_dst, num_src) = coordinates(adjacency)
    if edge_type is None and value is not None and not (value.is_floating_point() or value.is_complex()):
        edge_type = value.long()
    if edge_type is None and value is not None and options.get("num_edge_types") not in (None, 1):
        raise GraphError(
            f"The adjacency holds values of dtype {value.dtype}, which cannot be edge types; store integers "
            "in it or pass edge_type."
        )
    if options.get("num_nodes") is None:
        options["num_nodes"] = (num_src, num_dst)
    return make_edge_list((src, dst), edge_type, **options)


def _of_hetero_data(data: Any, options: dict[str, Any]) -> EdgeList:
    counts = {str(n): as_count(f"num_nodes of {n!r}", data[n].num_nodes, "node") for n in data.node_types}
    parts: list[TypedEdges] = []
    for key in data.edge_types:
        store = data[key]
        if "edge_index" in store:
            (src, _), (dst, _) = split_edge_index(_plain(store.edge_index), f"edge_index of {key}")
        elif "adj_t" in store:
            dst, src, _, _ = coordinates(store.adj_t)  # its values are not types; the key is the type
        else:
            raise GraphError(f"Edge type {key} has neither edge_index nor adj_t; remove it or give it edges.")
        parts.append(TypedEdges(key, src, dst))
    return join_types(parts, counts, **options)

"""Tells what is the same in graphs of DGL that differ in sizes and numbers alone, such as sampled batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

_OWN = frozenset(("_graph", "_canonical_etypes", "_batch_num_nodes", "_batch_num_edges", "_ntypes", "_etypes",
                  "_is_unibipartite", "_srctypes_invmap", "_dsttypes_invmap", "_etypes_invmap", "_etype2canonical",
                  "_node_frames", "_edge_frames", "encoded"))  # fmt: skip
"""Attributes that DGL gives to graphs, and the one of `dacergnn.loader.EncodedSampler`."""


def form(graph: Any) -> tuple[object, ...] | None:
    """Returns the form of a graph; None for a graph that holds more than its form and numbers.

    The form consists of its types, its relations, and the types and row shapes of its columns.
    """
    table = vars(graph)
    if not table.keys() <= _OWN or table.get("_batch_num_nodes") or table.get("_batch_num_edges"):
        return None
    relations, nodes = tuple(graph.canonical_etypes), (tuple(graph.srctypes), tuple(graph.dsttypes))
    looks = tuple([(place, name, _look(column)) for place, name, column in _columns(graph)])
    return type(graph), graph.is_block, relations, tuple(graph.ntypes), nodes, graph.idtype, graph.device, looks


def columns(graph: Any) -> list[Tensor]:
    """Returns the tensors that the columns of a graph hold; DGL makes others only when they are asked for."""
    return [column.storage for _, _, column in _columns(graph) if _is_there(column)]


def size(graph: Any, key: tuple[str, tuple[Any, ...]]) -> int:
    """Returns how many sources ("src") or destinations ("dst") of some types there are, or edges ("edges")."""
    what, names = key
    if what == "edges":
        counted = graph.num_edges
    elif graph.is_block:
        counted = graph.num_src_nodes if what == "src" else graph.num_dst_nodes
    else:  # a type may be at one end of edges alone, and be asked for at the other
        counted = graph.num_nodes
    return sum([int(counted(name)) for name in names])


def _columns(graph: Any) -> Iterator[tuple[int, str, Any]]:
    for place, frame in enumerate((*graph._node_frames, *graph._edge_frames)):
        for name, column in frame._columns.items():
            yield place, name, column


def _is_there(column: Any) -> bool:
    waits = getattr(column, "index", column) is not None or column.device is not None
    return not waits and column.deferred_dtype is None and type(column.storage) is Tensor


def _look(column: Any) -> object:
    if not _is_there(column):
        return type(column)
    tensor = column.storage
    return tensor.dtype, tensor.shape[1:], tensor.device, tensor.requires_grad, tensor.layout is torch.strided

"""One edge list out of edges and nodes that are given type by type, with ids local to their type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dacergnn.errors import GraphError
from dacergnn.graph.checks import IndexRange, as_index_vector, check_device, check_length
from dacergnn.graph.edge_list import EdgeList, make_edge_list


class TypedEdges(NamedTuple):
    """Edges of one type (source type, relation, destination type), with node ids local to these types."""

    key: tuple[str, str, str]
    src: Tensor
    dst: Tensor


def join_types(
    parts: list[TypedEdges],
    src_counts: Mapping[str, int],
    dst_counts: Mapping[str, int] | None = None,
    **options: Any,
) -> EdgeList:
    """Edge list with global ids, type after type in the order of the counts; edge type i is that of part i.

    `dst_counts` is for sampled blocks: the destinations of a type are the first of its sources. With one node
    type they are the first of all sources, with more they become nodes of their own (bipartite). `options`
    are those of `HeteroGraph.from_arrays`. GraphError or ArrayError if a part does not fit its node types.
    """
    names = list(dict.fromkeys((*src_counts, *(dst_counts or ()))))
    bipartite = dst_counts is not None and len(names) > 1
    src_starts = _starts(src_counts)
    dst_starts = _starts(dst_counts) if dst_counts is not None else src_starts
    targets = dst_counts if dst_counts is not None else src_counts
    device = parts[0].src.device if parts else torch.device("cpu")
    ranges = [found for part in parts for found in _ranges(part, src_counts, targets, device)]

    def joined(vectors: list[Tensor]) -> Tensor:
        return torch.cat(vectors) if vectors else torch.zeros(0, dtype=torch.int64, device=device)

    node_types = [_types(counts, names, device) for counts in (src_counts, targets)]
    named: dict[str, Any] = {
        "edge_type_names": [":".join(part.key) for part in parts] or None,
        "num_edge_types": max(len(parts), 1),
        "node_type_names": names or None,
    }
    return make_edge_list(
        (
            joined([part.src.long() + src_starts[part.key[0]] for part in parts]),
            joined([part.dst.long() + dst_starts[part.key[2]] for part in parts]),
        ),
        repeated([len(part.src) for part in parts], device),
        num_nodes=(sum(src_counts.values()), sum(targets.values())),
        node_type=(node_types[0], node_types[1]) if bipartite else node_types[0],
        bipartite=bipartite,
        given_as=ranges,
        **(named | options),
    )


def repeated(counts: Sequence[int], device: torch.device) -> Tensor:
    """int64[sum(counts)]: position i as often as ``counts[i]`` says."""
    lengths = torch.tensor(counts, dtype=torch.int64, device=device)
    return torch.arange(len(counts), device=device).repeat_interleave(lengths, output_size=sum(counts))


def _starts(counts: Mapping[str, int]) -> dict[str, int]:
    starts: dict[str, int] = {}
    total = 0
    for name, count in counts.items():
        starts[name] = total
        total += count
    return starts


def _types(counts: Mapping[str, int], names: list[str], device: torch.device) -> Tensor:
    types = torch.tensor([names.index(name) for name in counts], dtype=torch.int64, device=device)
    return types.index_select(0, repeated(list(counts.values()), device))


def _ranges(
    part: TypedEdges, src_counts: Mapping[str, int], dst_counts: Mapping[str, int], device: torch.device
) -> list[IndexRange]:
    """What bounds the ids of both ends; GraphError or ArrayError if they are no indices of nodes that there are."""
    found: list[IndexRange] = []
    rows = ((0, part.src, part.key[0], src_counts), (1, part.dst, part.key[2], dst_counts))
    for row, vector, node_type, counts in rows:
        name = f"edge_index[{row}] of {part.key}"
        if node_type not in counts:
            raise GraphError(f"Edge type {part.key} names node type {node_type!r}; known are {sorted(counts)}.")
        as_index_vector(name, vector)
        check_length(name, vector, len(part.src), "as many destinations as sources")
        check_device(f"edge_index of {part.key}", vector, device)
        found.append(IndexRange(name, vector, counts[node_type], f"nodes of type {node_type!r}", "num_nodes"))
    return found

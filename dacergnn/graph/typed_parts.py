"""Makes one edge list of edges and nodes that come type by type, with ids local to their type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dacergnn.errors import GraphError
from dacergnn.graph import native_sorting, sorting
from dacergnn.graph.canonical import canonical_order
from dacergnn.graph.checks import IndexRange, as_index_vector, check_device, check_length, check_ranges
from dacergnn.graph.edge_list import EdgeList, all_zero, make_edge_list
from dacergnn.graph.sorting import INT32_LIMIT


class TypedEdges(NamedTuple):
    """Holds edges of one type (source type, relation, destination type), with node ids local to these types."""

    key: tuple[str, str, str]
    src: Tensor
    dst: Tensor


def join_types(
    parts: list[TypedEdges],
    src_counts: Mapping[str, int],
    dst_counts: Mapping[str, int] | None = None,
    **options: Any,
) -> EdgeList:
    """Returns an edge list with global ids, type after type in the order of the counts; part i has edge type i.

    `dst_counts` is for sampled blocks: the destinations of a type are the first of its sources. With one node
    type they are the first of all sources, with more they become nodes of their own (bipartite). `options`
    are those of `HeteroGraph.from_arrays`. Raises GraphError or ArrayError if a part does not fit its node types.
    """
    names = list(dict.fromkeys((*src_counts, *(dst_counts or ()))))
    bipartite = dst_counts is not None and len(names) > 1
    src_starts = _starts(src_counts)
    dst_starts = _starts(dst_counts) if dst_counts is not None else src_starts
    targets = dst_counts if dst_counts is not None else src_counts
    device = parts[0].src.device if parts else torch.device("cpu")
    ranges = [index_range for part in parts for index_range in _ranges(part, src_counts, targets, device)]

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


OWN_DESTINATIONS = -1
"""Stands for the type of destinations that are no sources, and all of one type."""


class Part(NamedTuple):
    """Holds edges of one type, with node ids local to the types of their ends.

    Args:
        edges: [2, E], sources in row 0.
        number: The edge type.
        ends: Types of sources and destinations; of the latter, `OWN_DESTINATIONS` in all parts or in none.
        label: The name of the edges in errors.
        counted_by: The name of what tells how many nodes there are.
    """

    edges: Tensor
    number: int
    ends: tuple[int, int]
    label: str
    counted_by: str = "x_dict"


def canonical_parts(
    parts: Sequence[Part],
    counts: Sequence[int],
    edge_type_names: Sequence[str],
    node_type_names: Sequence[str],
    num_dst: int | None = None,
) -> tuple[EdgeList, Tensor | None]:
    """Returns edges of several types in canonical order, with node ids type after type, and the old position of each.

    Args:
        parts: At least one; the user's edges have the order of the parts.
        counts: Number of nodes of each type; of sources, if destinations are other nodes.
        num_dst: The number of nodes that are destinations; None for all.

    Raises:
        ArrayError: Edges are not tensors of indices on one device.
        GraphError: An id is out of range.
    """
    starts = [*accumulate(counts, initial=0)]
    num_src, num_types = starts[-1], len(edge_type_names)
    num_dst = num_src if num_dst is None else num_dst
    bipartite = parts[0].ends[1] == OWN_DESTINATIONS
    size = sum([p.edges.size(1) for p in parts])
    dtype = torch.int32 if max(size, num_types * num_src) < INT32_LIMIT else torch.int64
    nodes = [*zip(counts, starts, strict=False), (num_dst, 0)]  # own destinations stand last
    described = [(p.edges, p.number, nodes[p.ends[0]], nodes[p.ends[1]]) for p in parts]
    at_hand = all(sorting.at_hand(p.edges) for p in parts)
    order_and_vectors = native_sorting.joined_parts(described, counts, dtype) if at_hand else None
    if order_and_vectors is None:
        return canonical_order(_joined(parts, counts, starts, edge_type_names, node_type_names, num_dst))
    order, (dst, src, types, node_types) = order_and_vectors
    dst_types = torch.zeros(num_dst, dtype=dtype) if bipartite else node_types[:num_dst]
    ordered = EdgeList(
        src, dst, types if num_types > 1 else all_zero(src), num_src, num_dst, num_types, node_types,
        dst_types, len(counts), bipartite, edge_type_names, node_type_names, in_order=True,
        single_typed=len({p.number for p in parts}) == len({(p.number, p.ends) for p in parts}),
    )  # fmt: skip
    return ordered, order


def _joined(
    parts: Sequence[Part], counts: Sequence[int], starts: Sequence[int], edge_type_names: Sequence[str],
    node_type_names: Sequence[str], num_dst: int,
) -> EdgeList:  # fmt: skip
    """Returns edges of several types in the user's order, by operations of torch, which also work on devices."""
    device = parts[0].edges.device
    ranges = [index_range for p in parts for index_range in _id_ranges(p, counts, node_type_names, num_dst)]
    edges = torch.cat([p.edges for p in parts], dim=1)
    part = repeated([p.edges.size(1) for p in parts], device)
    starts = [*starts[:-1], 0]  # own destinations stand last
    first = [[starts[p.ends[row]] for p in parts] for row in (0, 1)]
    edges += torch.tensor(first, dtype=edges.dtype, device=device).index_select(1, part)
    numbers = torch.tensor([p.number for p in parts], device=device)
    node_type: Any = repeated(counts, device)
    bipartite = parts[0].ends[1] == OWN_DESTINATIONS
    return make_edge_list(
        edges, numbers.index_select(0, part), num_nodes=(sum(counts), num_dst), num_edge_types=len(edge_type_names),
        num_node_types=len(counts), node_type=(node_type, repeated([num_dst], device)) if bipartite else node_type,
        bipartite=bipartite, edge_type_names=edge_type_names, node_type_names=node_type_names, given_as=ranges,
    )  # fmt: skip


def check_ids(part: Part, counts: Sequence[int], node_type_names: Sequence[str]) -> None:
    """Raises GraphError unless the ends of edges are nodes of their types."""
    check_ranges(*_id_ranges(part, counts, node_type_names))


def _id_ranges(part: Part, counts: Sequence[int], node_type_names: Sequence[str], num_dst: int = 0) -> list[IndexRange]:
    counts, kinds = [*counts, num_dst], [*[f"{name} nodes" for name in node_type_names], "destination nodes"]
    return [
        IndexRange(f"{part.label}[{row}]", ids, counts[end], kinds[end], part.counted_by)
        for row, (ids, end) in enumerate(zip(part.edges.unbind(), part.ends, strict=True))
    ]


def repeated(counts: Sequence[int], device: torch.device) -> Tensor:
    """Returns int64[sum(counts)]: each position i, ``counts[i]`` times."""
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
    """Returns the ids of both ends with their bounds; raises GraphError or ArrayError if they are not indices, or the
    node type is unknown."""
    ranges: list[IndexRange] = []
    rows = ((0, part.src, part.key[0], src_counts), (1, part.dst, part.key[2], dst_counts))
    for row, vector, node_type, counts in rows:
        name = f"edge_index[{row}] of {part.key}"
        if node_type not in counts:
            raise GraphError(f"Edge type {part.key} names node type {node_type!r}; known are {sorted(counts)}.")
        as_index_vector(name, vector)
        check_length(name, vector, len(part.src), "as many destinations as sources")
        check_device(f"edge_index of {part.key}", vector, device)
        ranges.append(IndexRange(name, vector, counts[node_type], f"nodes of type {node_type!r}", "num_nodes"))
    return ranges

"""Reads the numbers of neighbours to sample, by edge type and hop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from reprlib import repr as short
from typing import Any

from torch_geometric.sampler import NumNeighbors
from torch_geometric.typing import EdgeTypeStr

from dacergnn.errors import GraphError
from dacergnn.sampler.graph import EdgeType

_LIMIT = 2**31
"""More neighbours than any batch has, but few enough that their sum over all nodes fits into 64 bits."""


def read_fanouts(num_neighbors: Any, edge_types: Sequence[EdgeType | None]) -> tuple[int, list[list[int]]]:
    """Returns the number of hops, and the numbers of neighbours in each hop, by edge type.

    Args:
        num_neighbors: A list for all edge types, a dictionary of lists by edge type, or PyG's ``NumNeighbors``.

    Raises:
        GraphError: Numbers of hops differ, an edge type is missing or unknown, or a number is not an integer from -1
            on.
    """
    values, default = num_neighbors, None
    if isinstance(num_neighbors, NumNeighbors):
        values, default = num_neighbors.values, num_neighbors.default
    if not isinstance(values, Mapping):
        hops = _checked("num_neighbors", values)
        return len(hops), [hops for _ in edge_types]
    if None in edge_types:
        raise GraphError("num_neighbors is a dictionary, but the graph has one edge type; pass a list, as in [10, 10].")
    by_type: dict[Any, Any] = {EdgeTypeStr(key).to_tuple(): hops for key, hops in values.items()}
    unknown = [key for key in by_type if key not in edge_types]
    if unknown:
        raise GraphError(f"num_neighbors names {unknown[0]}, but the edge types are {short(list(edge_types))}.")
    missing = [key for key in edge_types if key not in by_type]
    if missing and default is None:
        raise GraphError(f"num_neighbors leaves {missing[0]} out; add it, or pass NumNeighbors(..., default=[...]).")
    fanouts = [_checked(f"num_neighbors of {key}", by_type.get(key, default)) for key in edge_types]
    for key, hops in zip(edge_types, fanouts, strict=True):
        if len(hops) != len(fanouts[0]):
            raise GraphError(
                f"num_neighbors has {len(fanouts[0])} hops for {edge_types[0]} and {len(hops)} for {key}; give each "
                "edge type the same number of hops, with 0 in those that it has no part in."
            )
    return len(fanouts[0]) if fanouts else 0, fanouts


def read_samples(num_samples: Any, node_types: Sequence[str | None]) -> tuple[int, list[list[int]]]:
    """Returns the number of hops, and the numbers of nodes to sample in each hop, by node type.

    Args:
        num_samples: A list for all node types, or a dictionary of lists by node type; missing types are not sampled.

    Raises:
        GraphError: Numbers of hops differ, a type is unknown, or a number is not an integer from -1 on.
    """
    if not isinstance(num_samples, Mapping):
        hops = _checked("num_samples", num_samples)
        return len(hops), [hops for _ in node_types]
    samples = {key: _checked(f"num_samples of {key!r}", hops) for key, hops in num_samples.items()}
    for key, hops in samples.items():
        if key not in node_types:
            raise GraphError(f"num_samples names {key!r}, but the node types are {short(list(node_types))}.")
        if len(hops) != len(next(iter(samples.values()))):
            raise GraphError(f"num_samples has another number of hops for {key!r} than for {next(iter(samples))!r}.")
    hops = len(next(iter(samples.values()), []))
    return hops, [samples.get(key, [0] * hops) for key in node_types]


def _checked(name: str, hops: object) -> list[int]:
    if not isinstance(hops, list | tuple):
        raise GraphError(f"{name} is {short(hops)}; pass a list with one number for each hop.")
    for number in hops:
        if not isinstance(number, int) or isinstance(number, bool) or number < -1:
            raise GraphError(f"{name} holds {short(number)}; numbers are integers from 0 on, or -1 for all.")
        if number >= _LIMIT:
            raise GraphError(f"{name} holds {number}, more than fit into a batch; pass -1 for all.")
    return [*hops]

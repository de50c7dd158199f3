"""Checks the nodes and edges from which sampling starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from dacergnn.errors import GraphError
from dacergnn.graph.checks import IndexRange, as_index_vector, check_length, check_ranges
from dacergnn.sampler.graph import SampledGraph


def read_seeds(graph: SampledGraph, seeds: Mapping[str | None, object]) -> dict[int, Tensor]:
    """Returns seeds as int64 vectors, by the number of their type.

    Raises:
        ArrayError: They have the wrong shape or dtype.
        GraphError: One of them, or its type, is not in the graph.
    """
    vectors = dict[int, Tensor]()
    for node_type, nodes in seeds.items():
        check_type(graph, node_type)
        place = graph.node_types.index(node_type)
        vector = as_index_vector("Seeds" if node_type is None else f"Seeds of type {node_type!r}", nodes)
        count = graph.num_nodes[place]
        check_ranges(IndexRange("The vector of seeds", vector, count, "nodes", "num_nodes"))
        vectors[place] = vector.cpu().long().contiguous()
    return vectors


def check_type(graph: SampledGraph, node_type: object) -> None:
    """Raises GraphError unless the graph has this type of nodes."""
    if node_type in graph.node_types:
        return
    if graph.node_types == [None]:
        raise GraphError(f"Seeds have the type {node_type!r}, but the graph has nodes of one type; leave it out.")
    known = ", ".join(map(repr, graph.node_types))
    if node_type is None:
        raise GraphError(f"Seeds have no type, but the graph has the types {known}; pass (type, seeds).")
    raise GraphError(f"Seeds have the type {node_type!r}, but the graph has the types {known}.")


def check_seed_edges(graph: SampledGraph, inputs: Any, temporal: bool) -> None:
    """Raises errors for mistakes that PyG's preparation of seed edges does not explain."""
    for end in (None,) if inputs.input_type is None else (inputs.input_type[0], inputs.input_type[-1]):
        check_type(graph, end)
    check_length("Destinations of seed edges", inputs.col, len(inputs.row), "as many as sources")
    if len(inputs.row) == 0:
        raise GraphError("There are no seed edges; pass one at least.")
    if temporal and inputs.time is None:
        raise GraphError("Seed edges have no times, which time_attr asks for; pass edge_label_time.")
    if inputs.time is not None:
        if not temporal:
            raise GraphError("Seed edges have times, but the sampler takes none into account; pass time_attr.")
        check_length("The time of seed edges", inputs.time, len(inputs.row), "one for each edge")

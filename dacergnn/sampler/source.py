"""Reads graphs of PyG: a Data, a HeteroData, or a pair of a FeatureStore and a GraphStore."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import remote_backend_utils
from torch_geometric.sampler.base import DataType

from dacergnn.errors import ArrayError, GraphError
from dacergnn.graph.checks import as_count, check_length
from dacergnn.sampler.graph import EdgeType, GivenEdges, SampledGraph, as_times, make_relation


def read_graph(data: Any, time_attr: str | None = None, weight_attr: str | None = None) -> SampledGraph:
    """Returns the graph of ``data``; the named attributes hold times of nodes or edges, and weights of edges.

    Raises:
        ArrayError: An array of the graph has the wrong shape or dtype.
        GraphError: ``data`` is not a graph, lacks the attribute, or has edges between unknown nodes.
    """
    try:
        kind = DataType.from_data(data)
    except ValueError:
        raise GraphError(
            f"data is a {type(data).__name__}; pass a Data, a HeteroData, or a pair of a FeatureStore and a GraphStore."
        ) from None
    if kind is DataType.homogeneous:
        return _of_data(data, time_attr, weight_attr)
    if kind is DataType.heterogeneous:
        return _of_hetero_data(data, time_attr, weight_attr)
    for name, value in (("time_attr", time_attr), ("weight_attr", weight_attr)):
        if value is not None:
            raise GraphError(f"{name} is {value!r}, but stores are sampled without; pass a Data or a HeteroData.")
    return _of_stores(*data)


def _of_data(data: Any, time_attr: str | None, weight_attr: str | None) -> SampledGraph:
    count = as_count("data.num_nodes", data.num_nodes, "node")
    node_time = edge_time = weight = None
    if time_attr is not None:
        if time_attr not in data:
            raise GraphError(f"time_attr is {time_attr!r}, but neither nodes nor edges have that attribute.")
        times = as_times(f"data.{time_attr}", data[time_attr])
        if data.is_node_attr(time_attr):
            node_time = times
        elif data.is_edge_attr(time_attr):
            edge_time = times
        else:
            length = f"has {len(times)} entries; it must have {count} or {data.num_edges}, one for each node or edge"
            raise ArrayError(f"data.{time_attr}", length)
    if weight_attr is not None:
        if weight_attr not in data:
            raise GraphError(f"weight_attr is {weight_attr!r}, but edges have no such attribute.")
        weight = data[weight_attr]
    edges = GivenEdges("edge_index", _edge_index(data, "data"), node_time, edge_time, weight)
    return _of_one_type(count, edges, node_time)


def _of_hetero_data(data: Any, time_attr: str | None, weight_attr: str | None) -> SampledGraph:
    counts = {key: as_count(f"num_nodes of {key!r}", data[key].num_nodes, "node") for key in data.node_types}
    node_time = _collected(data.node_items(), time_attr)
    edge_time = _collected(data.edge_items(), time_attr)
    weights = _collected(data.edge_items(), weight_attr)
    if node_time and edge_time:
        raise GraphError(f"time_attr is {time_attr!r}, which both nodes and edges have; name one of the two otherwise.")
    if time_attr is not None and not node_time and not edge_time:
        raise GraphError(f"time_attr is {time_attr!r}, but neither nodes nor edges have that attribute.")
    if weight_attr is not None and not weights:
        raise GraphError(f"weight_attr is {weight_attr!r}, but no edges have that attribute.")
    node_times = {key: as_times(f"{time_attr} of {key!r}", times) for key, times in node_time.items()}
    for key, times in node_times.items():
        check_length(f"{time_attr} of {key!r}", times, counts[key], "one for each node")
    edges_by_type: dict[EdgeType, GivenEdges] = {}
    for key, store in data.edge_items():
        name, times = f"edge_index of {key}", edge_time.get(key)
        times = None if times is None else as_times(f"{time_attr} of {key}", times)
        index = _edge_index(store, f"Edge type {key}")
        edges_by_type[key] = GivenEdges(name, index, node_times.get(key[0]), times, weights.get(key))
    return _joined(counts, edges_by_type, node_times)


def _of_stores(features: Any, graph: Any) -> SampledGraph:
    rows, cols, _ = graph.coo()
    if not isinstance(rows, dict):
        size = graph.get_all_edge_attrs()[0].size
        if size is None:
            raise GraphError("The edges of the GraphStore have no size; put them there with size=(nodes, nodes).")
        return _of_one_type(max(size), GivenEdges("edge_index", (rows, cols)), None)
    names = {attr.group_name for attr in features.get_all_tensor_attrs() if isinstance(attr.group_name, str)}
    names |= {end for key in rows for end in (key[0], key[2])}
    counts = {key: remote_backend_utils.num_nodes(features, graph, key) for key in sorted(names)}
    edges_by_type = {key: GivenEdges(f"edge_index of {key}", (row, cols[key])) for key, row in rows.items()}
    return _joined(counts, edges_by_type, {})


def _collected(items: Any, attribute: str | None) -> dict[Any, Any]:
    return {key: store[attribute] for key, store in items if attribute is not None and attribute in store}


def _edge_index(store: Any, name: str) -> Any:
    if "edge_index" in store:
        index = store.edge_index
        return index.as_tensor() if hasattr(index, "as_tensor") else index
    if "adj_t" in store:
        raise GraphError(f"{name} has its edges as adj_t; give it edge_index, which loaders can take batches from.")
    return torch.empty(2, 0, dtype=torch.int64)


def _of_one_type(count: int, edges: GivenEdges, node_time: Tensor | None) -> SampledGraph:
    times: dict[str | None, Tensor] = {} if node_time is None else {None: node_time}
    return SampledGraph([None], [count], [None], [make_relation(edges, 0, 0, [count])], times)


def _joined(
    counts: Mapping[str, int], edges_by_type: Mapping[EdgeType, GivenEdges], node_time: Mapping[str | None, Tensor]
) -> SampledGraph:
    places, sizes = {key: place for place, key in enumerate(counts)}, [*counts.values()]
    for key in edges_by_type:
        for end in (key[0], key[2]):
            if end not in places:
                raise GraphError(f"Edge type {key} has nodes of type {end!r}, whose number is unknown; set num_nodes.")
    relations = [make_relation(edges, places[key[0]], places[key[2]], sizes) for key, edges in edges_by_type.items()]
    return SampledGraph([*counts], sizes, [*edges_by_type], relations, node_time)

"""Bad arguments are refused in words that name the argument, its value and the remedy."""

from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("torch_geometric")
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling, NodeSamplerInput, NumNeighbors
from torch_geometric.testing import MyFeatureStore, MyGraphStore

from dacergnn.errors import ArrayError, DacergnnError, GraphError
from dacergnn.sampler import HGTSampler, NeighborSampler
from tests.sampler.oracle import RELATIONS, heterogeneous, homogeneous

EDGES = torch.tensor([[0, 1], [1, 2]])


def graph(**attributes: Any) -> Data:
    return Data(num_nodes=3, **{"edge_index": EDGES, **attributes})


def typed(change: Callable[[HeteroData], None] = lambda _: None) -> HeteroData:
    data = heterogeneous(random.Random(0))
    change(data)
    return data


def without_nodes(data: HeteroData) -> None:
    data["x", "to", "a"].edge_index = torch.zeros(2, 1, dtype=torch.int64)


def both_timed(data: HeteroData) -> None:
    data["a"].t = torch.zeros(30, dtype=torch.int64)
    data["a", "self", "a"].t = torch.zeros(data["a", "self", "a"].num_edges, dtype=torch.int64)


def badly_timed(data: HeteroData) -> None:
    data["a"].t = torch.zeros(31, dtype=torch.int64)


def badly_weighted(data: HeteroData) -> None:
    data["a", "self", "a"].w = torch.ones(2)


LONG = torch.zeros(2, dtype=torch.int64)
GRAPHS: dict[str, tuple[Callable[[], Any], dict[str, Any], str]] = {
    "no_data": (lambda: [1, 2], {}, "data is a list; pass a Data, a HeteroData"),
    "source_too_large": (lambda: graph(edge_index=EDGES + 1), {}, "holds 3 at position 1, but there are 3"),
    "negative_source": (lambda: graph(edge_index=EDGES - 1), {}, "edge_index[0] holds -1 at position 0"),
    "floating_edges": (lambda: graph(edge_index=EDGES.float()), {}, "edge_index[0] has dtype torch.float32"),
    "edges_of_another_shape": (lambda: graph(edge_index=EDGES[0]), {}, "edge_index has shape [2]; it must be [2, E]"),
    "adjacency": (
        lambda: Data(adj_t=EDGES.to_sparse(), num_nodes=3),
        {},
        "data has its edges as adj_t; give it",
    ),
    "type_without_nodes": (lambda: typed(without_nodes), {}, "has nodes of type 'x', whose number is unknown"),
    "no_list": (graph, {"num_neighbors": 3}, "num_neighbors is 3; pass a list"),
    "less_than_all": (graph, {"num_neighbors": [2, -2]}, "num_neighbors holds -2; numbers are integers from 0 on"),
    "too_many": (graph, {"num_neighbors": [2**31]}, "holds 2147483648, more than fit into a batch; pass -1"),
    "no_integer": (graph, {"num_neighbors": [2.0]}, "num_neighbors holds 2.0"),
    "dictionary_of_one": (graph, {"num_neighbors": {RELATIONS[0]: [2]}}, "the graph has one edge type; pass a list"),
    "unknown_relation": (
        typed,
        {"num_neighbors": {("a", "no", "b"): [2]}},
        "num_neighbors names ('a', 'no', 'b'), but the edge types are",
    ),
    "missing_relation": (typed, {"num_neighbors": {RELATIONS[0]: [2]}}, "leaves ('b', 'back', 'a') out; add it"),
    "hops_differ": (
        typed,
        {"num_neighbors": NumNeighbors({RELATIONS[1]: [2]}, default=[1, 1])},
        "has 2 hops for ('a', 'to', 'b') and 1 for ('b', 'back', 'a')",
    ),
    "subgraph": (graph, {"subgraph_type": "half"}, "subgraph_type is 'half'; choose from directional, bidirectional"),
    "strategy": (graph, {"temporal_strategy": "first"}, "temporal_strategy is 'first'; choose from uniform, last"),
    "replace": (graph, {"replace": "no"}, "replace is 'no'; pass True or False"),
    "disjoint": (graph, {"disjoint": 1}, "disjoint is 1; pass True or False"),
    "disjoint_induced": (graph, {"disjoint": True, "subgraph_type": "induced"}, "leave disjoint and time_attr out"),
    "no_time": (graph, {"time_attr": "t"}, "time_attr is 't', but neither nodes nor edges have that attribute"),
    "no_time_of_a_type": (typed, {"time_attr": "t"}, "time_attr is 't', but neither nodes nor edges have"),
    "times_of_both": (lambda: typed(both_timed), {"time_attr": "t"}, "which both nodes and edges have"),
    "floating_time": (lambda: graph(t=torch.ones(3)), {"time_attr": "t"}, "data.t has dtype torch.float32; times are"),
    "time_of_another_length": (
        lambda: graph(t=torch.arange(5)),
        {"time_attr": "t"},
        "data.t has 5 entries; it must have 3 or 2, one for each node or edge",
    ),
    "time_of_a_type": (lambda: typed(badly_timed), {"time_attr": "t"}, "t of 'a' has 31 entries; it must have 30"),
    "time_matrix": (lambda: graph(t=torch.zeros(3, 1).long()), {"time_attr": "t"}, "data.t has shape [3, 1]"),
    "no_weight": (graph, {"weight_attr": "w"}, "weight_attr is 'w', but edges have no such attribute"),
    "no_weight_of_a_type": (typed, {"weight_attr": "w"}, "weight_attr is 'w', but no edges have that attribute"),
    "negative_weight": (lambda: graph(w=torch.tensor([1, -2.0])), {"weight_attr": "w"}, "holds -2.0 at position 1"),
    "weight_not_a_number": (
        lambda: graph(w=torch.tensor([torch.nan, 1])),
        {"weight_attr": "w"},
        "holds nan at",
    ),
    "infinite_weight": (lambda: graph(w=torch.tensor([torch.inf, 1])), {"weight_attr": "w"}, "holds inf at position 0"),
    "weights_too_large": (
        lambda: graph(w=torch.tensor([1e308, 1e308], dtype=torch.float64)),
        {"weight_attr": "w"},
        "divide the",
    ),
    "weight_of_another_length": (lambda: typed(badly_weighted), {"weight_attr": "w"}, "has 2 entries; it must have"),
    "weight_matrix": (lambda: graph(w=torch.ones(2, 2)), {"weight_attr": "w"}, "it must be a vector of real numbers"),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_and_options(name: str) -> None:
    make, options, said = GRAPHS[name]
    with pytest.raises(DacergnnError) as error:
        NeighborSampler(make(), **{"num_neighbors": [2, 2], **options})
    assert said in str(error.value)


def nodes(seeds: Any, node_type: str | None = None, time: Tensor | None = None) -> NodeSamplerInput:
    return NodeSamplerInput(None, seeds, time, node_type)


TIMED = {"time_attr": "t"}
SEEDS: dict[str, tuple[Callable[[], Any], dict[str, Any], NodeSamplerInput, str]] = {
    "too_large": (graph, {}, nodes(torch.tensor([0, 3])), "holds 3 at position 1, but there are 3 nodes"),
    "negative": (graph, {}, nodes(torch.tensor([-1])), "holds -1 at position 0"),
    "floating": (graph, {}, nodes(torch.tensor([0.0])), "Seeds has dtype torch.float32"),
    "mask": (graph, {}, nodes(torch.tensor([True])), "Seeds has dtype torch.bool"),
    "matrix": (graph, {}, nodes(LONG[:, None]), "Seeds has shape [2, 1]"),
    "typed": (graph, {}, nodes(LONG, "a"), "Seeds have the type 'a', but the graph has nodes of one type"),
    "untyped": (typed, {}, nodes(LONG), "Seeds have no type, but the graph has the types 'a', 'b'"),
    "unknown": (typed, {}, nodes(LONG, "x"), "Seeds have the type 'x', but the graph has the types 'a', 'b'"),
    "not_timed": (graph, {}, nodes(LONG, time=LONG), "Seeds have times, but the sampler takes none into account"),
    "no_times": (lambda: graph(t=torch.arange(2)), TIMED, nodes(LONG), "Seeds have no time of their own"),
    "floating_times": (
        lambda: graph(t=torch.arange(2)),
        TIMED,
        nodes(LONG, time=torch.zeros(2)),
        "The time of seeds has dtype torch.float32",
    ),
    "few_times": (
        lambda: graph(t=torch.arange(2)),
        TIMED,
        nodes(LONG, time=LONG[:1]),
        "The time of seeds has 1 entries; it must have 2 (one for each seed)",
    ),
}


@pytest.mark.parametrize("name", SEEDS)
def test_seeds(name: str) -> None:
    make, options, inputs, said = SEEDS[name]
    sampler = NeighborSampler(make(), [2, 2], **options)
    with pytest.raises(DacergnnError) as error:
        sampler.sample_from_nodes(inputs)
    assert said in str(error.value)


def edges(row: Tensor = LONG, col: Tensor = LONG, **options: Any) -> EdgeSamplerInput:
    return EdgeSamplerInput(None, row, col, **options)


TRIPLETS = NegativeSampling("triplet")
LINKS: dict[str, tuple[Callable[[], Any], dict[str, Any], EdgeSamplerInput, NegativeSampling | None, str]] = {
    "lengths": (graph, {}, edges(col=LONG[:1]), None, "Destinations of seed edges has 1 entries; it must have 2"),
    "too_large": (graph, {}, edges(LONG + 3), None, "holds 3 at position"),
    "none": (graph, {}, edges(LONG[:0], LONG[:0]), None, "There are no seed edges"),
    "typed": (graph, {}, edges(input_type=RELATIONS[0]), None, "Seeds have the type 'a'"),
    "unknown": (typed, {}, edges(input_type=("a", "to", "x")), None, "Seeds have the type 'x'"),
    "not_timed": (graph, {}, edges(time=LONG), None, "Seed edges have times, but the sampler takes none"),
    "no_times": (lambda: graph(t=LONG), TIMED, edges(), None, "Seed edges have no times"),
    "few_times": (lambda: graph(t=LONG), TIMED, edges(time=LONG[:1]), None, "The time of seed edges has 1 entries"),
    "labels_of_triplets": (graph, {}, edges(label=LONG), TRIPLETS, "Seed edges have labels, which triplets have no"),
}


@pytest.mark.parametrize("name", LINKS)
def test_seed_edges(name: str) -> None:
    make, options, inputs, negative, said = LINKS[name]
    sampler = NeighborSampler(make(), [2, 2], **options)
    with pytest.raises(DacergnnError) as error:
        sampler.sample_from_edges(inputs, negative)
    assert said in str(error.value)


HGT: dict[str, tuple[Callable[[], Any], Any, str]] = {
    "one_type": (graph, [2], "data is a Data; HGT samples of a HeteroData"),
    "unknown": (typed, {"x": [2]}, "num_samples names 'x', but the node types are"),
    "hops_differ": (typed, {"a": [2], "b": [2, 1]}, "another number of hops for 'b' than for 'a'"),
    "less_than_all": (typed, [-2], "num_samples holds -2"),
    "no_list": (typed, 4, "num_samples is 4; pass a list"),
}


@pytest.mark.parametrize("name", HGT)
def test_hgt(name: str) -> None:
    make, numbers, said = HGT[name]
    with pytest.raises(GraphError) as error:
        HGTSampler(make(), numbers)
    assert said in str(error.value)


def test_hgt_samples_around_nodes() -> None:
    sampler = HGTSampler(typed(), [2])
    with pytest.raises(GraphError, match="samples around nodes; take NeighborSampler"):
        sampler.sample_from_edges(edges(input_type=RELATIONS[0]))
    with pytest.raises(GraphError, match="Seeds have times"):
        sampler.sample_from_nodes(nodes(LONG, "a", LONG))


def test_stores_whose_edges_have_no_size() -> None:
    store = MyGraphStore()
    store.put_edge_index(EDGES, edge_type=None, layout="coo")
    with pytest.raises(GraphError, match="The edges of the GraphStore have no size; put them there with size="):
        NeighborSampler((MyFeatureStore(), store), [2])


def test_stores_have_no_times_and_weights() -> None:
    data = homogeneous(random.Random(0))
    for option in ("time_attr", "weight_attr"):
        with pytest.raises(GraphError, match=f"{option} is 't', but stores are sampled without"):
            NeighborSampler((data, data), [2], **{option: "t"})


def test_torch_geometric_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "dacergnn.sampler")
    monkeypatch.setitem(sys.modules, "torch_geometric", None)
    with pytest.raises(ImportError, match=r"dacergnn.sampler needs torch_geometric.*pip install 'dacergnn\[pyg\]'"):
        importlib.import_module("dacergnn.sampler")


def test_errors_of_arrays_are_value_errors() -> None:
    with pytest.raises(ArrayError) as error:
        NeighborSampler(graph(), [2]).sample_from_nodes(nodes(torch.tensor([0.5])))
    assert isinstance(error.value, ValueError)


def test_a_sample_that_memory_does_not_hold() -> None:
    sampler = NeighborSampler(graph(), [2**31 - 1], replace=True)
    with pytest.raises(MemoryError, match="does not fit into memory; sample fewer neighbours"):
        sampler.sample_from_nodes(nodes(torch.ones(20000, dtype=torch.int64)))  # more than there are addresses for

"""Every sample is what a walk in plain Python allows: edges of the graph, as many as asked for, in the right order."""

from __future__ import annotations

import random

import pytest
import torch

pytest.importorskip("torch_geometric")
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import NumNeighbors

from dacergnn.sampler import NeighborSampler
from dacergnn.sampler.native import Seeds, sample_neighbors
from dacergnn.sampler.output import to_output
from tests.sampler.oracle import RELATIONS, TYPES, check_sample, heterogeneous, homogeneous, sample

NUMBERS = (-1, 0, 1, 2, 3, 5, 90)


@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_samples_of_one_type(seed: int, replace: bool, disjoint: bool) -> None:
    rng = random.Random(seed)
    data = homogeneous(rng, edges=rng.choice([0, 30, 120, 900]))
    fanouts = rng.choices(NUMBERS, k=rng.randint(0, 3))
    sampler = NeighborSampler(data, fanouts, replace=replace, disjoint=disjoint)
    seeds = rng.choices(range(25), k=rng.randint(0, 9))  # some of them twice
    check_sample(data, sample(sampler, seeds), {"n": seeds}, {("n", "e", "n"): fanouts}, replace, disjoint)


@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_samples_of_several_types(seed: int, replace: bool, disjoint: bool) -> None:
    rng = random.Random(seed)
    data, hops = heterogeneous(rng), rng.randint(1, 3)
    fanouts = {key: rng.choices(NUMBERS, k=hops) for key in RELATIONS}
    sampler = NeighborSampler(data, fanouts, replace=replace, disjoint=disjoint)
    for node_type in TYPES:
        seeds = rng.choices(range(TYPES[node_type]), k=7)
        check_sample(data, sample(sampler, seeds, node_type), {node_type: seeds}, fanouts, replace, disjoint)


@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")], ids="".join)
def test_seeds_of_two_types(order: tuple[str, str], disjoint: bool) -> None:
    data = heterogeneous(random.Random(1))
    sampler = NeighborSampler(data, [2, 2], disjoint=disjoint)
    seeds = {key: [3, 1, 4, 1, 5][: 3 + place] for place, key in enumerate(order)}
    nodes = {[*TYPES].index(key): torch.tensor(given) for key, given in seeds.items()}
    output = to_output(sampler.graph, sample_neighbors(sampler.graph, Seeds(nodes), sampler.options))
    check_sample(data, output, seeds, {key: [2, 2] for key in RELATIONS}, disjoint=disjoint)


def test_many_neighbours_of_few_nodes() -> None:
    """So many are chosen that those that were are kept in a table."""
    data = Data(edge_index=torch.stack([torch.arange(1, 1001), torch.arange(1000) % 2]), num_nodes=1001)
    sampler = NeighborSampler(data, [300])
    for _ in range(3):
        check_sample(data, sample(sampler, [0, 1, 0]), {"n": [0, 1, 0]}, {("n", "e", "n"): [300]})


def test_numbers_by_type_have_a_default() -> None:
    data = heterogeneous(random.Random(0))
    sampler = NeighborSampler(data, NumNeighbors({("a", "to", "b"): [2, 1]}, default=[0, 3]))
    expected = {key: [2, 1] if key == ("a", "to", "b") else [0, 3] for key in RELATIONS}
    check_sample(data, sample(sampler, [1, 2, 3], "b"), {"b": [1, 2, 3]}, expected)


def test_int32_edges_and_seeds() -> None:
    data = homogeneous(random.Random(0))
    data.edge_index = data.edge_index.int()
    check_sample(data, sample(NeighborSampler(data, [3]), [4, 5]), {"n": [4, 5]}, {("n", "e", "n"): [3]})


def test_edges_in_order_need_no_numbers() -> None:
    data = homogeneous(random.Random(0))
    data.edge_index = data.edge_index[:, data.edge_index[1].argsort(stable=True)]
    sampler = NeighborSampler(data, [3, 2])
    assert sampler.graph.relations[0].edge is None
    check_sample(data, sample(sampler, [4, 5]), {"n": [4, 5]}, {("n", "e", "n"): [3, 2]})


@pytest.mark.parametrize("seed", range(6))
def test_induced_samples_hold_every_edge(seed: int) -> None:
    data = heterogeneous(random.Random(seed))
    output = sample(NeighborSampler(data, [2, 2], subgraph_type="induced"), [0, 3, 5], "b")
    assert output.num_sampled_nodes is None
    assert output.num_sampled_edges is None
    for key in RELATIONS:
        edge_index = data[key].edge_index
        inside = torch.isin(edge_index[0], output.node[key[0]]) & torch.isin(edge_index[1], output.node[key[2]])
        assert sorted(output.edge[key].tolist()) == inside.nonzero().flatten().tolist()
        ends = torch.stack([output.node[key[0]][output.row[key]], output.node[key[2]][output.col[key]]])
        assert torch.equal(ends, edge_index[:, output.edge[key]])
        assert torch.equal(output.col[key], output.col[key].sort().values)


def test_bidirectional_samples_hold_the_opposites() -> None:
    data = homogeneous(random.Random(0))
    output = sample(NeighborSampler(data, [3, 2], subgraph_type="bidirectional"), [0, 3, 5])
    pairs = set(zip(output.row.tolist(), output.col.tolist(), strict=True))
    assert pairs
    assert pairs == {(col, row) for row, col in pairs}
    known = {tuple(pair) for pair in data.edge_index.T.tolist()}
    for row, col in pairs:
        ends = int(output.node[row]), int(output.node[col])
        assert ends in known or ends[::-1] in known


def test_a_graph_without_relations() -> None:
    data = HeteroData()
    data["a"].num_nodes = 4
    output = sample(NeighborSampler(data, [3, 2]), [1, 1, 2], "a")
    assert output.node["a"].tolist() == [1, 1, 2]
    assert output.row == {}
    assert output.num_sampled_nodes == {"a": [3, 0, 0]}


def test_a_type_without_nodes() -> None:
    data = HeteroData()
    data["a"].num_nodes, data["b"].num_nodes = 2, 0
    data["b", "to", "a"].edge_index = torch.empty(2, 0, dtype=torch.int64)
    output = sample(NeighborSampler(data, [3], disjoint=True), [1, 0], "a")
    assert output.node["b"].tolist() == output.batch["b"].tolist() == []

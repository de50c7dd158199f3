"""Random graphs, and what every sample of neighbours has to be, told in plain Python."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import HeteroSamplerOutput, NodeSamplerInput, SamplerOutput

TYPES = {"a": 30, "b": 12, "c": 5, "alone": 3}
RELATIONS = (("a", "to", "b"), ("b", "back", "a"), ("a", "self", "a"), ("a", "again", "b"), ("b", "none", "c"))


def random_edges(rng: random.Random, sources: int, destinations: int, count: int) -> Tensor:
    """Edges in any order, with loops and some edges several times."""
    pairs = [(rng.randrange(sources), rng.randrange(destinations)) for _ in range(count)]
    pairs += rng.choices(pairs, k=count // 5) if pairs else []
    rng.shuffle(pairs)
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T


def homogeneous(rng: random.Random, nodes: int = 25, edges: int = 120) -> Data:
    data = Data(x=torch.arange(nodes).float()[:, None], edge_index=random_edges(rng, nodes, nodes, edges))
    data.edge_attr = torch.arange(data.num_edges)
    return data


def heterogeneous(rng: random.Random) -> HeteroData:
    """Several relations between the same types, one without edges, and a type that no edge leads to or from."""
    data = HeteroData()
    for key, count in TYPES.items():
        data[key].x = torch.arange(count).float()[:, None]
    for key in RELATIONS:
        count = 0 if key[1] == "none" else rng.randint(10, 90)
        data[key].edge_index = random_edges(rng, TYPES[key[0]], TYPES[key[2]], count)
    return data


def sample(sampler: Any, seeds: Sequence[int], node_type: str | None = None, times: Sequence[int] | None = None) -> Any:
    time = None if times is None else torch.tensor(times)
    return sampler.sample_from_nodes(NodeSamplerInput(None, torch.tensor(seeds, dtype=torch.int64), time, node_type))


def as_typed(output: SamplerOutput | HeteroSamplerOutput) -> HeteroSamplerOutput:
    """The sample of a graph of one type as one of several."""
    if isinstance(output, HeteroSamplerOutput):
        return output
    nodes = (output.node, output.batch, output.num_sampled_nodes)
    node, batch, node_counts = (None if value is None else {"n": value} for value in nodes)
    edges = (output.row, output.col, output.edge, output.num_sampled_edges)
    row, col, edge, edge_counts = (None if value is None else {("n", "e", "n"): value} for value in edges)
    return HeteroSamplerOutput(node, row, col, edge, batch, node_counts, edge_counts)


def edges_of(data: Data | HeteroData) -> dict[tuple[str, str, str], Tensor]:
    if isinstance(data, Data):
        return {("n", "e", "n"): data.edge_index}
    return {key: data[key].edge_index for key in data.edge_types}


def global_ends(batch: HeteroData, key: tuple[str, str, str], index: Tensor) -> Tensor:
    """The nodes of the graph that edges [2, E] of a batch lead from and to."""
    return torch.stack([batch[end].n_id[places] for end, places in zip((key[0], key[2]), index, strict=True)])


def check_batch(data: HeteroData, batch: HeteroData) -> None:
    """The edges of a batch are those edges of the graph that it says."""
    for key in data.edge_types:
        edges = batch[key]
        assert torch.equal(global_ends(batch, key, edges.edge_index), data[key].edge_index[:, edges.e_id])


def check_sample(
    data: Data | HeteroData,
    output: SamplerOutput | HeteroSamplerOutput,
    seeds: Mapping[str, Sequence[int]],
    fanouts: Mapping[tuple[str, str, str], Sequence[int]],
    replace: bool = False,
    disjoint: bool = False,
) -> None:
    """Walks through a sample hop by hop, and compares whatever is not left to chance."""
    out, edges = as_typed(output), edges_of(data)
    hops = len(next(iter(fanouts.values())))
    nodes = {key: vector.tolist() for key, vector in out.node.items()}
    trees = {key: vector.tolist() for key, vector in out.batch.items()} if disjoint else None
    assert disjoint == (out.batch is not None)
    places = dict[tuple[str, int, int], int]()
    expected = dict[str, list[tuple[int, int]]]()
    tree = 0
    for key in nodes:
        expected[key] = []
    for key, given in seeds.items():
        for seed in given:
            own = tree if disjoint else 0
            places.setdefault((key, own, seed), len(expected[key]))
            expected[key].append((own, seed))
            tree += 1
    begin = dict.fromkeys(nodes, 0)
    taken = dict.fromkeys(edges, 0)
    node_counts = {key: [len(found)] for key, found in expected.items()}
    for hop in range(hops):
        end = {key: len(found) for key, found in expected.items()}
        for key, edge_index in edges.items():
            count = out.num_sampled_edges[key][hop]
            part = slice(taken[key], taken[key] + count)
            taken[key] += count
            row, col, edge = (vector[key][part].tolist() for vector in (out.row, out.col, out.edge))
            assert col == sorted(col)
            source, destination = key[0], key[2]
            for place in range(begin[destination], end[destination]):
                own, node = expected[destination][place]
                into = (edge_index[1] == node).nonzero().flatten().tolist()
                found = [e for e, c in zip(edge, col, strict=True) if c == place]
                fanout = fanouts[key][hop]
                if fanout < 0 or (not replace and len(into) <= fanout):
                    assert sorted(found) == into
                else:
                    assert len(found) == (fanout if into else 0)
                    assert set(found) <= set(into)
                    assert replace or len(set(found)) == len(found)
            for e, r, c in zip(edge, row, col, strict=True):
                assert begin[destination] <= c < end[destination]
                own = expected[destination][c][0]
                node = int(edge_index[0, e])
                if (source, own, node) not in places:
                    places[source, own, node] = len(expected[source])
                    expected[source].append((own, node))
                assert r == places[source, own, node]
        for key, found in expected.items():
            node_counts[key].append(len(found) - end[key])
        begin = end
    for key, found in expected.items():
        assert nodes[key] == [node for _, node in found]
        assert trees is None or trees[key] == [own for own, _ in found]
    assert out.num_sampled_nodes == node_counts
    assert all(taken[key] == len(out.row[key]) == len(out.edge[key]) for key in edges)
